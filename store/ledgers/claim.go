package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

const (
	coldEvery = time.Second // how often a claim begins with ledgers that are not hot
	atOnce    = 8           // one exchange in atOnce asks other ledgers first
	mostRests = 2           // how often in a row maintenance may skip a quiet ledger
)

// turns decides which ledgers a claim asks first. A ledger is hot if it may have tasks: the last claim there found as
// many as it asked for, or this process has heard of tasks since.
type turns struct {
	next atomic.Uint64
	hot  [Most]atomic.Bool
	told [Most]atomic.Bool // this process receives their notifications
	cold atomic.Int64      // when a claim last began with ledgers that are not hot
	some atomic.Uint64
	now  func() time.Time // nil means time.Now

	heard   [Most]atomic.Uint64 // how often this process has heard of tasks there
	stirred [Most]atomic.Bool   // tasks were seen there since the last maintenance
	rests   [Most]atomic.Int32  // how often maintenance has skipped it since
}

// listen sets whether this process receives notifications of a ledger.
func (t *turns) listen(no int, hears bool) { t.told[no].Store(hears) }

// heat marks a ledger as hot if hot is set.
func (t *turns) heat(no int, hot bool) {
	if hot {
		t.heard[no].Add(1)
		t.hot[no].Store(true)
		t.stirred[no].Store(true)
	}
}

// answered records whether a claim found tasks in a ledger. If this process has heard of tasks there since the claim
// began, the ledger stays hot.
func (t *turns) answered(no int, heard uint64, hot bool) {
	t.hot[no].Store(hot)
	if t.heard[no].Load() != heard {
		t.hot[no].Store(true)
	}
}

// maySkip reports whether maintenance may skip a ledger this time: this process would be notified of tasks there, has
// seen none since the last maintenance, and has not skipped the ledger too often.
func (t *turns) maySkip(no int) bool {
	if t.told[no].Load() && !t.stirred[no].Load() && t.rests[no].Add(1) <= mostRests {
		return true
	}
	t.stirred[no].Store(false)
	t.rests[no].Store(0)
	return false
}

// order returns the ledgers that a claim asks: first the hot ones in turn, then the others. Of those whose
// notifications this process receives, it includes only one, so that N idle processes do not ask N ledgers each. Now
// and then, ledgers that are not hot come first, because notifications can be lost. Ledgers that are being probed come
// last, because they may be silent.
func (t *turns) order(all []*ledger) []*ledger {
	first := int(t.next.Add(1) % uint64(len(all)))
	hot, cold, late, heard := make([]*ledger, 0, len(all)), []*ledger(nil), []*ledger(nil), false
	for k := range all {
		l := all[(first+k)%len(all)]
		switch {
		case l.probed():
			late = append(late, l)
		case t.hot[l.no].Load():
			hot = append(hot, l)
		case t.told[l.no].Load() && heard:
		default:
			heard = heard || t.told[l.no].Load()
			cold = append(cold, l)
		}
	}
	last, now := t.cold.Load(), t.clock().UnixNano()
	if time.Duration(now-last) > coldEvery && t.cold.CompareAndSwap(last, now) {
		return append(append(cold, hot...), late...)
	}
	return append(append(hot, cold...), late...)
}

func (t *turns) clock() time.Time {
	if t.now != nil {
		return t.now()
	}
	return time.Now()
}

// Claim implements store.Leaser. It takes all tasks that it can from one ledger before it asks the next, so the order
// is exact only within a ledger. Ledgers that fail are skipped. If such a ledger leased tasks nonetheless, they return
// to the queue as strays, because beats do not name the token there. A silent server does not hold up the claim
// (silent.go).
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if r.Again {
		return s.claim(ctx, r, all, false)
	}
	return s.claim(ctx, r, s.turns.order(all), true)
}

