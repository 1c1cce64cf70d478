package ledgers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Lead implements store.Keeper. Home elects the leader and the other ledgers adopt the term. So a term is one number
// everywhere, and each chore is fenced in the ledger that it writes to. While home is away, its disk is full, or it is
// a copy that was not rebased, the leader keeps its term and nobody else is elected.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return store.Leadership{}, fmt.Errorf("lead: %w", err)
	}
	home, others := all[0], all[1:]
	l, err := leadAt(ctx, home, c)
	if err == nil {
		s.homeless.Store(false)
	}
	switch {
	case isHomeless(err) && c.Term != 0 && len(others) > 0:
		l, err = s.leadAway(ctx, others, c, err)
		s.homeless.Store(l.Term != 0)
		return l, err
	case err != nil:
		return l, err
	case c.TTL > 0:
		c.Term = l.Term
	}
	if c.Term == 0 {
		return l, nil
	}
	if highest, _ := s.adopt(ctx, others, c); highest != 0 {
		return s.leadAbove(ctx, home, others, c, highest)
	}
	return l, nil
}

// isHomeless reports whether home cannot elect a leader, for a reason that does not affect the other ledgers.
func isHomeless(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrMoved)
}

func leadAt(ctx context.Context, l *ledger, c store.Candidate) (store.Leadership, error) {
	return ask(ctx, l, func(ctx context.Context, e *postgres.Store) (store.Leadership, error) {
		return e.Lead(ctx, c)
	})
}

// leadAbove handles a term from home that is lower than one that another ledger knows. Either the term has ended
// meanwhile, or home lost terms in a failover and has to continue above the highest one. Home decides, so that no two
// processes get the same term.
func (s *Store) leadAbove(
	ctx context.Context, home *ledger, others []*ledger, c store.Candidate, highest int64,
) (store.Leadership, error) {
	l, err := leadAt(ctx, home, c)
	if err != nil || l.Term == 0 || l.Term > highest {
		return store.Leadership{Now: l.Now}, err
	}
	c.Term = highest + 1
	higher, err := s.adopt(ctx, []*ledger{home}, c)
	if err == nil && higher == 0 {
		higher, err = s.adopt(ctx, others, c)
	}
	if err != nil || higher != 0 {
		return store.Leadership{Now: l.Now}, err
	}
	return store.Leadership{Term: c.Term, Now: l.Now}, nil
}

// adopt makes ledgers adopt a term, or give it up. It returns the highest term that prevents this, or 0. Ledgers that
// are away adopt the term when they are back.
func (s *Store) adopt(ctx context.Context, all []*ledger, c store.Candidate) (highest int64, err error) {
	answers, errs := s.adoptions(ctx, all, c)
	for i, a := range answers {
		switch {
		case errs[i] != nil && !errors.Is(errs[i], store.ErrUnavailable):
			err = errors.Join(err, errs[i])
		case errs[i] == nil && !a.Held && c.TTL > 0:
			highest = max(highest, a.Term)
		}
	}
	return highest, err
}

func (s *Store) adoptions(ctx context.Context, all []*ledger, c store.Candidate) ([]postgres.Adopted, []error) {
	return together(ctx, s, all, func(ctx context.Context, _ []int, on []*postgres.Store) ([]postgres.Adopted, error) {
		return postgres.AdoptAll(ctx, on, c)
	})
}

func (s *Store) leadAway(
	ctx context.Context, others []*ledger, c store.Candidate, why error,
) (store.Leadership, error) {
	answers, errs := s.adoptions(ctx, others, c)
	var l store.Leadership
	for i, a := range answers {
		if errs[i] == nil && !a.Held && c.TTL > 0 {
			return store.Leadership{Now: a.Now}, nil // another process was elected
		}
		if errs[i] == nil {
			l = store.Leadership{Term: c.Term, Now: a.Now}
		}
	}
	if l.Now.IsZero() {
		return l, why
	}
	if c.TTL <= 0 {
		l.Term = 0
	}
	return l, nil
}

// chore runs do for one ledger after the other, with the rest of the limit. A ledger that is away or full does not hold
// up the others. Ledgers that are away cause no error while others answer.
func (s *Store) chore(
	ctx context.Context, limit int, do func(ctx context.Context, l *ledger, limit int) (done int, err error),
) error {
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	var away, failed error
	answered := false
	for _, l := range all {
		if limit <= 0 {
			break
		}
		done, err := do(ctx, l, limit)
		switch {
		case err == nil:
			answered = true
		case ctx.Err() != nil || !store.IsForAll(err):
			return err
		case errors.Is(err, store.ErrUnavailable):
			away = errors.Join(away, err)
		default:
			failed = errors.Join(failed, err)
		}
		limit -= done
	}
	if failed != nil || answered {
		return failed
	}
	return away
}

