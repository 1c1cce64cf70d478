package sqlite

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// old describes finished tasks that need no longer be kept.
type old struct {
	kind  int64
	state store.State
	until int64
}

// Prune implements store.Keeper. It finds old tasks by reading alone, and deletes them in transactions of limited
// size.
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
	for err == nil && rest {
		s.seen.prune()
		err = s.lead(ctx, term, func(w *work) (err error) {
			rest, err = w.pruneRest(keep)
			return err
		})
		s.seen.prune()
	}
	deleted := 0
	for _, o := range olds {
		for n := chunk; err == nil && n == chunk && deleted < limit; {
			err = s.lead(ctx, term, func(w *work) (err error) {
				n, err = w.pruneOld(o, min(chunk, limit-deleted))
				return err
			})
			if err == nil {
				deleted += n
			}
		}
	}
	return deleted, wrap("prune", err)
}

// findOld checks in the index of finished tasks, for each kind and outcome, whether the first task is old.
func findOld(ctx context.Context, c session, keep store.Retention, now int64) ([]old, error) {
	var all []old
	err := c.each(ctx, "prune.kinds", func(r row) error {
		for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
			if kept := keep.Of(r.text(1), state); kept > 0 {
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
func (w *work) pruneOld(o old, limit int) (int, error) {
	plain, err := w.run("prune.plain", o.kind, o.state, o.until, limit)
	if err != nil || int(plain) == limit {
		return int(plain), err
	}
	ids, err := w.ids("prune.tasks", o.kind, o.state, o.until, limit-int(plain))
	if err != nil || len(ids) == 0 {
		return int(plain), err
	}
	return int(plain) + len(ids), w.decide(func(b *rules.Batch) error { return b.Delete(ids) })
}

// statsUntil returns the last minute of statistics to delete.
func statsUntil(keep store.Retention, now int64) int64 {
	if keep.Stats <= 0 {
		return -1 << 62
	}
	return after(now, -keep.Stats-time.Minute)
}

// rowsAtOnce is how many rows of statistics, or of the history for followers, are deleted in one transaction.
const rowsAtOnce = 10 * chunk

// pruneRest deletes old statistics and groups of errors, workers that died long ago, and unused turns and lanes. It
// reports whether it has left old statistics or groups for another transaction.
func (w *work) pruneRest(keep store.Retention) (more bool, err error) {
	w.forgetStands()
	for _, step := range []struct {
		name string
		args []any
	}{
		{"prune.stats", []any{statsUntil(keep, w.now), rowsAtOnce}},
		{"prune.errors", []any{statsUntil(keep, w.now), rowsAtOnce}},
		{"prune.workers", []any{after(w.now, -forgetAfter)}},
		{"turn.empty", nil},
		{"prune.turns", nil},
		{"prune.lanes", nil},
	} {
		deleted, err := w.run(step.name, step.args...)
		if err != nil {
			return false, err
		}
		more = more || deleted == rowsAtOnce
	}
	return more, nil
}
