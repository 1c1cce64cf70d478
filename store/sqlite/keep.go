package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// chunk is how many tasks a chore changes in one transaction, so that it does not delay other writers.
const chunk = 500

// forgetAfter is how long a dead worker is remembered, so that a worker that was only suspended is told when it
// wakes up.
const forgetAfter = 24 * time.Hour

// Lead implements store.Keeper. If a process gives up another's term, it gets the time, and nothing is written.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	if c.TTL <= 0 {
		now, holder, err := s.leader(ctx)
		if err != nil || holder != c.ID {
			return store.Leadership{Now: now}, wrap("lead", err)
		}
	}
	var answer store.Leadership
	err := s.write(ctx, c.TTL <= 0 || c.Term == 0, func(w *work) error {
		answer = store.Leadership{Now: w.time()}
		r, err := w.one("leader.find")
		if err != nil {
			return err
		}
		holder, term, expires := r.id(0), r.int(1), r.int(2)
		mine := holder == c.ID
		switch {
		case c.TTL <= 0:
			if mine {
				_, err = w.run("leader.write", []byte{}, term, w.now)
			}
			return err
		case mine:
		case holder.IsZero() || w.now >= expires:
			term++
		default:
			return nil
		}
		answer.Term = term
		_, err = w.run("leader.write", c.ID, term, after(w.now, c.TTL))
		return err
	})
	return answer, wrap("lead", err)
}

// leader reads the time and the holder of the term, which may be over.
func (s *Store) leader(ctx context.Context) (now time.Time, holder store.ID, err error) {
	err = s.read(ctx, func(ctx context.Context, c session) error {
		r, err := one(ctx, c, "clock.read")
		if err != nil {
			return err
		}
		if r == nil {
			return store.ErrSchemaMissing
		}
		s.clock.meet(r.int(0))
		if r, err = one(ctx, c, "leader.find"); err == nil {
			now, holder = at(s.clock.now()), r.id(0)
		}
		return err
	})
	return now, holder, err
}

// leads fails unless term is the current term.
func leads(ctx context.Context, c session, term, now int64) error {
	r, err := one(ctx, c, "leader.find")
	if err != nil {
		return err
	}
	if r.id(0).IsZero() || r.int(1) != term || now >= r.int(2) {
		return store.ErrNotLeader
	}
	return nil
}

// lead runs fn in a durable transaction, if term is the current term.
func (s *Store) lead(ctx context.Context, term int64, fn func(*work) error) error {
	return s.write(ctx, true, during(term, fn))
}

// during wraps fn so that it fails unless term is the current term.
func during(term int64, fn func(*work) error) func(*work) error {
	return func(w *work) error {
		if err := leads(w.ctx, w.session, term, w.now); err != nil {
			return err
		}
		return fn(w)
	}
}

// Admit implements store.Keeper.
func (s *Store) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	done := store.Admitted{Next: -1}
	var doomed bool
	err := s.read(ctx, func(ctx context.Context, c session) (err error) {
		now := s.clock.now()
		if err := leads(ctx, c, term, now); err != nil {
			return err
		}
		if doomed, err = anyDoomed(ctx, c); err != nil {
			return err
		}
		done.Next, err = nextDue(ctx, c, now)
		return err
	})
	for err == nil && doomed && done.Cancelled < limit {
		var cancelled int
		cancelled, doomed, done.Next, err = s.cancelSome(ctx, term, min(chunk, limit-done.Cancelled))
		done.Cancelled += cancelled
	}
	for err == nil && done.Next == 0 && done.Count < limit {
		var admitted []*rules.Row
		admitted, done.Next, err = s.admitSome(ctx, term, min(chunk, limit-done.Count))
		done.Count += len(admitted)
		for _, r := range admitted {
			if !slices.Contains(done.Queues, r.Queue) {
				done.Queues = append(done.Queues, r.Queue)
			}
		}
	}
	return done, wrap("admit", err)
}

// cancelSome cancels tasks that can no longer run, in one transaction.
func (s *Store) cancelSome(
	ctx context.Context, term int64, limit int,
) (cancelled int, more bool, next time.Duration, err error) {
	err = s.lead(ctx, term, func(w *work) error {
		ids, err := w.ids("doubt.list", limit)
		if err != nil {
			return err
		}
		if _, err := w.run("doubt.drop", len(ids)); err != nil {
			return err
		}
		if err := w.decide(func(b *rules.Batch) (err error) { cancelled, err = b.Doom(ids); return err }); err != nil {
			return err
		}
		if more, err = anyDoomed(w.ctx, w.session); err != nil {
			return err
		}
		next, err = nextDue(w.ctx, w.session, w.now)
		return err
	})
	if err != nil {
		return 0, false, -1, err
	}
	return cancelled, more, next, nil
}

