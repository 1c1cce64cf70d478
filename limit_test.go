package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestLimits(t *testing.T) {
	ctx := context.Background()
	measure := func(s *shop, takes time.Duration) *gauge {
		g := newGauge()
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
			defer g.enter("all", t.Args.N)()
			defer g.enter(t.Tenant, t.Args.N)()
			defer g.enter(t.Tenant+"/"+t.Partition, t.Args.N)()
			time.Sleep(takes)
			return nil
		})
		return g
	}
	inBubble(t, "of concurrency hold with three workers, for queue, tenant and partition", func(t *testing.T, s *shop) {
		g := measure(s, time.Second)
		s.limit(tusk.Limits{Concurrency: 12, PerTenant: 4, PerPartition: 2,
			Tenants: map[string]tusk.TenantLimits{"big": {Concurrency: 6}}})
		for _, tenant := range []string{"big", "a", "b", "c"} {
			for _, partition := range []string{"1", "2", "3", "4"} {
				s.enqueueFor(tenant, partition, 10)
			}
		}
		var stops []func() error
		for range 3 {
			_, stop := s.work(nil)
			stops = append(stops, stop)
		}
		s.drain()
		for name, want := range map[string]int{"all": 12, "big": 6, "a": 4, "a/1": 2, "big/4": 2} {
			if got := g.peak(name); got > want || name == "all" && got < want {
				t.Errorf("%s: %d at a time, want %d", name, got, want)
			}
		}
		for _, stop := range stops {
			s.stop(stop)
		}
	})
	inBubble(t, "a serial tenant's tasks run one after another, in order", func(t *testing.T, s *shop) {
		g := measure(s, 50*time.Millisecond)
		s.limit(tusk.Limits{PerPartition: 1})
		s.enqueueFor("a", "p", 50)
		s.enqueueFor("b", "p", 50)
		var stops []func() error
		for range 3 {
			_, stop := s.work(nil)
			stops = append(stops, stop)
		}
		s.drain()
		for _, name := range []string{"a/p", "b/p"} {
			if g.peak(name) != 1 || !slices.IsSorted(g.starts(name)) || len(g.starts(name)) != 50 {
				t.Errorf("%s: %d at a time, %v", name, g.peak(name), g.starts(name))
			}
		}
		for _, stop := range stops {
			s.stop(stop)
		}
	})
	for _, block := range []bool{true, false} {
		inBubble(t, fmt.Sprintf("while the head of a serial tenant is retried others pass: %v", !block),
			func(t *testing.T, s *shop) {
				var ran order
				tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
					ran.add(fmt.Sprint(t.Args.N))
					if t.Args.N == 0 && t.Attempt == 1 {
						return tusk.RetryAfter(time.Minute, errors.New("x"))
					}
					return nil
				})
				s.limit(tusk.Limits{PerTenant: 1, BlockOnRetry: block})
				s.enqueueFor("a", "", 3)
				_, stop := s.work(nil)
				s.drain()
				want := "0 1 2 0"
				if block {
					want = "0 0 1 2"
				}
				if ran.String() != want {
					t.Errorf("ran %s, want %s", ran.String(), want)
				}
				s.stop(stop)
			})
	}
	inBubble(t, "partitions whose heads are retried do not hold up others, if many", func(t *testing.T, s *shop) {
		var ran atomic.Int64
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
			if t.Tenant == "fails" {
				return tusk.RetryAfter(time.Hour, errors.New("x"))
			}
			ran.Add(1)
			return nil
		})
		s.limit(tusk.Limits{PerPartition: 1, BlockOnRetry: true})
		for i := range 300 {
			s.enqueueFor("fails", fmt.Sprint(i), 2)
		}
		s.enqueueFor("works", "", 10)
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 5})
		time.Sleep(time.Minute)
		if ran.Load() != 10 {
			t.Errorf("%d of 10 have run", ran.Load())
		}
		counts, err := s.client.TurnCounts(t.Context(), "")
		for _, c := range counts {
			if c.Held > 1 {
				t.Errorf("%d tasks of the partition %s have a turn", c.Held, c.Partition)
			}
		}
		if err != nil || len(counts) != 300 {
			t.Errorf("%d partitions wait, %v", len(counts), err)
		}
		s.stop(stop)
	})
	inBubble(t, "a serial tenant's task whose worker died runs before those behind it", func(t *testing.T, s *shop) {
		var ran order
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error { ran.add(fmt.Sprint(t.Args.N)); return nil })
		s.limit(tusk.Limits{PerTenant: 1})
		s.enqueueFor("a", "", 3)
		_, stopLeader := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
		time.Sleep(time.Second)
		dies := store.Worker{ID: tusk.NewID(), Queues: []string{"default"}}
		if _, err := s.store.Extend(t.Context(), store.Beat{Worker: dies, TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		tasks, err := s.store.Claim(t.Context(), store.ClaimRequest{Worker: dies.ID, Queues: dies.Queues, Limit: 10,
			Token: store.NewToken()})
		if err != nil || len(tasks) != 1 {
			t.Fatal(len(tasks), err)
		}
		time.Sleep(10 * time.Second) // the leader rescues
		_, stop := s.work(nil)
		s.drain()
		if want := "0 1 2"; ran.String() != want {
			t.Errorf("ran %s, want %s", ran.String(), want)
		}
		s.stop(stop)
		s.stop(stopLeader)
	})
	inBubble(t, "a task keeps its turn though the limits cannot be read when it fails", func(t *testing.T, s *shop) {
		var ran order
		blind := &blindStore{Store: s.store}
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
			ran.add(fmt.Sprint(t.Args.N))
			if t.Args.N == 0 && t.Attempt == 1 {
				blind.is.Store(true)
				time.AfterFunc(10*time.Second, func() { blind.is.Store(false) })
				time.Sleep(5 * time.Second) // by now the cached limits are old
				return tusk.RetryAfter(time.Minute, errors.New("x"))
			}
			return nil
		})
		s.limit(tusk.Limits{PerPartition: 1, BlockOnRetry: true})
		s.enqueueFor("a", "", 3)
		_, stop := (&shop{t: t, store: blind, client: clientOf(t, blind), mux: s.mux}).work(nil)
		s.drain()
		if want := "0 0 1 2"; ran.String() != want {
			t.Errorf("ran %s, want %s", ran.String(), want)
		}
		s.stop(stop)
	})
	inBubble(t, "tasks are enqueued by the last known limits while these cannot be read", func(t *testing.T, s *shop) {
		blind := &blindStore{Store: s.store}
		client := clientOf(t, blind)
		s.limit(tusk.Limits{PerTenant: 1})
		enqueue := func() (tusk.Enqueued, error) { return client.Enqueue(t.Context(), count{}, nil) }
		blind.is.Store(true)
		if _, err := enqueue(); !errors.Is(err, tusk.ErrNotCommitted) {
			t.Errorf("without any limits known: %v", err)
		}
		blind.is.Store(false)
		if _, err := enqueue(); err != nil {
			t.Error(err)
		}
		blind.is.Store(true)
		for range 3 {
			time.Sleep(5 * time.Second)
			r, err := enqueue()
			if err != nil {
				t.Fatal(err)
			}
			if task, err := client.Get(t.Context(), r.ID); err != nil || task.State != tusk.StatePending {
				t.Errorf("a task of a queue with limits is %v, %v", task.State, err)
			}
		}
	})
	inBubble(t, "a tenant with very many tasks does not delay another's", func(t *testing.T, s *shop) {
		g := measure(s, 10*time.Millisecond)
		s.limit(tusk.Limits{})
		for range 4 {
			s.enqueueFor("heavy", "", 5000)
		}
		_, stop := s.work(nil)
		time.Sleep(500 * time.Millisecond)
		begun := time.Now()
		s.enqueueFor("light", "", 10)
		for len(g.starts("light")) < 10 {
			time.Sleep(10 * time.Millisecond)
		}
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the light tenant's tasks waited for %v", waited)
		}
		s.drain()
		s.stop(stop)
	})
	inBubble(t, "a rate holds over time and across leaders", func(t *testing.T, s *shop) {
		g := measure(s, 0)
		s.limit(tusk.Limits{Rate: &tusk.Rate{Allowed: 10, Period: time.Minute},
			TenantRate: &tusk.Rate{Allowed: 6, Period: time.Minute, Algorithm: tusk.SlidingWindow}})
		s.enqueueFor("a", "", 20)
		s.enqueueFor("b", "", 20)
		_, stop := s.work(nil)
		time.Sleep(10 * time.Second)
		if n := len(g.starts("all")); n < 10 || n > 12 {
			t.Errorf("%d at once, want 10", n)
		}
		s.stop(stop)
		_, stop = s.work(nil)
		time.Sleep(20 * time.Second)
		if n := len(g.starts("all")); n != 12 {
			t.Errorf("%d after half a minute, want 12: six of each tenant", n)
		}
		s.drain()
		if g.peak("all") == 0 || len(g.starts("all")) != 40 {
			t.Errorf("%d of 40", len(g.starts("all")))
		}
		s.stop(stop)
	})
	inBubble(t, "changed limits count for those that wait, removed ones let them go", func(t *testing.T, s *shop) {
		g := measure(s, time.Minute)
		s.limit(tusk.Limits{Concurrency: 1})
		s.enqueueFor("a", "", 30)
		_, stop := s.work(nil)
		time.Sleep(10 * time.Second)
		if g.peak("all") != 1 {
			t.Errorf("%d at a time", g.peak("all"))
		}
		s.limit(tusk.Limits{Concurrency: 5})
		time.Sleep(10 * time.Second)
		if g.peak("all") != 5 {
			t.Errorf("%d at a time", g.peak("all"))
		}
		if limits, err := s.client.Limits(ctx); err != nil || limits["default"].Concurrency != 5 {
			t.Errorf("%+v, %v", limits, err)
		}
		if err := s.client.RemoveLimits(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if g.peak("all") != 30 {
			t.Errorf("%d at a time", g.peak("all"))
		}
		if err := s.client.RemoveLimits(ctx, "default"); !errors.Is(err, tusk.ErrNotFound) {
			t.Error(err)
		}
		s.drain()
		s.stop(stop)
	})
	inBubble(t, "schedules, stages and children take turns, too", func(t *testing.T, s *shop) {
		tusk.Handle(s.mux, func(ctx context.Context, task *tusk.Task[count]) error {
			if !task.Turn {
				t.Errorf("%s ran out of turn", task.Kind)
			}
			if task.Args.N == 1 {
				if _, err := task.Spawn(ctx, count{2}, nil); err != nil {
					return err
				}
				if inputs, err := task.Inputs(ctx); err != nil || len(inputs) > 0 {
					return err
				}
				return tusk.Wait()
			}
			return nil
		})
		s.limit(tusk.Limits{Concurrency: 3})
		s.schedule(tusk.Schedule{Name: "s", Spec: "@every 1m"})
		_, stop := s.work(nil)
		id := s.enqueue(count{1}, nil)
		s.await(id, tusk.StateCompleted)
		time.Sleep(90 * time.Second)
		s.stop(stop)
	})
	inBubble(t, "of workers hold in each of them, and slow no other queue", func(t *testing.T, s *shop) {
		g := newGauge()
		var worker sync.Map
		tusk.Handle(s.mux, func(_ context.Context, t *tusk.Task[count]) error {
			worker.Store(t.Worker, true)
			defer g.enter(t.Queue, t.Args.N)()
			defer g.enter(t.Queue+t.Worker.String(), t.Args.N)()
			time.Sleep(time.Second)
			return nil
		})
		s.limit(tusk.Limits{PerWorker: 2})
		queues := &tusk.WorkerConfig{Queues: []string{"default", "free", "default"}, Concurrency: 10} // one twice
		for n := range 40 {
			if id := s.enqueue(count{n}, nil); s.get(id).Turn {
				t.Fatal("it takes turns, which costs much")
			}
			s.enqueue(count{n}, &tusk.Options{Queue: "free"})
		}
		_, stop := s.work(queues)
		_, stopOther := s.work(queues)
		time.Sleep(5 * time.Second)
		if g.peak("default") > 4 {
			t.Errorf("%d at a time in two workers that may hold two each", g.peak("default"))
		}
		s.limit(tusk.Limits{PerWorker: 5})
		time.Sleep(2 * time.Second)
		if g.peak("default") <= 4 {
			t.Errorf("%d at a time after the limit was raised", g.peak("default"))
		}
		s.drain()
		if g.peak("default") > 10 || g.peak("free") < 16 || g.peak("free") > 20 {
			t.Errorf("%d and %d at a time", g.peak("default"), g.peak("free"))
		}
		worker.Range(func(id, _ any) bool {
			if n := g.peak("default" + id.(tusk.ID).String()); n > 5 {
				t.Errorf("%d at a time in one worker", n)
			}
			return true
		})
		s.stop(stop)
		s.stop(stopOther)
	})
	inBubble(t, "of workers, alone, are never passed", func(t *testing.T, s *shop) {
		g := measure(s, time.Second)
		s.limit(tusk.Limits{PerWorker: 3})
		s.enqueueFor("a", "", 30)
		_, stop := s.work(&tusk.WorkerConfig{Concurrency: 20})
		s.drain()
		if g.peak("all") != 3 {
			t.Errorf("%d at a time", g.peak("all"))
		}
		s.stop(stop)
	})
	inBubble(t, "a rate counts what tasks weigh", func(t *testing.T, s *shop) {
		g := measure(s, 0)
		s.limit(tusk.Limits{TenantRate: &tusk.Rate{Allowed: 10, Period: time.Minute}})
		for n, weight := range []int{0, 4, 5, 6} {
			s.enqueue(count{n}, &tusk.Options{Tenant: "a", Weight: weight})
		}
		s.enqueue(count{9}, &tusk.Options{Tenant: "b", Weight: 100})
		_, stop := s.work(nil)
		time.Sleep(5 * time.Second)
		if got := slices.Sorted(slices.Values(g.starts("a"))); !slices.Equal(got, []int{0, 1, 2}) || len(g.starts("b")) != 1 {
			t.Errorf("%v and %v at once", got, g.starts("b"))
		}
		s.drain()
		s.stop(stop)
	})
	inBubble(t, "who has a turn and who waits is told to anybody", func(t *testing.T, s *shop) {
		measure(s, time.Minute)
		s.limit(tusk.Limits{PerTenant: 2})
		s.enqueueFor("a", "p", 5)
		s.enqueueFor("b", "", 1)
		_, stop := s.work(nil)
		time.Sleep(5 * time.Second)
		counts, err := s.client.TurnCounts(ctx, "default")
		want := []tusk.TurnCount{{Queue: "default", Tenant: "a", Partition: "p", Held: 2, Waiting: 3},
			{Queue: "default", Tenant: "b", Held: 1}}
		if err != nil || !slices.Equal(counts, want) {
			t.Errorf("%+v, %v", counts, err)
		}
		if counts, err := s.client.TurnCounts(ctx, "other"); err != nil || len(counts) != 0 {
			t.Errorf("%+v, %v", counts, err)
		}
		s.drain()
		s.stop(stop)
	})
	inBubble(t, "bad limits are refused", func(t *testing.T, s *shop) {
		for says, l := range map[string]tusk.Limits{
			"concurrency":             {Concurrency: -1},
			"per tenant":              {PerTenant: -1},
			"per worker":              {PerWorker: -1},
			"rate: allowed":           {Rate: &tusk.Rate{Period: time.Second}},
			"rate: period":            {Rate: &tusk.Rate{Allowed: 1}},
			"sliding_window":          {TenantRate: &tusk.Rate{Allowed: 1, Period: time.Second, Algorithm: "leaky"}},
			"No Tenant":               {Tenants: map[string]tusk.TenantLimits{"No Tenant": {}}},
			"tenants: a: weight":      {Tenants: map[string]tusk.TenantLimits{"a": {Weight: math.NaN()}}},
			"tenants: a: concurrency": {Tenants: map[string]tusk.TenantLimits{"a": {Concurrency: -1}}},
		} {
			err := s.client.SetLimits(ctx, "q", l)
			if !errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
	})
}

// blindStore cannot read records while it is blind.
type blindStore struct {
	store.Store
	is atomic.Bool
}

func (b *blindStore) Unwrap() store.Store { return b.Store }

func (b *blindStore) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if b.is.Load() {
		return nil, store.ErrUnavailable
	}
	return b.Store.Records(ctx, f)
}
