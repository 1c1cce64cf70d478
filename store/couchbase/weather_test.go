package couchbase

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// weather is everything at once: producers and workers on handles of their own, and faults.
type weather struct {
	*rig
	tasks   int             // for each of two producers
	limit   int             // of a claim
	batter  func(round int) // other faults of the cluster, every few milliseconds
	produce func(ctx context.Context, s *Store, who int)
	ends    func(*store.Task) store.Outcome
	lasts   time.Duration // at most
	ttl     time.Duration // of a worker
	// How many of a hundred claims kill their worker, whose outcomes then come late.
	dies     int
	late     sync.WaitGroup
	producer sync.WaitGroup
	mu       sync.Mutex
	added    map[store.ID]bool
	done     map[store.ID]int // accepted completions
	refused  int              // refused outcomes
	left     atomic.Int64
	over     atomic.Int64 // when the last producer ended
	leases   map[store.ID]string
	twice    atomic.Int64 // tasks that were leased while another lease was open
}

// Under faults of every kind, each acknowledged task ends, with one accepted completion.
func TestNothingIsLostUnderFaults(t *testing.T) {
	t.Run("requests and answers are lost on three nodes", func(t *testing.T) {
		w := newWeather(t, 3, cbfake.Faults{Request: cbfake.SpoilSome(3)})
		w.play()
		if n := w.twice.Load(); n > 0 {
			t.Errorf("%d tasks were leased twice at a time", n)
		}
	})
	t.Run("locks are forgotten", func(t *testing.T) {
		w := newWeather(t, 1, cbfake.Faults{})
		w.batter = func(int) { w.f.ForgetLocks() }
		w.play()
		if n := w.twice.Load(); n > 0 {
			t.Errorf("%d tasks were leased twice at a time", n)
		}
	})
	t.Run("the index is seconds behind", func(t *testing.T) {
		w := newWeather(t, 1, cbfake.Faults{Lag: 2 * time.Second})
		w.play()
		if n := w.twice.Load(); n > 0 {
			t.Errorf("%d tasks were leased twice at a time", n)
		}
	})
	t.Run("the clock jumps", func(t *testing.T) {
		w := newWeather(t, 1, cbfake.Faults{})
		w.batter = func(round int) {
			if round%4 == 0 {
				w.f.JumpClock([]time.Duration{2 * time.Second, -time.Second}[round/4%2])
				w.b.clock.synced.Store(0)
			}
		}
		w.play()
		if n := w.twice.Load(); n > 0 {
			t.Errorf("%d tasks were leased twice at a time", n)
		}
	})
	t.Run("failovers forget what was not durable", func(t *testing.T) {
		w := newWeather(t, 3, cbfake.Faults{Remember: 200 * time.Millisecond})
		w.batter = func(round int) {
			if round%3 == 0 {
				w.f.FailOver(rand.IntN(w.f.Vbuckets()), 100*time.Millisecond)
			}
		}
		w.play()
	})
}

func newWeather(t *testing.T, nodes int, f cbfake.Faults) *weather {
	w := &weather{rig: newRig(t, nodes), tasks: 150, limit: 20, lasts: 90 * time.Second, ttl: time.Minute, ends: completes,
		added: map[store.ID]bool{}, done: map[store.ID]int{}, leases: map[store.ID]string{}}
	w.produce = w.produceAll
	w.durable("majority")
	w.b.patience = patience
	w.f.Set(f)
	return w
}

// durable opens the handles again with a durability.
func (r *rig) durable(level string) {
	for _, s := range []**Store{&r.a, &r.b} {
		(*s).Close()
		*s = openAt(r, r.f.URL()+"?sasl=plain&durability="+level)
	}
}

func (w *weather) play() {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.lasts)
	defer cancel()
	w.left.Store(2)
	for i, s := range []*Store{w.a, w.b} {
		w.producer.Go(func() {
			w.produce(ctx, s, i)
			w.over.Store(time.Now().UnixNano())
			w.left.Add(-1)
		})
	}
	over, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { w.keepHouse(over) })
	if w.batter != nil {
		others.Go(func() {
			for round := 0; over.Err() == nil; round++ {
				w.batter(round)
				_ = wait(over, 5*time.Millisecond)
			}
		})
	}
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() { w.work(ctx, []*Store{w.a, w.b}[i%2]) })
	}
	w.producer.Wait()
	workers.Wait()
	w.late.Wait()
	stop()
	others.Wait()
	w.f.Set(cbfake.Faults{})
	w.judge()
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

