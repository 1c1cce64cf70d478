package tusk_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// slowEnd holds up the ends of attempts.
type slowEnd struct {
	store.Store
	once           sync.Once
	begun, proceed chan struct{}
}

func (e *slowEnd) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	e.once.Do(func() { close(e.begun) })
	<-e.proceed
	return e.Store.Finish(ctx, outcomes)
}

func (e *slowEnd) Unwrap() store.Store { return e.Store }

func TestLoanIsNotExtendedWhileItIsTakenBack(t *testing.T) {
	inBubble(t, "the lease is lost", func(t *testing.T, s *shop) {
		slow := &slowEnd{Store: s.store, begun: make(chan struct{}), proceed: make(chan struct{})}
		s.client = clientOf(t, slow)
		p, end := s.pull()
		defer end()
		s.enqueue(count{}, nil)
		e := tusk.Extension{Receipt: lend(t, p, 1)[0], Lease: time.Second}
		p.Extend(t.Context(), e)
		<-slow.begun
		if got := p.Extend(t.Context(), e)[0]; !errors.Is(got.Err, tusk.ErrLeaseLost) {
			t.Errorf("%+v", got)
		}
		close(slow.proceed)
	})
}

func TestAPullerEndsThoughAWorkerExtendsItsLease(t *testing.T) {
	inBubble(t, "during the first hand-back", func(t *testing.T, s *shop) {
		slow := &slowEnd{Store: s.store, begun: make(chan struct{}), proceed: make(chan struct{})}
		s.client = clientOf(t, slow)
		p, end := s.pull()
		const many = tusk.MaxPull + 5 // a few are left for the second one
		for range many {
			s.enqueue(count{}, nil)
		}
		var extensions []tusk.Extension
		for len(extensions) < many {
			for _, r := range lend(t, p, min(many-len(extensions), tusk.MaxPull)) {
				extensions = append(extensions, tusk.Extension{Receipt: r, Lease: time.Hour})
			}
		}
		ended := make(chan struct{})
		go func() { end(); close(ended) }()
		<-slow.begun
		for _, e := range p.Extend(t.Context(), extensions...) {
			if !errors.Is(e.Err, tusk.ErrLeaseLost) {
				t.Fatalf("%+v", e)
			}
		}
		began := time.Now()
		close(slow.proceed)
		<-ended
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// holding holds one task for some time.
type holding struct {
	store.Store
	task  tusk.ID
	until time.Time
}

func (h *holding) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	var others []store.Outcome
	for _, o := range outcomes {
		if o.Task.ID != h.task || time.Now().After(h.until) {
			others = append(others, o)
		}
	}
	lost, err := h.Store.Finish(ctx, others)
	if err == nil && len(others) < len(outcomes) {
		err = &store.HeldError{Tasks: []store.ID{h.task}}
	}
	return lost, err
}

func (h *holding) Unwrap() store.Store { return h.Store }

func TestALeaseThatIsHeldHoldsUpNoOther(t *testing.T) {
	inBubble(t, "when leases run out, and at the end", func(t *testing.T, s *shop) {
		held := &holding{Store: s.store}
		s.client = clientOf(t, held)
		p, end := s.pull()
		other := s.enqueue(count{}, nil)
		held.task = s.enqueue(count{}, nil)
		held.until = time.Now().Add(time.Minute)
		all := lend(t, p, 2)
		time.Sleep(32 * time.Second)
		if p.Lent() != 1 || s.get(other).State != store.Retryable && s.get(other).State != store.Available {
			t.Errorf("%d are lent, the other is %v", p.Lent(), s.get(other).State)
		}
		for _, r := range all {
			e := p.Extend(t.Context(), tusk.Extension{Receipt: r, Lease: time.Hour})[0]
			if want := r.ID == held.task; (e.Err == nil) != want {
				t.Errorf("extended: %v", e.Err)
			}
		}
		for range 2*tusk.MaxPull - 1 {
			s.enqueue(count{}, nil)
		}
		for n := 1; n < 2*tusk.MaxPull; {
			n += len(lend(t, p, min(2*tusk.MaxPull-n, tusk.MaxPull)))
		}
		held.until = time.Now().Add(5 * time.Second)
		end()
		counts, err := s.store.Count(t.Context())
		for _, c := range counts {
			if c.State == store.Running {
				t.Errorf("%d are running, %v", c.Tasks, err)
			}
		}
	})
}
