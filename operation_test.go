package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// fill enqueues so many tasks.
func (s *shop) fill(n int, o tusk.Options) {
	s.t.Helper()
	tasks := make([]tusk.NewTask, n)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: count{i}, Options: &o}
	}
	if _, err := s.client.EnqueueMany(context.Background(), tasks); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) start(f tusk.Filter, c tusk.Change, o *tusk.OperationOptions) tusk.ID {
	s.t.Helper()
	started, err := s.client.StartOperation(context.Background(), f, c, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return started.ID
}

func (s *shop) operation(id tusk.ID) tusk.Operation {
	s.t.Helper()
	o, err := s.client.Operation(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// awaitOperation lets time pass until an operation is over.
func (s *shop) awaitOperation(id tusk.ID) tusk.Operation {
	s.t.Helper()
	for range 10000 {
		if o := s.operation(id); o.Ended() {
			return o
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Fatalf("the operation does not end: %+v", s.operation(id))
	return tusk.Operation{}
}

func (s *shop) count(f tusk.Filter) int64 {
	s.t.Helper()
	m, err := s.client.Count(context.Background(), f, 1e6)
	if err != nil {
		s.t.Fatal(err)
	}
	return m.Tasks
}

// lead starts a leader and returns a function that stops it.
func (s *shop) lead() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.client.Lead(ctx, nil) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

func TestOperations(t *testing.T) {
	ctx := context.Background()
	cancel := tusk.Change{Op: tusk.OpCancel, Reason: "enough"}
	inBubble(t, "the process that leads changes all that matches and existed", func(t *testing.T, s *shop) {
		s.fill(1700, tusk.Options{Queue: "a"})
		s.fill(3, tusk.Options{Queue: "b"})
		id := s.start(tusk.Filter{Queues: []string{"a"}}, cancel, nil)
		s.fill(5, tusk.Options{Queue: "a"})
		defer s.lead()()
		o := s.awaitOperation(id)
		if o.State != tusk.OperationDone || o.Seen != 1700 || o.Changed != 1700 || o.FinishedAt.Before(o.StartedAt) {
			t.Errorf("%+v", o)
		}
		for _, want := range []struct {
			queue string
			state tusk.State
			n     int64
		}{{"a", tusk.StateCancelled, 1700}, {"a", tusk.StateAvailable, 5}, {"b", tusk.StateAvailable, 3}} {
			if n := s.count(tusk.Filter{Queues: []string{want.queue}, States: []tusk.State{want.state}}); n != want.n {
				t.Errorf("%d tasks of %s are %v, want %d", n, want.queue, want.state, want.n)
			}
		}
	})
	inBubble(t, "each change does what it says", func(t *testing.T, s *shop) {
		defer s.lead()()
		s.fill(20, tusk.Options{Delay: time.Hour})
		for _, c := range []tusk.Change{{Op: tusk.OpReprioritize, Priority: -3}, {Op: tusk.OpMove, Queue: "other"},
			{Op: tusk.OpReschedule, Delay: 2 * time.Hour}, cancel,
			{Op: tusk.OpRetry, Delay: time.Hour}, {Op: tusk.OpDelete}} {
			if o := s.awaitOperation(s.start(tusk.Filter{}, c, nil)); o.Changed != 20 {
				t.Errorf("%v: %+v", c.Op, o)
			}
			if c.Op == tusk.OpRetry {
				tasks, _ := s.client.List(ctx, tusk.Filter{Queues: []string{"other"}, States: []tusk.State{tusk.StateScheduled}})
				if len(tasks) != 20 || tasks[0].Priority != -3 {
					t.Errorf("%d tasks: %+v", len(tasks), tasks[:min(len(tasks), 1)])
				}
			}
		}
		if n := s.count(tusk.Filter{}); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
	inBubble(t, "its rate is kept, its limit and its bounds too", func(t *testing.T, s *shop) {
		defer s.lead()()
		s.fill(300, tusk.Options{Tenant: "acme"})
		s.fill(300, tusk.Options{Tenant: "rest"})
		began := time.Now()
		o := s.awaitOperation(s.start(tusk.Filter{}, cancel,
			&tusk.OperationOptions{PerSecond: 10, Limit: 100, Tenants: []string{"ac*"}}))
		if took := time.Since(began); o.Changed != 100 || took < 8*time.Second || took > 80*time.Second {
			t.Errorf("%v for %+v", took, o)
		}
		if n := s.count(tusk.Filter{Tenants: []string{"rest"}, States: []tusk.State{tusk.StateCancelled}}); n != 0 {
			t.Errorf("%d tasks out of bounds were cancelled", n)
		}
	})
	inBubble(t, "it stops when it is called off, and what is done stays done", func(t *testing.T, s *shop) {
		s.fill(1000, tusk.Options{})
		id := s.start(tusk.Filter{}, cancel, &tusk.OperationOptions{PerSecond: 50})
		defer s.lead()()
		for s.operation(id).Seen == 0 {
			time.Sleep(time.Second)
		}
		if err := s.client.CancelOperation(ctx, id); err != nil {
			t.Fatal(err)
		}
		o := s.awaitOperation(id)
		if o.State != tusk.OperationCancelled || o.Seen == 0 || o.Seen == 1000 {
			t.Errorf("%+v", o)
		}
		if n := s.count(tusk.Filter{States: []tusk.State{tusk.StateCancelled}}); n != o.Changed {
			t.Errorf("%d tasks are cancelled, the operation says %d", n, o.Changed)
		}
		if err := s.client.CancelOperation(ctx, id); err != nil {
			t.Error("once more:", err)
		}
	})
	inBubble(t, "a process that goes away leaves it to others", func(t *testing.T, s *shop) {
		s.fill(100, tusk.Options{})
		id := s.start(tusk.Filter{}, cancel, &tusk.OperationOptions{PerSecond: 10})
		away, gone := context.WithCancel(ctx)
		told := 0
		_, err := s.client.CarryOperation(away, id, func(o tusk.Operation) {
			if told++; o.Seen >= 50 {
				gone()
			}
		})
		if !errors.Is(err, context.Canceled) || told == 0 {
			t.Fatal(err, told)
		}
		left := s.operation(id)
		if left.Ended() || left.Seen < 50 {
			t.Fatalf("%+v", left)
		}
		watched := make(chan error, 1)
		go func() {
			_, err := s.client.CarryOperation(ctx, id, nil)
			watched <- err
		}()
		defer s.lead()()
		o := s.awaitOperation(id)
		if o.State != tusk.OperationDone || o.Seen != 100 || o.Changed != 100 || o.Holder == left.Holder {
			t.Errorf("%+v", o)
		}
		if err := <-watched; err != nil {
			t.Error(err)
		}
	})
	inBubble(t, "a process that gives up leaves it to others at once", func(t *testing.T, s *shop) {
		broken := &brokenEdits{Store: s.store}
		s.client = clientOf(t, broken)
		s.fill(10, tusk.Options{})
		id := s.start(tusk.Filter{}, tusk.Change{Op: tusk.OpReprioritize, Priority: 1}, nil)
		if _, err := s.client.CarryOperation(ctx, id, nil); err == nil {
			t.Error("no error")
		}
		if o := s.operation(id); o.Ended() || !o.Holder.IsZero() {
			t.Errorf("%+v", o)
		}
	})
	inBubble(t, "two that carry it do not both", func(t *testing.T, s *shop) {
		s.fill(600, tusk.Options{})
		id := s.start(tusk.Filter{}, cancel, &tusk.OperationOptions{PerSecond: 20})
		done := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := s.client.CarryOperation(ctx, id, nil)
				done <- err
			}()
		}
		began := time.Now()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if o := s.operation(id); o.Seen != 600 || o.Changed != 600 || time.Since(began) < 28*time.Second {
			t.Errorf("%v for %+v", time.Since(began), o)
		}
	})
	inBubble(t, "one that fails is tried again and says why, and holds up no other", func(t *testing.T, s *shop) {
		broken := &brokenEdits{Store: s.store}
		s.client = clientOf(t, broken)
		s.fill(10, tusk.Options{})
		bad := s.start(tusk.Filter{}, tusk.Change{Op: tusk.OpReprioritize, Priority: 1}, nil)
		good := s.start(tusk.Filter{}, cancel, nil)
		defer s.lead()()
		if o := s.awaitOperation(good); o.Changed != 10 {
			t.Errorf("%+v", o)
		}
		if o := s.operation(bad); o.Ended() || o.Error != "out of order" {
			t.Errorf("%+v", o)
		}
		broken.mended.Store(true)
		if o := s.awaitOperation(bad); o.State != tusk.OperationDone || o.Error != "" {
			t.Errorf("%+v", o)
		}
	})
	inBubble(t, "one that fails makes no other slower", func(t *testing.T, s *shop) {
		s.client = clientOf(t, &brokenEdits{Store: s.store})
		s.fill(600, tusk.Options{})
		s.start(tusk.Filter{}, tusk.Change{Op: tusk.OpReprioritize, Priority: 1}, nil)
		good := s.start(tusk.Filter{}, cancel, &tusk.OperationOptions{PerSecond: 20})
		began := time.Now()
		defer s.lead()()
		if s.awaitOperation(good); time.Since(began) > 40*time.Second {
			t.Errorf("600 tasks at 20 a second took %v", time.Since(began))
		}
	})
	inBubble(t, "one is carried on beside another that cannot be read", func(t *testing.T, s *shop) {
		s.fill(10, tusk.Options{})
		id := s.start(tusk.Filter{}, cancel, nil)
		if _, _, err := s.client.Store().PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "operation",
			Name: tusk.NewID().String(), Body: []byte("{")}}); err != nil {
			t.Fatal(err)
		}
		if o, err := s.client.CarryOperation(ctx, id, nil); err != nil || o.Changed != 10 {
			t.Errorf("%+v, %v", o, err)
		}
	})
	inBubble(t, "only the latest are kept", func(t *testing.T, s *shop) {
		for range 210 {
			s.start(tusk.Filter{}, cancel, nil)
		}
		defer s.lead()()
		time.Sleep(2 * time.Minute)
		if all, err := s.client.Operations(ctx); err != nil || len(all) != 200 || all[0].State != tusk.OperationDone {
			t.Error(len(all), err)
		}
	})
	inBubble(t, "mistakes are reported before anything is stored", func(t *testing.T, s *shop) {
		for name, start := range map[string]func() (tusk.Operation, error){
			"no change": func() (tusk.Operation, error) {
				return s.client.StartOperation(ctx, tusk.Filter{}, tusk.Change{}, nil)
			},
			"ids": func() (tusk.Operation, error) {
				return s.client.StartOperation(ctx, tusk.Filter{IDs: []tusk.ID{tusk.NewID()}}, cancel, nil)
			},
			"no queue": func() (tusk.Operation, error) {
				return s.client.StartOperation(ctx, tusk.Filter{}, tusk.Change{Op: tusk.OpMove}, nil)
			},
			"a bad rate": func() (tusk.Operation, error) {
				return s.client.StartOperation(ctx, tusk.Filter{}, cancel, &tusk.OperationOptions{PerSecond: -1})
			},
		} {
			if _, err := start(); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if all, err := s.client.Operations(ctx); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
		_, err := s.client.Operation(ctx, tusk.NewID())
		if !errors.Is(err, tusk.ErrNotFound) || !errors.Is(s.client.CancelOperation(ctx, tusk.NewID()), tusk.ErrNotFound) {
			t.Error(err)
		}
	})
	inBubble(t, "counting stops where it is told to", func(t *testing.T, s *shop) {
		s.fill(2500, tusk.Options{Tenant: "acme"})
		for _, test := range []struct {
			f    tusk.Filter
			most int64
			want tusk.Matching
		}{
			{tusk.Filter{Tenants: []string{"acme"}}, 10000, tusk.Matching{Tasks: 2500}},
			{tusk.Filter{Tenants: []string{"acme"}}, 2500, tusk.Matching{Tasks: 2500}},
			{tusk.Filter{Tenants: []string{"acme"}}, 2000, tusk.Matching{Tasks: 2000, More: true}},
			{tusk.Filter{States: []tusk.State{tusk.StateAvailable}, Queues: []string{"default"}}, 10,
				tusk.Matching{Tasks: 2500}},
			{tusk.Filter{States: []tusk.State{tusk.StateAvailable}, Queues: []string{"other"}}, 10, tusk.Matching{}},
		} {
			if got, err := s.client.Count(ctx, test.f, test.most); got != test.want || err != nil {
				t.Errorf("%+v up to %d: %+v, %v", test.f, test.most, got, err)
			}
		}
	})
}

// brokenEdits is a store that fails to reprioritize until it is repaired.
type brokenEdits struct {
	store.Store
	mended atomic.Bool
}

func (b *brokenEdits) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if e.Change.Op == store.Reprioritize && !b.mended.Load() {
		return nil, errors.New("out of order")
	}
	return b.Store.Edit(ctx, e)
}

// All discarded tasks of a queue run again: the redrive of dead letters.
func ExampleClient_StartOperation() {
	ctx, client := context.Background(), newClient()
	for _, name := range []string{"Ada", "Alan", "Grace"} {
		r, _ := client.Enqueue(ctx, Greet{Name: name}, &tusk.Options{Queue: "mail"})
		_, _ = client.Cancel(ctx, r.ID, "")
	}
	dead := tusk.Filter{Queues: []string{"mail"}, States: []tusk.State{tusk.StateCancelled, tusk.StateDiscarded}}
	n, _ := client.Count(ctx, dead, 10000) // a dry run
	fmt.Println(n.Tasks, "match")
	o, _ := client.StartOperation(ctx, dead, tusk.Change{Op: tusk.OpRetry}, &tusk.OperationOptions{PerSecond: 1000})
	// The leader carries it on. Here there is none.
	o, err := client.CarryOperation(ctx, o.ID, nil)
	fmt.Println(o.State, o.Changed, err)
	// Output:
	// 3 match
	// done 3 <nil>
}