// Admit implements store.Keeper. It first tells ledgers the states of the tasks that they need in other ledgers, and
// does so again if it has cancelled tasks that others may need.
func (s *Store) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return store.Admitted{Next: -1}, err
	}
	_, away := s.lookAcross(ctx, all, false)
	sum, err := s.admit(ctx, term, limit)
	for err == nil && sum.Cancelled > 0 && sum.Cancelled < limit {
		var news int
		if news, away = s.lookAcross(ctx, all, true); news == 0 {
			break
		}
		more, failed := s.admit(ctx, term, limit-sum.Cancelled)
		sum.Count, sum.Cancelled, sum.Next, err = sum.Count+more.Count, sum.Cancelled+more.Cancelled, more.Next, failed
		sum.Queues = append(sum.Queues, more.Queues...)
		slices.Sort(sum.Queues)
		sum.Queues = slices.Compact(sum.Queues)
		if more.Cancelled == 0 {
			break
		}
	}
	if err == nil && !errors.Is(away, store.ErrUnavailable) {
		err = away
	}
	return sum, err
}

func (s *Store) admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return store.Admitted{Next: -1}, err
	}
	idle := s.idle(ctx, all, term)
	sum := store.Admitted{Next: -1}
	err = s.chore(ctx, limit, func(ctx context.Context, l *ledger, limit int) (int, error) {
		if next, nothing := admitsNothing(idle, l.no); nothing {
			if next >= 0 && (sum.Next < 0 || next < sum.Next) {
				sum.Next = next
			}
			return 0, nil
		}
		did, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) (store.Admitted, error) {
			return e.Admit(ctx, term, limit)
		})
		if err != nil {
			return 0, err
		}
		s.turns.heat(l.no, len(did.Queues) > 0)
		sum.Count, sum.Cancelled = sum.Count+did.Count, sum.Cancelled+did.Cancelled
		for _, q := range did.Queues {
			if !slices.Contains(sum.Queues, q) {
				sum.Queues = append(sum.Queues, q)
			}
		}
		if did.Next >= 0 && (sum.Next < 0 || did.Next < sum.Next) {
			sum.Next = did.Next
		}
		return did.Count, nil
	})
	if err == nil && sum.Count >= limit && limit > 0 {
		sum.Next = 0 // the remaining ledgers may have more
	}
	return sum, err
}

// Rescue implements store.Keeper. It asks the other ledgers even if one has returned as many tasks as the limit allows,
// because each has to declare the workers dead.
func (s *Store) Rescue(ctx context.Context, term int64, limit int) (tasks []store.Task, err error) {
	err = s.chore(ctx, math.MaxInt, func(ctx context.Context, l *ledger, _ int) (int, error) {
		got, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return e.Rescue(ctx, term, limit-len(tasks))
		})
		mark(got, l.no)
		tasks = append(tasks, got...)
		return len(got), err
	})
	if err != nil && (len(tasks) == 0 || ctx.Err() != nil || !store.IsForAll(err)) {
		return nil, err // otherwise a later call returns the error
	}
	return tasks, nil
}

// Prune implements store.Keeper. It deletes nothing until every ledger knows the ends of the tasks that it needs in
// other ledgers.
func (s *Store) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (deleted int, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return 0, err
	}
	switch ready, err := s.mayForget(ctx, all, keep); {
	case err != nil:
		return 0, fmt.Errorf("prune: %w", err)
	case !ready:
		return 0, nil
	}
	err = s.chore(ctx, limit, func(ctx context.Context, l *ledger, limit int) (int, error) {
		n, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) (int, error) {
			return e.Prune(ctx, term, keep, limit)
		})
		deleted += n
		return n, err
	})
	return deleted, err
}

var _ store.Maintainer = (*Store)(nil)

// Maintain implements store.Maintainer. A quiet ledger is maintained in one round out of three.
func (s *Store) Maintain(ctx context.Context, term int64) error {
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	inTurn(all, func(i int, l *ledger) {
		if s.turns.maySkip(l.no) {
			return
		}
		_, errs[i] = ask(ctx, l, func(ctx context.Context, e *postgres.Store) (struct{}, error) {
			return struct{}{}, e.Maintain(ctx, term)
		})
	})
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, errAway) })...)
}
