package couchbase

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// forgetAfter is how long a dead worker is remembered, so that one that was only suspended is told when it wakes up.
const forgetAfter = 24 * time.Hour

// Prune implements store.Keeper.
func (s *Store) Prune(ctx context.Context, term int64, given store.Retention, limit int) (deleted int, err error) {
	defer says(&err, "prune")
	keep := &given
	if err := s.leads(ctx, term); err != nil {
		return 0, err
	}
	if err := s.pruneStats(ctx, keep.Stats); err != nil {
		return 0, err
	}
	if err := s.pruneWorkers(ctx); err != nil {
		return 0, err
	}
	own := []string{} // JSON must not say null
	for queue := range keep.Queues {
		own = append(own, queue)
	}
	slices.Sort(own)
	others := *keep
	others.Queues = nil
	for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
		for i := -1; i < len(own); i++ {
			queue, statement, a := "", queryOld, args{"own": own}
			kept := others.Of("", state)
			if i >= 0 {
				queue, statement, a = own[i], queryOldOf, args{"q": own[i]}
				kept = keep.Of(queue, state)
			}
			if kept <= 0 || deleted == limit {
				continue
			}
			a["st"], a["at"], a["n"] = letters[state], s.now(ctx)-kept.Microseconds(), limit-deleted
			n, err := s.pruneOld(ctx, statement, a, keep)
			if deleted += n; err != nil {
				return deleted, err
			}
		}
	}
	return deleted, nil
}

// pruneOld deletes the tasks that a statement finds.
func (s *Store) pruneOld(ctx context.Context, statement string, a args, keep *store.Retention) (deleted int,
	err error) {
	var ids []string
	if err := query(ctx, s, statement, a, atPlus, func(id string) { ids = append(ids, id) }); err != nil {
		return 0, err
	}
	works, did := make([]*work, len(ids)), make([]bool, len(ids))
	err = each(len(ids), func(i int) error {
		w := &work{}
		works[i] = w
		return s.do(ctx, w, func(b *rules.Batch) error {
			d, err := w.load(ref{inTask, ids[i]})
			if did[i] = false; d == nil || err != nil {
				return err
			}
			t := d.task()
			kept := keep.Of(t.Queue, t.state())
			if !t.state().Finished() || kept <= 0 || t.Finished > s.now(ctx)-kept.Microseconds() {
				return nil // it has changed since the index saw it
			}
			did[i] = true
			return b.Delete([]store.ID{idOf(ids[i])})
		})
	})
	for i := range did {
		if did[i] {
			deleted++
		}
	}
	if err != nil {
		return deleted, err
	}
	return deleted, s.finishUp(ctx, works...)
}

func (s *Store) pruneStats(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	until := (s.now(ctx) - keep.Microseconds()) / time.Minute.Microseconds()
	s.sums.mu.Lock()
	for minute := range s.sums.minutes {
		if minute < until && !s.sums.changed[minute] {
			delete(s.sums.minutes, minute)
		}
	}
	s.sums.mu.Unlock()
	return s.between(ctx, statPrefix, statKey(until, ""), func(id string, _ json.RawMessage) error {
		done, err := s.meta.Remove(id, &gocb.RemoveOptions{Context: ctx})
		s.wrote(done)
		if errors.Is(err, gocb.ErrDocumentNotFound) {
			return nil
		}
		return err
	})
}

// pruneWorkers forgets dead workers that hold no lease.
func (s *Store) pruneWorkers(ctx context.Context) error {
	ids, err := s.listed(ctx, s.meta, directory)
	if err != nil {
		return err
	}
	for _, id := range ids {
		w, cas, err := s.readWorker(ctx, id)
		if err != nil {
			return err
		}
		if w != nil && (w.G != nil || len(w.Leases) > 0 || s.now(ctx)-w.Beat < forgetAfter.Microseconds()) {
			continue
		}
		if w != nil {
			_, err := s.meta.Remove(workerKey(id), &gocb.RemoveOptions{Context: ctx, Cas: cas})
			if err != nil && !errors.Is(err, gocb.ErrDocumentNotFound) {
				return err
			}
		}
		err = s.mutate(ctx, directory, 0, gocb.RemoveSpec("`"+id+"`", nil))
		if err != nil && !errors.Is(err, gocb.ErrPathNotFound) && !errors.Is(err, gocb.ErrDocumentNotFound) {
			return err
		}
	}
	return nil
}
