package couchbase

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// record is the document of a record. A deleted record stays without a body for a day, so that its versions are not
// used again. After that they cannot be, because the first version of a new record is the time.
type record struct {
	head
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version int64  `json:"v"`
	Body    []byte `json:"body"`
	Updated int64  `json:"at"`
}

// recordRef names the document of a record. Its key is also the name of a field in a directory, which cannot contain a
// backtick.
func recordRef(kind, name string) ref {
	if strings.Contains(kind+name, "`") {
		return ref{inMeta, "r|" + hashed(kind, name)}
	}
	return ref{inMeta, "r|" + named(kind, name)}
}

// recordList names the directory of a kind's records.
func recordList(kind string) string { return "records|" + named(kind) }

// version returns the version of the record, or 0 if it does not exist.
func (r *record) version() int64 {
	if r.Body == nil {
		return 0
	}
	return r.Version
}

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, f store.RecordFilter) (records []store.Record, err error) {
	defer says(&err, "records")
	if len(f.Names) == 0 && strings.HasPrefix(f.Kind, store.ManyRecords) {
		return s.unlisted(ctx, &f)
	}
	var ids []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(f.Names))) {
		ids = append(ids, recordRef(f.Kind, name).ID)
	}
	if len(ids) == 0 {
		if ids, err = s.listed(ctx, s.meta, recordList(f.Kind)); err != nil {
			return nil, err
		}
	}
	if records, err = s.firstRecords(ctx, &f, ids); err != nil {
		return nil, err
	}
	slices.SortFunc(records, func(a, b store.Record) int { return pageOrder(&f, a.Name, b.Name) })
	records = slices.DeleteFunc(records, func(r store.Record) bool { return isOutside(&f, r.Name) })
	return records[:min(len(records), cmp.Or(f.Limit, len(records)))], nil
}

func pageOrder(f *store.RecordFilter, a, b string) int {
	if f.Backward {
		a, b = b, a
	}
	return cmp.Compare(a, b)
}

// isOutside reports whether the filter excludes a name.
func isOutside(f *store.RecordFilter, name string) bool {
	return name <= f.After || f.Backward && name >= f.Until()
}

// firstRecords reads records until it has as many as the filter wants. It may return more, and some that the filter
// excludes, because the ids of some records do not show their names.
func (s *Store) firstRecords(ctx context.Context, f *store.RecordFilter, ids []string) ([]store.Record, error) {
	var names, rest []string
	for _, id := range ids {
		if name, shown := strings.CutPrefix(id, "r|"+f.Kind+"|"); !shown {
			rest = append(rest, id)
		} else if !isOutside(f, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return pageOrder(f, a, b) })
	first, err := s.recordsOf(ctx, rest)
	most := cmp.Or(f.Limit, len(names))
	for found := 0; found < most && len(names) > 0 && err == nil; {
		var page []string
		for _, name := range names[:min(most, len(names))] {
			page = append(page, recordRef(f.Kind, name).ID)
		}
		names = names[len(page):]
		var some []store.Record
		some, err = s.recordsOf(ctx, page)
		first, found = append(first, some...), found+len(some)
	}
	return first, err
}

// unlisted returns records of a kind that has no directory, because it would be too large.
func (s *Store) unlisted(ctx context.Context, f *store.RecordFilter) (records []store.Record, err error) {
	most := cmp.Or(f.Limit, store.MaxPage)
	after, until := recordRef(f.Kind, f.After).ID, recordRef(f.Kind, "~").ID
	for len(records) < most {
		ids, err := query[string](ctx, s, queryIDs, args{"after": after, "until": until, "n": most})
		if err != nil || len(ids) == 0 {
			return records, err
		}
		some, err := s.recordsOf(ctx, ids)
		if err != nil {
			return records, err
		}
		records, after = append(records, some...), ids[len(ids)-1]
	}
	return records[:most], nil
}

// recordsOf reads the records that exist.
func (s *Store) recordsOf(ctx context.Context, ids []string) (records []store.Record, err error) {
	docs, err := readEach(ctx, inMeta, ids, s.skipping(s.peek))
	for _, d := range docs {
		if !d.exists() {
			continue
		}
		r := d.body.(*record)
		records = append(records, store.Record{Kind: r.Kind, Name: r.Name, Version: r.Version, Body: r.Body,
			UpdatedAt: instant(r.Updated)})
	}
	return records, err
}

// listable fails if a record of a kind without a directory has a name by which lists would not find it.
func listable(r *store.Record) error {
	plain := len(r.Name) <= 100
	for _, c := range []byte(r.Name) {
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-')
	}
	if !plain || recordRef(r.Kind, r.Name).ID != "r|"+r.Kind+"|"+r.Name {
		return fmt.Errorf("%w: a record of the kind %q cannot have the name %q: "+
			"use letters, digits and dashes, at most 100 bytes", store.ErrUnstorable, r.Kind, r.Name)
	}
	return nil
}

// PutRecord implements store.Recorder.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (_ int64, _ []store.Enqueued, err error) {
	defer says(&err, "put record")
	if err := s.mayGoOn(ctx, p.Term); err != nil {
		return 0, nil, err
	}
	version, results, err := s.putWith(ctx, &p)
	return version, results, alone(err)
}

// mayGoOn fails unless the term is 0 or the current term.
func (s *Store) mayGoOn(ctx context.Context, term int64) error {
	if term == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	return s.leads(ctx, term)
}

func (s *Store) putWith(ctx context.Context, p *store.PutRecord) (version int64, results []store.Enqueued, err error) {
	version, err = s.put(ctx, &p.Record, func(b *rules.Batch) (err error) {
		results, err = b.Enqueue(p.Tasks)
		return err
	})
	return version, results, err
}

// put writes a record and what the verbs decide, as a unit whose root is the record.
func (s *Store) put(
	ctx context.Context, given *store.Record, verbs func(b *rules.Batch) error,
) (version int64, err error) {
	r, list := recordRef(given.Kind, given.Name), recordList(given.Kind)
	create, many := given.Version == 0 && given.Body != nil, strings.HasPrefix(given.Kind, store.ManyRecords)
	switch {
	case create && many:
		err = listable(given)
	case create: // before and after it is created; see forget
		err = s.enlist(ctx, s.meta, list, r.ID)
	}
	if err != nil {
		return 0, err
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
			to.Version = now // greater than those of an expired record
		}
		if given.Body != nil && to.Body == nil {
			to.Body = []byte{}
		}
		w.root, d.dirty, version = d, true, to.version()
		return verbs(b)
	})
	switch {
	case err != nil || many:
	case create:
		err = s.enlist(ctx, s.meta, list, r.ID)
	case given.Body == nil:
		_ = s.forget(ctx, r, list, r.ID) // otherwise the name stays, and lists skip it
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
	// Records whose tasks have the same key are written one by one. If one record has tasks of several keys, all are.
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
