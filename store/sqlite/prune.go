package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// old names finished tasks that are kept no longer.
type old struct {
	kind  int64
	state store.State
	until int64
}

// Prune implements store.Keeper. It looks for what is old by reading alone, and
// deletes that in transactions of a bounded size.
func (s *Store) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (int, error) {
	var olds []old
	var rest bool
	err := s.read(ctx, func(ctx context.Context, c session) (err error) {
		now := s.clock.now()
		if err := leads(ctx, c, term, now); err != nil {
			return err
		}
		if olds, err = findOld(ctx, c, keep, now); err != nil {
			return err
		}
		r, err := one(ctx, c, "prune.any", statsUntil(keep, now), after(now, -forgetAfter))
		rest = r != nil
		return err
	})
	if err == nil && rest {
		err = s.write(ctx, true, func(w *work) error { return w.pruneRest(term, keep) })
	}
	deleted := 0
	for _, o := range olds {
		for n := chunk; err == nil && n == chunk && deleted < limit; {
			err = s.write(ctx, true, func(w *work) (err error) {
				n, err = w.pruneOld(term, o, min(chunk, limit-deleted))
				return err
			})
			if err == nil {
				deleted += n
			}
		}
	}
	return deleted, wrap("prune", err)
}

// findOld asks the index of finished tasks, for each kind and outcome, whether
// the first of them is old.
func findOld(ctx context.Context, c session, keep store.Retention, now int64) ([]old, error) {
	var all []old
	err := c.each(ctx, "prune.kinds", func(r row) error {
		own, ok := keep.Queues[r.text(1)]
		if !ok {
			own = keep
		}
		for state, kept := range map[store.State]time.Duration{
			store.Completed: own.Completed, store.Cancelled: own.Cancelled, store.Discarded: own.Discarded,
		} {
			if kept > 0 {
				all = append(all, old{r.int(0), state, after(now, -kept)})
			}
		}
		return nil
	})
	var olds []old
	for _, o := range all {
		if err != nil {
			break
		}
		var r row
		if r, err = one(ctx, c, "prune.first", o.kind, o.state, o.until); r != nil {
			olds = append(olds, o)
		}
	}
	return olds, err
}

// pruneOld deletes up to limit old tasks with their history.
func (w *work) pruneOld(term int64, o old, limit int) (int, error) {
	if err := leads(w.ctx, w.session, term, w.now); err != nil {
		return 0, err
	}
	var tasks []*stored
	names := w.names()
	err := w.all("prune.tasks", func(r row) error {
		of, err := names(o.kind)
		t := &stored{num: r.int(0), failure: r.int(4)}
		t.ID, t.Key, t.Queue, t.State = r.id(1), r.text(3), of.queue, o.state
		t.needs, t.needed, t.Tenant = r.int(5), !r.null(6), r.text(7)
		if err == nil && !r.null(2) {
			_ = json.Unmarshal(r.blob(2), &t.Tags) // of those that cannot be read, the index has none
		}
		tasks = append(tasks, t)
		return err
	}, o.kind, o.state, o.until, limit)
	for _, t := range tasks {
		if err == nil {
			err = w.forget(t)
		}
	}
	return len(tasks), err
}

// forget deletes a task with its history, and its key with the last task of it.
func (w *work) forget(t *stored) error {
	if err := w.take(t); err != nil {
		return err
	}
	if err := w.dropTags(t); err != nil {
		return err
	}
	for _, name := range []string{"forget.attempts", "forget.note", "forget.logs", "forget.task"} {
		if _, err := w.run(name, t.num); err != nil {
			return err
		}
	}
	if err := w.untie(t); err != nil || t.Key == "" {
		return err
	}
	k, err := w.key(nameOf(&t.Task))
	if err != nil || !k.stored {
		return err
	}
	switch t.ID {
	case k.awaiting:
		k.awaiting = store.ID{}
		return w.writeKey(k) // it was not counted yet
	case k.task:
		k.task = store.ID{}
	}
	k.tasks--
	return w.writeKey(k)
}

// untie forgets what a task needed, and tells those who need it that it is gone.
func (w *work) untie(t *stored) error {
	if t.needs > 0 {
		if _, err := w.run("need.drop", t.ID); err != nil {
			return err
		}
	}
	if t.needed {
		return w.tell(t.ID, 0)
	}
	return nil
}

// statsUntil returns the last minute of statistics to delete.
func statsUntil(keep store.Retention, now int64) int64 {
	if keep.Stats <= 0 {
		return -1 << 62
	}
	return after(now, -keep.Stats-time.Minute)
}

// pruneRest deletes old statistics, and forgets workers that are long dead and
// turns that nobody has and nobody waits for.
func (w *work) pruneRest(term int64, keep store.Retention) error {
	if err := leads(w.ctx, w.session, term, w.now); err != nil {
		return err
	}
	if _, err := w.run("prune.stats", statsUntil(keep, w.now)); err != nil {
		return err
	}
	if _, err := w.run("prune.turns"); err != nil {
		return err
	}
	_, err := w.run("prune.workers", after(w.now, -forgetAfter))
	return err
}
