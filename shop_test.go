package tusk_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

type count struct{ N int }

func (count) Kind() string { return "count" }

// shop is a client, a mux and the workers that a test starts, on one store in
// memory. Tests run in a synctest bubble, in which hours pass at once.
type shop struct {
	t      *testing.T
	store  store.Store
	client *tusk.Client
	mux    *tusk.Mux
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, store: memory.New(), mux: tusk.NewMux()}
	s.client = clientOf(t, s.store)
	return s
}

func clientOf(t testing.TB, s store.Store) *tusk.Client {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// work starts a worker and returns a function that stops it and waits for its end.
func (s *shop) work(config *tusk.WorkerConfig) (w *tusk.Worker, stop func() error) {
	s.t.Helper()
	w, err := tusk.NewWorker(s.client, s.mux, config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return w, func() error { cancel(); return <-done }
}

func (s *shop) enqueue(args tusk.Args, o *tusk.Options) tusk.ID {
	s.t.Helper()
	r, err := s.client.Enqueue(context.Background(), args, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.ID
}

func (s *shop) get(id tusk.ID) *tusk.TaskInfo {
	s.t.Helper()
	task, err := s.client.Get(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return task
}

// await lets time pass until the task is in the state.
func (s *shop) await(id tusk.ID, state tusk.State) *tusk.TaskInfo {
	s.t.Helper()
	for range 100000 {
		if task := s.get(id); task.State == state {
			return task
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Fatalf("task is %v, never became %v", s.get(id).State, state)
	return nil
}

func (s *shop) stop(stop func() error) {
	s.t.Helper()
	if err := stop(); err != nil {
		s.t.Error(err)
	}
}

func inBubble(t *testing.T, name string, f func(t *testing.T, s *shop)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newShop(t)) })
	})
}

// cut is a store that can be cut off, as by a broken network.
type cut struct {
	store.Store
	off atomic.Bool
}

var errCut = fmt.Errorf("cut off: %w", store.ErrUnavailable)

func (c *cut) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Claim(ctx, r)
}

func (c *cut) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Extend(ctx, b)
}

func (c *cut) Finish(ctx context.Context, o []store.Outcome) ([]store.ID, error) {
	if c.off.Load() {
		return nil, errCut
	}
	return c.Store.Finish(ctx, o)
}