// produceAll enqueues tasks with and without keys, and small workflows. Tasks that are not acknowledged do not count.
func (w *weather) produceAll(ctx context.Context, s *Store, who int) {
	for i := 0; i < w.tasks && ctx.Err() == nil; i += 3 {
		one := store.NewTask{ID: storetest.NewID(), Kind: "one", Queue: "q", Args: []byte("1")}
		keyed := store.NewTask{ID: storetest.NewID(), Kind: "keyed", Queue: "q", Args: []byte("1"),
			Key:        fmt.Sprintf("%d-%d", who, i%7),
			OnConflict: []store.OnConflict{store.Skip, store.Replace, store.Rerun}[i/3%3]}
		child := store.NewTask{ID: storetest.NewID(), Kind: "child", Queue: "q", Args: []byte("1"),
			Needs: []store.Need{{Task: one.ID}}}
		did, err := s.Enqueue(ctx, []store.NewTask{one, keyed, child})
		if err != nil {
			continue
		}
		w.acknowledged(did)
	}
}

func (w *weather) acknowledged(did []store.Enqueued) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range did {
		w.added[d.ID] = true
	}
}

func completes(t *store.Task) store.Outcome {
	return store.Outcome{Task: t, State: store.Completed, Attempt: t.Attempt}
}

// work claims and finishes until all acknowledged tasks have ended.
func (w *weather) work(ctx context.Context, s *Store) {
	me := store.Worker{ID: storetest.NewID(), Queues: []string{"q"}}
	for ctx.Err() == nil {
		_, err := s.Extend(ctx, store.Beat{Worker: me, TTL: w.ttl})
		if errors.Is(err, store.ErrWorkerDead) {
			me.ID = storetest.NewID()
		}
		if err != nil {
			continue
		}
		req := store.ClaimRequest{Worker: me.ID, Queues: []string{"q"}, Limit: 1 + rand.IntN(w.limit),
			Token: store.NewToken()}
		tasks, err := s.Claim(ctx, req)
		for err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrWorkerDead) {
			req.Again = true
			tasks, err = s.Claim(ctx, req)
		}
		if len(tasks) == 0 {
			if w.left.Load() == 0 && w.ended(ctx, s) {
				return
			}
			_ = wait(ctx, 10*time.Millisecond)
			continue
		}
		w.note(tasks)
		if rand.IntN(100) < w.dies {
			me.ID = storetest.NewID()
			w.late.Go(func() {
				_ = wait(ctx, rand.N(3*w.ttl))
				w.finishAll(ctx, s, tasks)
			})
			continue
		}
		w.finishAll(ctx, s, tasks)
	}
}

func (w *weather) note(tasks []store.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tasks {
		if w.leases[t.ID] != "" {
			w.twice.Add(1)
		}
		w.leases[t.ID] = t.Lease.String()
	}
}

func (w *weather) finishAll(ctx context.Context, s *Store, tasks []store.Task) {
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = w.ends(&tasks[i])
	}
	w.mu.Lock() // from here on, others may get them
	for _, t := range tasks {
		delete(w.leases, t.ID)
	}
	w.mu.Unlock()
	lost, err := s.Finish(ctx, outcomes)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused += len(lost)
	for _, o := range outcomes {
		if o.State == store.Completed && !slices.Contains(lost, o.Task.ID) {
			w.done[o.Task.ID]++
		}
	}
}

// ended reports whether every acknowledged task has ended. For a task whose last answer was lost it asks the index,
// once that knows everything that was enqueued.
func (w *weather) ended(ctx context.Context, s *Store) bool {
	if w.completed() {
		return true
	}
	if time.Now().UnixNano()-w.over.Load() < int64(3*time.Second) {
		return false
	}
	counts, err := s.Count(ctx)
	return err == nil && len(counts) == 0
}

func (w *weather) completed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.added {
		if w.done[id] == 0 {
			return false
		}
	}
	return true
}

// keepHouse leads, admits and sweeps.
func (w *weather) keepHouse(ctx context.Context) {
	for wait(ctx, 100*time.Millisecond) == nil {
		l, err := w.b.Lead(ctx, store.Candidate{ID: w.leader, TTL: time.Minute})
		if err != nil || l.Term == 0 {
			continue
		}
		_, _ = w.b.Admit(ctx, l.Term, 100)
		dead, _ := w.b.Rescue(ctx, l.Term, 100)
		outcomes := make([]store.Outcome, len(dead))
		for i := range dead {
			outcomes[i] = store.Outcome{Task: &dead[i], State: store.Available, Attempt: dead[i].Attempt}
		}
		_, _ = w.b.Finish(ctx, outcomes)
		_, _ = w.b.sweep(ctx, 300*time.Millisecond)
	}
}

func (w *weather) judge() {
	w.Helper()
	of := map[store.ID]store.State{}
	for f := (store.Filter{Limit: store.MaxPage, NoArgs: true}); ; {
		tasks, err := w.b.List(w.ctx(), f)
		w.must("list", err)
		for _, t := range tasks {
			of[t.ID] = t.State
		}
		if len(tasks) < f.Limit {
			break
		}
		f.Before = tasks[len(tasks)-1].ID
	}
	for id := range w.added {
		if of[id] != store.Completed {
			w.Errorf("the acknowledged task %v is %v", id, of[id])
		}
	}
	for id, n := range w.done {
		if n > 1 {
			w.Errorf("%v has %d accepted completions", id, n)
		}
	}
}
