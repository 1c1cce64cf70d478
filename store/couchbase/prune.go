package couchbase

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Prune implements store.Keeper. If one of its queries fails, it does what the others find.
func (s *Store) Prune(ctx context.Context, term int64, given store.Retention, limit int) (deleted int, err error) {
	defer says(&err, "prune")
	if err := s.leads(ctx, term); err != nil {
		return 0, err
	}
	errs := []error{s.pruneStats(ctx, given.Stats)}
	for _, c := range s.classes(ctx, &given) {
		if deleted == limit {
			break
		}
		n, err := s.pruneClass(ctx, &c, limit-deleted)
		deleted, errs = deleted+n, append(errs, err)
	}
	return deleted, errors.Join(errs...)
}

// pruneClass deletes tasks of a class, the earliest first.
func (s *Store) pruneClass(ctx context.Context, c *class, limit int) (deleted int, err error) {
	found, err := s.ended(ctx, c, 0, c.until, limit)
	if err != nil {
		return 0, err
	}
	ends, err := s.endings(ctx, found)
	if err != nil {
		return 0, err
	}
	deleted, _, err = s.deleteEnded(ctx, ends[:min(len(ends), limit)])
	return deleted, err
}

// class is a set of tasks with the same retention: those that ended in one state, in one queue or in all queues without
// a retention of their own.
type class struct {
	state store.State
	queue string   // empty for all queues except own
	own   []string // never nil, so that JSON never has null
	until int64    // tasks that ended by then are deleted
}

// classes returns, in order, the classes with limited retention.
func (s *Store) classes(ctx context.Context, keep *store.Retention) (all []class) {
	now, own := s.now(ctx), append([]string{}, slices.Sorted(maps.Keys(keep.Queues))...)
	for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
		for _, queue := range append([]string{""}, own...) {
			if kept := keep.Of(queue, state); kept > 0 {
				all = append(all, class{state, queue, own, now - kept.Microseconds()})
			}
		}
	}
	return all
}

// ended is a row of the index: a task, or a sheet whose tasks have ended, and when the last of them ended.
type ended struct {
	ID string `json:"id"`
	At int64  `json:"fin"`
}

// ended returns the documents of a class that ended after an instant and until another, the earliest first.
func (s *Store) ended(ctx context.Context, c *class, after, until int64, limit int) ([]ended, error) {
	statement, a := queryOldOf, args{"q": c.queue}
	if c.queue == "" {
		statement, a = queryOld, args{"own": c.own}
	}
	a["st"], a["after"], a["until"], a["n"] = letters[c.state], after, until, limit
	return query[ended](ctx, s, statement, a)
}

// endings returns the ends of tasks, including those of the tasks in sheets. It leaves out a sheet whose latest end
// differs from the one in the index: if some tasks of a sheet are deleted, the sheet moves in the index, and a batch
// would meet it twice.
func (s *Store) endings(ctx context.Context, found []ended) ([]rules.Ending, error) {
	of, err := collect(len(found), func(i int) (ends []rules.Ending, err error) {
		r, at := ref{inTask, found[i].ID}, found[i].At
		if !isSheet(r) {
			return []rules.Ending{{ID: idOf(r.ID), At: at}}, nil
		}
		d, err := s.peek(ctx, r)
		if d == nil || err != nil || d.sheetOf().Finished != at {
			return nil, err
		}
		for _, t := range d.tasks() {
			if t.task().state().Finished() {
				ends = append(ends, rules.Ending{ID: idOf(t.ID), At: t.task().Finished})
			}
		}
		return ends, nil
	})
	return slices.Concat(of...), err
}

// deleteEnded deletes each task that still has the given end, and the tasks of one sheet together. It returns how many
// it deleted, and the tasks that have come back since.
func (s *Store) deleteEnded(ctx context.Context, ends []rules.Ending) (deleted int, back []store.ID, err error) {
	groups, err := s.bySheet(ctx, len(ends), func(i int) store.ID { return ends[i].ID })
	if err != nil {
		return 0, nil, err
	}
	is, works := make([][]store.ID, len(groups)), make([]*work, len(groups))
	did, err := s.doEach(ctx, len(groups), func(i int, w *work) (_ bool, err error) {
		works[i] = w
		is[i], err = w.batch.Release(pick(ends, groups[i]))
		return true, err
	})
	for i, w := range works {
		if slices.Contains(did, w) {
			deleted += len(w.batch.Changes())
			back = append(back, is[i]...)
			continue
		}
		// The group was damaged and skipped.
		for _, e := range pick(ends, groups[i]) {
			back = append(back, e.ID)
		}
	}
	return deleted, back, err
}

func (s *Store) pruneStats(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	until := (s.now(ctx) - keep.Microseconds()) / time.Minute.Microseconds()
	ids, err := query[string](ctx, s, queryIDs, args{"after": statPrefix, "until": statKey(until, ""), "n": store.MaxPage})
	if err != nil {
		return err
	}
	err = each(len(ids), func(i int) error {
		_, err := s.remove(ctx, blank(ref{inMeta, ids[i]}))
		return err
	})
	return errors.Join(err, s.pruneErrors(ctx, keep))
}

// pruneErrorsEvery is how often old groups of errors are deleted.
const pruneErrorsEvery = time.Hour

// pruneErrors deletes the groups of errors that have not occurred for a time, if no task waits for a retry, or is
// discarded, because of them.
func (s *Store) pruneErrors(ctx context.Context, keep time.Duration) error {
	if at := s.forgot.Load(); at > 0 && time.Since(s.opened)-time.Duration(at) < pruneErrorsEvery {
		return nil
	}
	groups, err := s.groups(ctx)
	if err != nil {
		return err
	}
	until := instant(s.now(ctx)).Add(-keep)
	groups = slices.DeleteFunc(groups, func(g store.ErrorGroup) bool { return !g.Last.Before(until) })
	for some := range slices.Chunk(groups, store.MaxPage) {
		if err := s.countFailed(ctx, some); err != nil {
			return err
		}
	}
	groups = slices.DeleteFunc(groups, func(g store.ErrorGroup) bool { return g.Waiting+g.Dead > 0 })
	err = each(len(groups), func(i int) error {
		d, err := s.read(ctx, groupRef(groups[i].Queue, groups[i].Kind, groups[i].Fingerprint))
		if d == nil || err != nil || !d.body.(*group).Last.Before(until) {
			return err
		}
		_, err = s.remove(ctx, d)
		return err
	})
	if err == nil {
		s.forgot.Store(int64(time.Since(s.opened)))
	}
	return err
}
