package couchbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// sums holds the statistics of this handle: one document for each minute, which no other handle writes. They are
// written after the outcomes, once a second, so a crash in between loses counts.
type sums struct {
	every   time.Duration
	timer   *time.Timer // not nil while there is something to write
	closed  bool
	writing sync.Mutex // held while they are written; locked before mu
	mu      sync.Mutex
	minutes map[int64]*minute
}

type minute struct {
	key     string // of its document
	of      map[slice]*store.Stat
	changed bool
}

const (
	sumsEvery   = time.Second // how often statistics are written
	keptMinutes = 10          // how many minutes stay in memory, for attempts that are counted late
)

// later schedules the next write of the statistics. The caller holds mu.
func (s *Store) later() {
	if s.sums.timer != nil || s.sums.closed {
		return
	}
	s.sums.timer = time.AfterFunc(s.sums.every, func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.queryTimeout)
		defer cancel()
		_ = s.writeSums(ctx) // if it fails, it schedules the next write
	})
}

// stop ends the background writes.
func (s *sums) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.timer != nil {
		s.timer.Stop()
	}
}

// slice is what statistics are grouped by within a minute.
type slice struct{ queue, kind string }

// sumDoc is one element of a minute's document.
type sumDoc struct {
	store.Stat
	Waited, Ran []byte
}

type group struct {
	head
	store.ErrorGroup
}

const statPrefix, errorPrefix = "s|", "e|"

func statKey(minute int64, name string) string {
	return fmt.Sprintf("%s%012d|%s", statPrefix, minute, name)
}

// account adds ended attempts to the statistics and to the groups of errors.
func (s *Store) account(ctx context.Context, ends []*rules.End) error {
	if len(ends) == 0 {
		return nil
	}
	s.sums.mu.Lock()
	for _, e := range ends {
		at, of := e.Attempt.EndedAt.Unix()/60, slice{e.Task.Queue, e.Task.Kind}
		m := s.sums.minutes[at]
		if m == nil {
			m = &minute{key: statKey(at, nonce()), of: map[slice]*store.Stat{}}
			s.sums.minutes[at] = m
		}
		if m.of[of] == nil {
			m.of[of] = &store.Stat{At: time.Unix(at*60, 0).UTC(), Queue: of.queue, Kind: of.kind}
		}
		rules.Count(m.of[of], e.Outcome, e.Attempt.Outcome, e.Waited)
		m.changed = true
	}
	s.later()
	s.sums.mu.Unlock()
	return s.blame(ctx, slices.DeleteFunc(ends, func(e *rules.End) bool { return e.Outcome.Error == "" }))
}

// writeSums writes the minutes that have changed. If several callers call it at once, one writes for all.
func (s *Store) writeSums(ctx context.Context) error {
	s.sums.writing.Lock()
	defer s.sums.writing.Unlock()
	s.sums.mu.Lock()
	texts := map[*minute][]sumDoc{}
	for _, m := range s.sums.minutes {
		if !m.changed {
			continue
		}
		m.changed = false
		for _, stat := range m.of {
			texts[m] = append(texts[m], sumDoc{*stat, stat.Waited.Encode(), stat.Ran.Encode()})
		}
	}
	if s.sums.timer != nil {
		s.sums.timer.Stop()
		s.sums.timer = nil
	}
	s.sums.mu.Unlock()
	for m, lines := range texts {
		err := s.again(ctx, func() error {
			_, err := s.meta.Upsert(m.key, lines, &gocb.UpsertOptions{Context: ctx})
			return err
		})
		if err != nil {
			s.sums.mu.Lock()
			for m := range texts {
				m.changed = true
			}
			s.later()
			s.sums.mu.Unlock()
			return err
		}
	}
	s.sums.forget()
	return nil
}

// forget drops old minutes that are written. If an attempt of such a minute is counted later, the minute gets another
// document.
func (s *sums) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := int64(0)
	for at := range s.minutes {
		latest = max(latest, at)
	}
	maps.DeleteFunc(s.minutes, func(at int64, m *minute) bool { return at < latest-keptMinutes && !m.changed })
}

func groupRef(queue, kind, fingerprint string) ref {
	return ref{inMeta, errorPrefix + named(queue, kind, fingerprint)}
}

// blame counts failed attempts in their groups of errors.
func (s *Store) blame(ctx context.Context, failed []*rules.End) error {
	of := func(i int) ref {
		e := failed[i]
		return groupRef(e.Task.Queue, e.Task.Kind, e.Outcome.Fingerprint)
	}
	groups := grouped(len(failed), of)
	return each(len(groups), func(at int) error {
		return s.alter(ctx, of(groups[at][0]), func(d *doc) bool {
			g := &d.body.(*group).ErrorGroup
			for _, i := range groups[at] {
				e := failed[i]
				g.Queue, g.Kind, g.Fingerprint = e.Task.Queue, e.Task.Kind, e.Outcome.Fingerprint
				rules.Blame(g, e)
			}
			return true
		})
	})
}

// Stats implements store.Reader.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) (_ []store.Stat, err error) {
	defer says(&err, "stats")
	if err := s.writeSums(ctx); err != nil {
		return nil, err
	}
	all, from, until := store.NewSums(f), statKey(max(f.From.Unix(), 0)/60, ""), statPrefix+"~"
	if !f.Until.IsZero() {
		until = statKey(f.Until.Unix()/60+1, "")
	}
	err = s.between(ctx, from, until, func(_ string, m json.RawMessage) error {
		var lines []sumDoc
		if err := json.Unmarshal(m, &lines); err != nil {
			return err
		}
		for _, l := range lines {
			if err := errors.Join(l.Stat.Waited.Decode(l.Waited), l.Stat.Ran.Decode(l.Ran)); err != nil {
				return err
			}
			all.Add(&l.Stat)
		}
		return nil
	})
	return all.Stats(), err
}

// Errors implements store.Reader.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) (_ []store.ErrorGroup, err error) {
	defer says(&err, "errors")
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	groups = f.Page(groups)
	return groups, s.countFailed(ctx, groups)
}

// groups reads all groups of errors, without the numbers of tasks.
func (s *Store) groups(ctx context.Context) (groups []store.ErrorGroup, err error) {
	err = s.between(ctx, errorPrefix, errorPrefix+"~", func(_ string, m json.RawMessage) error {
		var g group
		if err := json.Unmarshal(m, &g); err != nil {
			return err
		}
		groups = append(groups, g.ErrorGroup)
		return nil
	})
	return groups, err
}

// countFailed counts the tasks that wait for a retry, or are discarded, because of the errors.
func (s *Store) countFailed(ctx context.Context, groups []store.ErrorGroup) error {
	type failed struct {
		Fingerprint string `json:"fp"`
		State       string `json:"st"`
		Queue       string `json:"q"`
		Kind        string `json:"k"`
		N           int64  `json:"n"`
	}
	fingerprints := make([]string, len(groups))
	for i := range groups {
		fingerprints[i] = groups[i].Fingerprint
	}
	rows, err := query[failed](ctx, s, queryFailed, args{"fp": fingerprints})
	for _, n := range rows {
		for i := range groups {
			g := &groups[i]
			if g.Fingerprint != n.Fingerprint || g.Queue != n.Queue || g.Kind != n.Kind {
				continue
			}
			if n.State == "y" {
				g.Waiting = n.N
			} else {
				g.Dead = n.N
			}
		}
	}
	return err
}
