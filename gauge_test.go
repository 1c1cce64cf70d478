package tusk_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
)

// gauge counts how many tasks run at a time, by name.
type gauge struct {
	mu      sync.Mutex
	now     map[string]int
	most    map[string]int
	started map[string][]int // the tasks' numbers, in the order in which they started
}

func newGauge() *gauge {
	return &gauge{now: map[string]int{}, most: map[string]int{}, started: map[string][]int{}}
}

func (g *gauge) enter(name string, n int) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now[name]++
	g.most[name] = max(g.most[name], g.now[name])
	g.started[name] = append(g.started[name], n)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now[name]--
	}
}

func (g *gauge) peak(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[name]
}

// starts returns the numbers of the tasks that have started, in order.
func (g *gauge) starts(name string) []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.started[name])
}

func (s *shop) limit(l tusk.Limits) {
	s.t.Helper()
	if err := s.client.SetLimits(context.Background(), "default", l); err != nil {
		s.t.Fatal(err)
	}
}

// enqueueFor enqueues n tasks of a tenant, numbered.
func (s *shop) enqueueFor(tenant, partition string, n int) {
	s.t.Helper()
	tasks := make([]tusk.NewTask, n)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: count{i}, Options: &tusk.Options{Tenant: tenant, Partition: partition}}
	}
	if _, err := s.client.EnqueueMany(context.Background(), tasks); err != nil {
		s.t.Fatal(err)
	}
}

// drain lets time pass until all tasks are finished.
func (s *shop) drain() {
	s.t.Helper()
	for range 100000 {
		queues, err := s.client.Queues(context.Background())
		if err != nil {
			s.t.Fatal(err)
		}
		if left := slices.IndexFunc(queues, func(q tusk.Queue) bool { return len(q.Tasks) > 0 }); left < 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Fatal("never drained")
}
