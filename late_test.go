package tusk_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// lagging is a store behind a network that holds one request back: its sender gets an error,
// and the request arrives when deliver is called.
type lagging struct {
	store.Store
	exchanges bool // the engine has store.Exchanger

	mu      sync.Mutex
	armed   bool
	deliver func(ctx context.Context) []store.Task // nil if nothing is held back
}

func (l *lagging) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = true
}

// holdBack reports whether to hold a request back.
func (l *lagging) holdBack(deliver func(ctx context.Context) []store.Task) bool {
	if !l.armed {
		return false
	}
	l.armed, l.deliver = false, deliver
	return true
}

func (l *lagging) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	claim := func(ctx context.Context) []store.Task {
		tasks, _ := l.Store.Claim(ctx, r)
		return tasks
	}
	if !l.exchanges && l.holdBack(claim) {
		return nil, errCut
	}
	return l.Store.Claim(ctx, r)
}

// exchanger is a lagging store with exchanges.
type exchanger struct{ *lagging }

func (e exchanger) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) (x store.Exchanged) {
	e.mu.Lock()
	defer e.mu.Unlock()
	exchange := func(ctx context.Context) []store.Task {
		if lost, err := e.Store.Finish(ctx, []store.Outcome{o}); err != nil || len(lost) == 0 {
			panic("the outcome was accepted a second time")
		}
		tasks, _ := e.Store.Claim(ctx, r)
		return tasks
	}
	if e.holdBack(exchange) {
		return store.Exchanged{ClaimErr: errCut, FinishErr: errCut}
	}
	lost, err := e.Store.Finish(ctx, []store.Outcome{o})
	x.Lost, x.FinishErr = len(lost) > 0, err
	x.Tasks, x.ClaimErr = e.Store.Claim(ctx, r)
	return x
}

// arrive enqueues tasks, and delivers the request that was held back before anybody else can claim them.
func (l *lagging) arrive(t *testing.T, client *tusk.Client, n int) (ids []tusk.ID) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range n {
		r, err := client.Enqueue(t.Context(), count{1000 + i}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	if l.deliver == nil {
		t.Fatal("no request was held back")
	}
	if got := len(l.deliver(t.Context())); got == 0 {
		t.Fatal("what came late claimed nothing")
	}
	return ids
}

func TestWhatAClaimThatComesLateHasTakenRunsNonetheless(t *testing.T) {
	for name, exchanges := range map[string]bool{"a claim": false, "an exchange": true} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			l := &lagging{Store: s.store, exchanges: exchanges}
			s.client = clientOf(t, l)
			if exchanges {
				s.client = clientOf(t, exchanger{l})
			}
			ran := map[int]int{}
			var mu sync.Mutex
			tusk.HandleFunc(s.mux, func(_ context.Context, c count) error {
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				ran[c.N]++
				return nil
			})
			w, stop := s.work(&tusk.WorkerConfig{Concurrency: 1, ReadAhead: -1})
			id := w.ID()
			s.await(s.enqueue(count{0}, nil), tusk.StateCompleted)
			l.arm()
			for n := 1; n <= 5; n++ {
				s.enqueue(count{n}, nil)
			}
			time.Sleep(10 * time.Second) // the claim is repeated, and its tasks are run
			begun := time.Now()
			ids := l.arrive(t, clientOf(t, s.store), 3)
			for _, id := range ids {
				if task := s.await(id, tusk.StateCompleted); task.Attempt != 1 || task.Crashes != 0 {
					t.Errorf("attempt %d, %d crashes: it had not been begun before", task.Attempt, task.Crashes)
				}
			}
			if took := time.Since(begun); took > 25*time.Second { // two heartbeats and a look of the leader
				t.Errorf("ran %v later", took)
			}
			if w.ID() != id {
				t.Error("the worker was taken for dead")
			}
			s.stop(stop)
			for n, times := range ran {
				if times != 1 {
					t.Errorf("task %d ran %d times", n, times)
				}
			}
		})
	}
	inBubble(t, "a claim for somebody else's worker", func(t *testing.T, s *shop) {
		l := &lagging{Store: s.store}
		s.client = clientOf(t, l)
		tusk.HandleKind(s.mux, "other", func(context.Context, *tusk.Task[struct{}]) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}}) // the leader
		p, end := s.pull()
		l.arm()
		if lent, err := p.Claim(t.Context(), tusk.Pull{Queues: []string{"default"}}); err == nil {
			t.Fatal(len(lent), "lent, though the claim was held back")
		}
		time.Sleep(30 * time.Second) // the claim is repeated
		for _, id := range l.arrive(t, clientOf(t, s.store), 1) {
			s.await(id, tusk.StateAvailable)
		}
		end()
		s.stop(stop)
	})
}

func TestWhatAWorkerHoldsIsNotTakenFromIt(t *testing.T) {
	inBubble(t, "while it runs, waits for a slot, or its outcome cannot be written", func(t *testing.T, s *shop) {
		away := &cut{Store: s.store}
		s.client = clientOf(t, refusing{s.store, away})
		ran := map[int]int{}
		var mu sync.Mutex
		tusk.HandleFunc(s.mux, func(_ context.Context, c count) error {
			mu.Lock()
			ran[c.N]++
			mu.Unlock()
			time.Sleep(time.Minute)
			return nil
		})
		var ids []tusk.ID
		for n := range 6 {
			ids = append(ids, s.enqueue(count{n}, nil))
		}
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 2, ReadAhead: 4})
		time.Sleep(30 * time.Second)
		away.off.Store(true)
		time.Sleep(3 * time.Minute)
		away.off.Store(false)
		for _, id := range ids {
			s.await(id, tusk.StateCompleted)
		}
		s.stop(stop)
		for n, times := range ran {
			if times != 1 {
				t.Errorf("task %d ran %d times", n, times)
			}
		}
	})
	inBubble(t, "while it is lent", func(t *testing.T, s *shop) {
		tusk.HandleKind(s.mux, "other", func(context.Context, *tusk.Task[struct{}]) error { return nil })
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
		p, end := s.pull()
		id := s.enqueue(count{1}, nil)
		lent, err := p.Claim(t.Context(), tusk.Pull{Queues: []string{"default"}, Lease: time.Hour})
		if err != nil || len(lent) != 1 {
			t.Fatal(len(lent), err)
		}
		time.Sleep(10 * time.Minute)
		results, err := p.Finish(t.Context(), []tusk.Verdict{{Receipt: lent[0].Receipt}})
		if err != nil || results[0] != nil {
			t.Error(results, err)
		}
		s.await(id, tusk.StateCompleted)
		end()
		s.stop(stop)
	})
}

// refusing is a store whose Finish fails while the store that it wraps is cut off.
type refusing struct {
	store.Store
	cut *cut
}

func (r refusing) Finish(ctx context.Context, o []store.Outcome) ([]store.ID, error) {
	return r.cut.Finish(ctx, o)
}

// pull runs a puller and returns a function that ends it.
func (s *shop) pull() (p *tusk.Puller, end func()) {
	p = s.client.NewPuller()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	time.Sleep(2 * time.Second) // by now it has sent a heartbeat, and knows which queues are paused
	return p, func() {
		s.t.Helper()
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}