// anyDoomed reports whether there may be a task to cancel.
func anyDoomed(ctx context.Context, c session) (bool, error) {
	r, err := one(ctx, c, "doubt.any")
	return r != nil, err
}

// admitSome admits tasks whose run time has come, in one transaction, and returns those that became available.
func (s *Store) admitSome(
	ctx context.Context, term int64, limit int,
) (admitted []*rules.Row, next time.Duration, err error) {
	err = s.lead(ctx, term, func(w *work) error {
		due, err := w.ids("admit.due", w.now, limit)
		if err != nil {
			return err
		}
		if err := w.decide(func(b *rules.Batch) (err error) { admitted, err = b.Admit(due); return err }); err != nil {
			return err
		}
		next, err = nextDue(w.ctx, w.session, w.now)
		return err
	})
	if err != nil {
		return nil, -1, err
	}
	return admitted, next, nil
}

// ids reads the ids that a statement returns.
func (w *work) ids(name string, args ...any) (ids []store.ID, err error) {
	err = w.all(name, func(r row) error {
		ids = append(ids, r.id(0))
		return nil
	}, args...)
	return ids, err
}

// nextDue returns the time until the next waiting task is due, or -1 if none waits.
func nextDue(ctx context.Context, c session, now int64) (time.Duration, error) {
	r, err := one(ctx, c, "admit.next")
	if err != nil || r == nil {
		return -1, err
	}
	return time.Duration(max(r.int(0)-now, 0)) * time.Microsecond, nil
}

// Rescue implements store.Keeper.
func (s *Store) Rescue(ctx context.Context, term int64, limit int) (tasks []store.Task, err error) {
	died := false
	err = s.read(ctx, func(ctx context.Context, c session) error {
		now := s.clock.now()
		if err := leads(ctx, c, term, now); err != nil {
			return err
		}
		r, err := one(ctx, c, "rescue.late", now)
		if err != nil || r != nil {
			died = true
			return err
		}
		tasks, err = s.orphans(ctx, c, readNames(ctx, c, s), now, limit)
		return err
	})
	if err == nil && died {
		err = s.lead(ctx, term, func(w *work) error {
			if _, err := w.run("rescue.bury", w.now); err != nil {
				return err
			}
			tasks, err = s.orphans(w.ctx, w.session, w.names(), w.now, limit)
			return err
		})
	}
	return tasks, wrap("rescue", err)
}

// orphans returns the tasks that dead workers hold, followed by those that their live workers do not know about;
// tasks that were claimed first come first.
func (s *Store) orphans(
	ctx context.Context, c session, names func(int64) (name, error), now int64, limit int,
) ([]store.Task, error) {
	dead, err := readLeases(ctx, c, "rescue.leases")
	if err != nil {
		return nil, err
	}
	tasks, err := openIn(ctx, c, names, dead, limit)
	if left := s.strays.Load() - now; err != nil || len(tasks) >= limit || left > 0 && left <= straysEvery.Microseconds() {
		return tasks, err
	}
	strays, err := readLeases(ctx, c, "rescue.strays", now)
	if err != nil {
		return nil, err
	}
	if len(strays) == 0 {
		s.strays.Store(after(now, straysEvery))
	}
	unknown, err := openIn(ctx, c, names, strays, limit-len(tasks))
	for i := range unknown {
		unknown[i].Stray = true
	}
	return append(tasks, unknown...), err
}

// straysEvery is how often leases are compared with what their workers say they hold.
const straysEvery = 5 * time.Second

func readLeases(ctx context.Context, c session, query string, args ...any) (leases []*lease, err error) {
	err = c.each(ctx, query, func(r row) error {
		leases = append(leases, readLease(r))
		return nil
	}, args...)
	return leases, err
}

// openIn returns up to limit open tasks of leases.
func openIn(
	ctx context.Context, c session, names func(int64) (name, error), leases []*lease, limit int,
) (tasks []store.Task, err error) {
	for _, l := range leases {
		if err != nil || len(tasks) >= limit {
			break
		}
		err = openTasks(ctx, c, names, l, limit-len(tasks), &tasks)
	}
	return tasks, err
}
