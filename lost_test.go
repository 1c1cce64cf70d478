package tusk_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestAnAttemptThatCannotWaitFails(t *testing.T) {
	for name, c := range map[string]struct {
		end  error
		text string
	}{
		"a wait without children":               {tusk.Wait(), "spawned none"},
		"ErrLeaseLost though the lease is open": {tusk.ErrLeaseLost, tusk.ErrLeaseLost.Error()},
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			ran := 0
			tusk.HandleFunc(s.mux, func(context.Context, count) error { ran++; return c.end })
			_, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
			id := s.enqueue(count{}, &tusk.Options{MaxAttempts: 2})
			time.Sleep(10 * time.Minute)
			task := s.get(id)
			if task.State != tusk.StateDiscarded || ran != 2 {
				t.Fatalf("the task is %v after %d attempts", task.State, ran)
			}
			for _, a := range task.Detail.Attempts {
				if !strings.Contains(a.Error, c.text) {
					t.Errorf("attempt %d: %s", a.Number, a.Error)
				}
			}
			s.stop(stop)
		})
	}
}

// held is a store that holds back the answers of claims that found tasks, and fails heartbeats.
type held struct {
	store.Store
	deaf   atomic.Bool // heartbeats fail
	holds  atomic.Bool
	claims chan struct{} // receives a value when an answer is held back
	goOn   chan struct{}
}

func newHeld(s store.Store) *held {
	return &held{Store: s, claims: make(chan struct{}, 10), goOn: make(chan struct{})}
}

func (h *held) Unwrap() store.Store { return h.Store }

func (h *held) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	if h.deaf.Load() {
		return nil, errCut
	}
	return h.Store.Extend(ctx, b)
}

func (h *held) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	tasks, err := h.Store.Claim(ctx, r)
	if len(tasks) > 0 && h.holds.Load() {
		h.claims <- struct{}{}
		<-h.goOn
	}
	return tasks, err
}

// No heartbeat extends the leases of a claim that is answered after the worker has taken a new identity.
func TestAClaimThatIsAnsweredTooLateRunsNothing(t *testing.T) {
	inBubble(t, "of a worker", func(t *testing.T, s *shop) {
		h := newHeld(s.store)
		s.client = clientOf(t, h)
		var before tusk.ID
		tusk.Handle(s.mux, func(ctx context.Context, task *tusk.Task[count]) error {
			if task.Worker != before {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Error("a handler runs, and no heartbeat extends its lease")
			}
			return ctx.Err()
		})
		w, stop := s.work(&tusk.WorkerConfig{NeverLead: true})
		time.Sleep(2 * time.Second)
		h.deaf.Store(true)
		h.holds.Store(true)
		before = w.ID()
		id := s.enqueue(count{}, nil)
		<-h.claims
		for w.ID() == before {
			time.Sleep(time.Second)
		}
		h.deaf.Store(false)
		h.holds.Store(false)
		close(h.goOn)
		if task := s.await(id, tusk.StateCompleted); task.Attempt != 1 {
			t.Errorf("not handed back: attempt %d", task.Attempt)
		}
		s.stop(stop)
	})
	inBubble(t, "of a puller", func(t *testing.T, s *shop) {
		h := newHeld(s.store)
		s.client = clientOf(t, h)
		p, end := s.pull()
		defer end()
		h.deaf.Store(true)
		h.holds.Store(true)
		id := s.enqueue(count{}, nil)
		got := make(chan []tusk.Lent, 1)
		go func() {
			lent, err := p.Claim(t.Context(), tusk.Pull{Queues: []string{tusk.DefaultQueue}})
			if err != nil {
				t.Error(err)
			}
			got <- lent
		}()
		<-h.claims
		time.Sleep(25 * time.Second) // by now the puller has a new identity
		h.deaf.Store(false)
		h.holds.Store(false)
		close(h.goOn)
		if lent := <-got; len(lent) > 0 {
			t.Errorf("lent %+v", lent)
		}
		time.Sleep(time.Second)
		if task := s.get(id); task.State != tusk.StateAvailable || task.Attempt != 0 {
			t.Errorf("not handed back: %v, attempt %d", task.State, task.Attempt)
		}
	})
}

func TestAQuietWorkerStaysQuietUnderANewIdentity(t *testing.T) {
	for name, others := range map[string]bool{"until it is woken": false, "also if others forget the old one": true} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			reached, cut := s.client, &cut{Store: s.store}
			tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
			s.client = clientOf(t, cut)
			w, stop := s.work(nil)
			s.client = reached
			time.Sleep(2 * time.Second)
			before := w.ID()
			if err := s.client.QuietWorker(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			cut.off.Store(true)
			for w.ID() == before {
				time.Sleep(time.Second)
			}
			if others { // a worker that has ended is dropped from the settings when they change
				time.Sleep(time.Minute)
				other, stop := s.work(nil)
				time.Sleep(2 * time.Second)
				if err := s.client.QuietWorker(t.Context(), other.ID()); err != nil {
					t.Fatal(err)
				}
				s.stop(stop)
			}
			cut.off.Store(false)
			id := s.enqueue(count{}, nil)
			time.Sleep(time.Minute)
			if task := s.get(id); task.State != tusk.StateAvailable {
				t.Errorf("the task is %v", task.State)
			}
			workers, err := s.client.Workers(t.Context())
			if err != nil || len(workers) != 1 || workers[0].ID != w.ID() {
				t.Fatalf("%+v, %v", workers, err)
			}
			if _, listed, err := s.client.QueuesAndWorkers(t.Context()); err != nil || !listed[0].Quiet {
				t.Errorf("%+v, %v", listed, err)
			}
			if err := s.client.WakeWorker(t.Context(), w.ID()); err != nil {
				t.Error(err)
			}
			s.await(id, tusk.StateCompleted)
			s.stop(stop)
		})
	}
}

// cutAnswer stores outcomes, and the answers of the first calls are lost.
type cutAnswer struct {
	store.Store
	left atomic.Int64
}

func (c *cutAnswer) Unwrap() store.Store { return c.Store }

func (c *cutAnswer) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	lost, err := c.Store.Finish(ctx, outcomes)
	if c.left.Add(-1) >= 0 {
		return nil, errCut
	}
	return lost, err
}

func TestAnOutcomeWhoseAnswerWasLostIsNotRefused(t *testing.T) {
	for _, forget := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("ephemeral: %v", forget), func(t *testing.T, s *shop) {
			cut := &cutAnswer{Store: s.store}
			cut.left.Store(1)
			var log bytes.Buffer
			config := &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			var err error
			if s.client, err = tusk.NewClient(cut, config); err != nil {
				t.Fatal(err)
			}
			tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
			w, stop := s.work(&tusk.WorkerConfig{Concurrency: 1})
			events, unsubscribe := w.Subscribe(tusk.EventCompleted, tusk.EventLost)
			defer unsubscribe()
			s.enqueue(count{}, &tusk.Options{Ephemeral: forget})
			if e := <-events; e.Kind != tusk.EventCompleted {
				t.Errorf("the event is %v", e.Kind)
			}
			s.stop(stop)
			if strings.Contains(log.String(), "refused") {
				t.Error(log.String())
			}
		})
	}
}
