package couchbase

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// record is the document of a record. A deleted one stays for a day, without a body, so that its versions are not used
// again. After that they cannot be: a new one begins with the time.
type record struct {
	head
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version int64  `json:"v"`
	Body    []byte `json:"body"`
	Updated int64  `json:"at"`
}

// recordRef names the document of a record. It is a field of a directory, so one that could not be is a hash.
func recordRef(kind, name string) ref {
	if strings.Contains(kind+name, "`") {
		return ref{inMeta, "r|" + hashed(kind, name)}
	}
	return ref{inMeta, "r|" + named(kind, name)}
}

// recordList is the directory of a kind: the names that it has had.
func recordList(kind string) string { return "records|" + named(kind) }

// version is what the contract knows of it: 0 if there is none.
func (r *record) version() int64 {
	if r.Body == nil {
		return 0
	}
	return r.Version
}

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, kind string) (_ []store.Record, err error) {
	defer says(&err, "records")
	ids, err := s.listed(ctx, s.meta, recordList(kind))
	if err != nil {
		return nil, err
	}
	docs, err := readEach(ctx, inMeta, ids, func(ctx context.Context, r ref) (*doc, error) {
		d, err := s.peek(ctx, r)
		return d, s.passing(err)
	})
	var records []store.Record
	for _, d := range docs {
		if d == nil || d.body.(*record).Body == nil {
			continue
		}
		r := d.body.(*record)
		records = append(records, store.Record{Kind: r.Kind, Name: r.Name, Version: r.Version, Body: r.Body,
			UpdatedAt: instant(r.Updated)})
	}
	slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(a.Name, b.Name) })
	return records, err
}

// PutRecord implements store.Recorder. The record's write decides; the tasks follow from it.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (_ int64, _ []store.Enqueued, err error) {
	defer says(&err, "put record")
	if err := s.mayGoOn(ctx, p.Term); err != nil {
		return 0, nil, err
	}
	version, results, err := s.putWith(ctx, &p)
	return version, results, alone(err)
}

// mayGoOn fails unless the term, if there is one, is the one that runs.
func (s *Store) mayGoOn(ctx context.Context, term int64) error {
	if term == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	return s.leads(ctx, term)
}

// putWith writes a record with its tasks.
func (s *Store) putWith(ctx context.Context, p *store.PutRecord) (version int64, results []store.Enqueued, err error) {
	tasks := trimmed(p.Tasks)
	version, err = s.put(ctx, &p.Record, func(b *rules.Batch) (err error) {
		results, err = b.Enqueue(tasks)
		return err
	})
	return version, results, err
}

// put writes a record and what verbs decide, which is done with it or not at all.
func (s *Store) put(
	ctx context.Context, given *store.Record, verbs func(b *rules.Batch) error,
) (version int64, err error) {
	r := recordRef(given.Kind, given.Name)
	create := given.Version == 0 && given.Body != nil
	if create { // before it is there, so that it is never there unlisted
		if err := s.enlist(ctx, s.meta, recordList(given.Kind), r.ID); err != nil {
			return 0, err
		}
	}
	w := &work{}
	err = s.do(ctx, w, func(b *rules.Batch) error {
		d, err := w.load(r)
		if err != nil {
			return err
		}
		if d == nil {
			d = w.add(blank(r))
		}
		to, now := d.body.(*record), s.now(ctx)
		if to.version() != given.Version {
			return store.ErrConflict
		}
		to.Kind, to.Name, to.Body, to.Updated = given.Kind, given.Name, bytes.Clone(given.Body), now
		if to.Version++; to.Version == 1 {
			to.Version = now // beyond those of one that was forgotten
		}
		if given.Body != nil && to.Body == nil {
			to.Body = []byte{}
		}
		w.root, d.dirty, version = d, true, to.version()
		return verbs(b)
	})
	if err == nil && create { // again, if somebody who forgets its predecessor has just taken it out
		err = s.enlist(ctx, s.meta, recordList(given.Kind), r.ID)
	}
	if err == nil {
		err = s.finishUp(ctx, w)
	}
	return version, err
}

// UpdateRecords implements store.Recorder.
func (s *Store) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) (_ []store.Updated, err error) {
	defer says(&err, "update records")
	if err := s.mayGoOn(ctx, term); err != nil {
		return nil, err
	}
	updated := make([]store.Updated, len(puts))
	// Those that bring the same key are written one after another; where one brings several, so are all.
	several := slices.ContainsFunc(puts, func(p store.PutRecord) bool {
		return slices.ContainsFunc(p.Tasks, func(n store.NewTask) bool { return nameOf(&n) != nameOf(&p.Tasks[0]) })
	})
	chain := func(i int) any {
		if several {
			return nil
		}
		if tasks := puts[i].Tasks; len(tasks) > 0 && tasks[0].Key != "" {
			return nameOf(&tasks[0])
		}
		return i
	}
	return updated, eachOf(len(puts), chain, func(i int) error {
		version, results, err := s.putWith(ctx, &puts[i])
		if errors.Is(err, store.ErrConflict) {
			return nil
		}
		updated[i] = store.Updated{Version: version, Enqueued: results}
		return err
	})
}
