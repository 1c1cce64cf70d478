package ledgers_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// A server falls silent: its connections stay open, and nothing comes or goes. Tasks of the other ledger run on, long
// before the server counts as away.
func TestAServerThatFallsSilentHoldsUpNoOther(t *testing.T) {
	for victim, name := range []string{"home", "another one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, dsns := servers(t, 2)
			if err := divide(2, dsns...); err != nil {
				t.Fatal(err)
			}
			var silent atomic.Bool
			_, dsns[victim] = wires.Start(t, dsns[victim], func(*wires.Wire) wires.Pass {
				return func(piece []byte, _ bool) ([]byte, bool) {
					if silent.Load() {
						return nil, true
					}
					return piece, true
				}
			})
			s := open(t, dsns...)
			client, err := tusk.NewClient(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			var starts gaps
			mux := tusk.NewMux()
			tusk.Handle(mux, func(context.Context, *tusk.Task[sleep]) error { starts.add(); return nil })
			w, err := tusk.NewWorker(client, mux, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			var producers sync.WaitGroup
			producing, enough := context.WithCancel(ctx)
			defer func() {
				enough()
				producers.Wait()
				stop()
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			}()
			producers.Go(func() { // each enqueue waits for its ledger by itself
				for producing.Err() == nil {
					producers.Go(func() { _, _ = client.Enqueue(producing, sleep{}, nil) })
					time.Sleep(20 * time.Millisecond)
				}
			})
			eventually(t, "tasks run", func() bool { return starts.count() > 100 })
			starts.forget()
			silent.Store(true)
			time.Sleep(8 * time.Second)
			silent.Store(false)
			if gap := starts.longest(); gap > 3*time.Second {
				t.Errorf("no task began for %v", gap)
			}
		})
	}
}

// gaps notes the longest time in which nothing happened.
type gaps struct {
	mu   sync.Mutex
	n    int
	last time.Time
	most time.Duration
}

func (g *gaps) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.last = max(g.most, time.Since(g.last)), time.Now()
	g.n++
}

func (g *gaps) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

func (g *gaps) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.last = 0, time.Now()
}

func (g *gaps) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.most, time.Since(g.last))
}

// A server is killed, and processes that serve clients outlive it for a while. It takes no new connections, so it is
// about to be lost: it gets no tasks that would wait there until it is back.
func TestAServerThatTakesNoConnectionsIsAway(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	var dying atomic.Bool
	_, through := wires.Start(t, dsns[1], func(w *wires.Wire) wires.Pass {
		if dying.Load() {
			w.Cut()
		}
		return wires.All(w)
	})
	s := open(t, dsns[0], through)
	add(t, s, keyedInto(s, 1, nil)) // opens a connection
	dying.Store(true)
	ledgers.Break(s, 1)
	eventually(t, "it is away", func() bool {
		_, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, 1, nil)})
		return errors.Is(err, store.ErrUnavailable) && errors.Is(err, store.ErrNotCommitted)
	})
	time.Sleep(time.Second)
	if _, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, 1, nil)}); err == nil {
		t.Error("it is back although it takes no connections")
	}
	dying.Store(false)
	eventually(t, "it is back", func() bool {
		_, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, 1, nil)})
		return err == nil
	})
}