// claim asks the ledgers in order until it has enough tasks.
func (s *Store) claim(
	ctx context.Context, r store.ClaimRequest, order []*ledger, enough bool,
) (tasks []store.Task, err error) {
	c := claiming{s: s, r: r, enough: enough}
	var late []*request
	var silent []*ledger // ledgers that are skipped because of late calls
	for _, l := range order {
		at, _ := l.whereabouts()
		switch others := enough && at != nil && len(s.servers()) > 1; {
		case c.isOver():
		case others && at.debt.passOver(l, r.Queues):
			silent = append(silent, l)
		case others && l.prompt.Load():
			if one := c.askBriefly(ctx, l, at); one != nil {
				late = append(late, one)
			}
		default:
			c.ask(ctx, l, at)
		}
	}
	for ; len(late) > 0 && !c.told && !c.isOver(); late = late[1:] {
		c.await(late[0])
	}
	for _, l := range silent {
		if at, _ := l.whereabouts(); !c.told && !c.isOver() {
			c.ask(ctx, l, at)
		}
	}
	for _, one := range late {
		if c.fits(one) {
			c.await(one)
		} else {
			s.handBack(one)
		}
	}
	switch {
	case c.dead != nil && len(c.tasks) == 0:
		return nil, c.dead
	case c.answered: // the next beat reports a dead worker, too
		return c.tasks, nil
	}
	return nil, c.err
}

// claimed records the answer to a claim. heard is the value of turns.heard before the claim.
func (s *Store) claimed(l *ledger, r store.ClaimRequest, heard uint64, got []store.Task, err error) {
	switch {
	case errors.Is(err, errAway), errors.Is(err, store.ErrWorkerDead):
		return // nothing was leased
	case err != nil:
		s.leases.lose(r.Worker, r.Token, l.no)
		return
	}
	s.turns.answered(l.no, heard, len(got) >= r.Limit)
	if len(got) > 0 {
		s.turns.stirred[l.no].Store(true)
	}
	if len(got) > 0 || r.Again {
		s.leases.hold(r.Worker, r.Token, l.no, len(got) > 0)
	}
	mark(got, l.no)
}

// Exchange implements store.Exchanger. It claims from the ledger of the outcome. It also asks other ledgers if that one
// has no tasks, and regularly, so that tasks elsewhere do not wait too long.
func (s *Store) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) (x store.Exchanged) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return store.Exchanged{ClaimErr: err, FinishErr: err}
	}
	no, known := s.placeOfOutcome(&o)
	if !known || no >= len(all) || len(o.Then)+len(o.Needs) > 0 || s.leases.unmet(r.Worker, no) ||
		s.turns.some.Add(1)%atOnce == 0 {
		return s.apart(ctx, o, r) // Finish places the outcome's tasks
	}
	l := all[no]
	heard := s.turns.heard[no].Load()
	x, err = ask(ctx, l, func(within context.Context, e *postgres.Store) (store.Exchanged, error) {
		x := e.Exchange(within, o, r)
		x.ClaimErr, x.FinishErr = l.meant(ctx, within, x.ClaimErr), l.meant(ctx, within, x.FinishErr)
		return x, errors.Join(x.ClaimErr, x.FinishErr)
	})
	if errors.Is(err, errAway) {
		return s.apart(ctx, o, r)
	}
	s.claimed(l, r, heard, x.Tasks, x.ClaimErr)
	s.finished(ctx, all, []store.Outcome{o}, nil)
	if x.ClaimErr == nil && len(x.Tasks) == 0 && !r.Again {
		others := slices.DeleteFunc(s.turns.order(all), func(other *ledger) bool { return other == l })
		if len(others) > 0 {
			x.Tasks, x.ClaimErr = s.claim(ctx, r, others, true)
		}
	}
	return x
}

// apart runs the two halves of an exchange as concurrent calls.
func (s *Store) apart(ctx context.Context, o store.Outcome, r store.ClaimRequest) (x store.Exchanged) {
	var done sync.WaitGroup
	done.Go(func() {
		lost, err := s.Finish(ctx, []store.Outcome{o})
		x.Lost, x.FinishErr = len(lost) > 0, err
	})
	x.Tasks, x.ClaimErr = s.Claim(ctx, r)
	done.Wait()
	return x
}
