package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// doomPart is how many tasks one transaction cancels because a task that they need has failed.
const doomPart = 500

// Admit implements store.Keeper. It works in rounds, because cancelled tasks may doom others in turn.
func (s *Store) Admit(ctx context.Context, term int64, limit int) (done store.Admitted, err error) {
	done.Next = -1
	for before := -1; before < done.Cancelled && done.Cancelled < limit && done.Count < limit; {
		before = done.Cancelled
		if err = s.admitOnce(ctx, term, limit, &done); err != nil {
			done.Next = -1 // it may be outdated
			return done, fmt.Errorf("admit: %w", err)
		}
	}
	return done, nil
}

// admitOnce admits due tasks, settles doubts, and cancels the tasks that turn out to be doomed.
func (s *Store) admitOnce(ctx context.Context, term int64, limit int, done *store.Admitted) error {
	a := admission{s: s, term: term, limit: limit, done: done}
	if err := a.admit(ctx); err != nil {
		return err
	}
	if err := a.resolve(ctx); err != nil {
		return err
	}
	for part := range slices.Chunk(a.doomed[:min(len(a.doomed), limit-done.Cancelled)], doomPart) {
		n, err := s.doom(ctx, term, part)
		if done.Cancelled += n; err != nil {
			return err
		}
	}
	return nil
}

// admission is one round of Admit.
type admission struct {
	s      *Store
	term   int64
	limit  int
	done   *store.Admitted
	lined  bool    // tasks that run in turns are due
	doubts []int64 // the next doubts to settle
	doomed []store.ID
}

// admit makes due tasks available. If some are known to be due, it takes one round trip. Otherwise, its first trip only
// checks whether any are. Tasks that run in turns are admitted by a separate statement.
func (a *admission) admit(ctx context.Context) error {
	due := a.s.dueAt.Load()
	plain := due != 0 && due <= time.Now().UnixNano()
	if err := a.trip(ctx, plain, false); err != nil {
		return err
	}
	if plain && a.done.Next == 0 && a.done.Count < a.limit {
		a.lined = true // others hold the tasks that are still due, and tasks that run in turns may be behind them
	}
	if plain = !plain && a.done.Next == 0; plain || a.lined {
		if err := a.trip(ctx, plain, a.lined); err != nil {
			return err
		}
	}
	a.s.dueAt.Store(0)
	if a.done.Next >= 0 {
		a.s.dueAt.Store(time.Now().Add(a.done.Next).UnixNano())
	}
	return nil
}

// trip admits tasks that run in turns (lined), other tasks (plain), both or none, and reads when the next task is
// due.
func (a *admission) trip(ctx context.Context, plain, lined bool) error {
	s, leads := a.s, false
	var queues []string
	var few [][]store.ID
	into := func(raw [][]byte) error {
		a.done.Count += int(int32Of(raw[0]))
		queues, few = append(queues, textsOf(raw[1])...), append(few, idsOf(raw[2]))
		return nil
	}
	var steps []step
	if plain {
		steps = append(steps, s.do("admit", a.term, a.limit-a.done.Count).into(into))
	}
	if lined {
		steps = append(steps, s.do("admit_lined", a.term, a.limit-a.done.Count).into(into))
	}
	next := s.do("admit_next", a.term, a.limit, s.doubtHand.Load()).into(func(raw [][]byte) error {
		leads, a.lined, a.doubts = raw[0][0] != 0, raw[2][0] != 0, nil
		if a.done.Next = -1; raw[1] != nil {
			a.done.Next = time.Duration(int64Of(raw[1])) * time.Microsecond
		}
		for doubts := arrayOf(raw[3]); doubts.n > 0; doubts.n-- {
			a.doubts = append(a.doubts, int64Of(doubts.next()))
		}
		return nil
	})
	err := s.read(ctx, s.pinned(append(steps, next)...))
	if err == nil && !leads {
		err = store.ErrNotLeader
	}
	if len(few) == 1 {
		s.present(queues, few[0])
	} else {
		s.present(queues, nil)
	}
	a.told(queues)
	return err
}

// told records which queues received tasks.
func (a *admission) told(queues []string) {
	for _, queue := range queues {
		if !slices.Contains(a.done.Queues, queue) {
			a.done.Queues = append(a.done.Queues, queue)
		}
	}
}

// resolveFor is how long one call settles doubts. The next call continues after them.
const resolveFor = time.Second

// resolve settles doubts, and finds out which pending tasks must be cancelled because a parent has failed.
func (a *admission) resolve(ctx context.Context) error {
	s := a.s
	for began := time.Now(); len(a.doubts) > 0 && len(a.doomed) < a.limit; {
		some, last := a.doubts, a.doubts[len(a.doubts)-1]
		a.doubts = nil
		var queues []string
		err := s.write(ctx, s.pinned(s.do("hold_lead", a.term), s.do("settle", some).into(func(raw [][]byte) error {
			queues = append(queues, string(raw[0]))
			return nil
		}), s.do("forget_doubts", some), s.do("doomed", some).into(func(raw [][]byte) error {
			a.doomed = append(a.doomed, idOf(raw[0]))
			return nil
		}), s.do("doubts_after", last).into(func(raw [][]byte) error {
			a.doubts = append(a.doubts, int64Of(raw[0]))
			return nil
		})))
		if err != nil {
			return err
		}
		s.present(queues, nil)
		a.told(queues)
		s.doubtHand.Store(last)
		if time.Since(began) > s.resolveFor {
			break
		}
	}
	if len(a.doubts) == 0 {
		s.doubtHand.Store(0)
	}
	return nil
}

// doom lets the rules cancel tasks that need failed tasks. If another transaction holds one of them, doom tries each
// half. It leaves a single held task for a later call.
func (s *Store) doom(ctx context.Context, term int64, ids []store.ID) (cancelled int, err error) {
	did := 0
	_, err = s.decide(ctx, ids, func(b *rules.Batch) (err error) {
		did, err = b.Doom(ids)
		return err
	}, "lock_doomed", term, uuidsOf(ids))
	switch {
	case err == nil:
		return did, nil
	case !isBusy(err) || ctx.Err() != nil:
		return 0, err
	case len(ids) == 1:
		return 0, nil
	}
	for _, half := range [][]store.ID{ids[:len(ids)/2], ids[len(ids)/2:]} {
		n, err := s.doom(ctx, term, half)
		if err != nil {
			return cancelled, err
		}
		cancelled += n
	}
	return cancelled, nil
}
