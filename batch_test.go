package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

func TestBatchHandlers(t *testing.T) {
	inBubble(t, "tasks come together, and each has its own end", func(t *testing.T, s *shop) {
		var mu sync.Mutex
		var sizes []int
		tusk.HandleBatch(s.mux, func(_ context.Context, tasks []*tusk.Task[count]) []error {
			mu.Lock()
			sizes = append(sizes, len(tasks))
			mu.Unlock()
			errs := make([]error, len(tasks))
			for i, task := range tasks {
				if task.Args.N == 13 {
					errs[i] = tusk.Discard(errors.New("unlucky"))
				}
			}
			return errs
		}, tusk.BatchOptions{Max: 20})
		var ids []tusk.ID
		for i := range 50 {
			ids = append(ids, s.enqueue(count{i}, nil))
		}
		_, stop := s.work(nil)
		for i, id := range ids {
			want := tusk.StateCompleted
			if i == 13 {
				want = tusk.StateDiscarded
			}
			s.await(id, want)
		}
		if len(sizes) != 3 || sizes[0] != 20 {
			t.Errorf("calls of %v tasks", sizes)
		}
		s.stop(stop)
	})
	inBubble(t, "a panic fails all tasks of the call", func(t *testing.T, s *shop) {
		tusk.HandleBatch(s.mux, func(context.Context, []*tusk.Task[count]) []error { panic("argh") }, tusk.BatchOptions{})
		_, stop := s.work(nil)
		for i, id := range []tusk.ID{s.enqueue(count{}, &tusk.Options{MaxAttempts: 1}),
			s.enqueue(count{}, &tusk.Options{MaxAttempts: 1})} {
			if e := s.await(id, tusk.StateDiscarded).Detail.Attempts[0].Error; !strings.Contains(e, "panic") {
				t.Errorf("task %d: %s", i, e)
			}
		}
		s.stop(stop)
	})
	inBubble(t, "a wrong number of errors fails all, and says so", func(t *testing.T, s *shop) {
		tusk.HandleBatch(s.mux, func(context.Context, []*tusk.Task[count]) []error { return make([]error, 7) },
			tusk.BatchOptions{})
		_, stop := s.work(nil)
		id := s.enqueue(count{}, &tusk.Options{MaxAttempts: 1})
		if e := s.await(id, tusk.StateDiscarded).Detail.Attempts[0].Error; !strings.Contains(e, "7 errors for 1 tasks") {
			t.Error(e)
		}
		s.stop(stop)
	})
	inBubble(t, "the call goes on until all its tasks are stopped", func(t *testing.T, s *shop) {
		ended := make(chan error, 1)
		tusk.HandleBatch(s.mux, func(ctx context.Context, _ []*tusk.Task[count]) []error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return []error{ctx.Err(), ctx.Err()}
		}, tusk.BatchOptions{})
		a, b := s.enqueue(count{}, nil), s.enqueue(count{}, nil)
		_, stop := s.work(nil)
		s.await(b, tusk.StateRunning)
		time.Sleep(time.Second)
		if _, err := s.client.Cancel(context.Background(), a, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if len(ended) != 0 {
			t.Error("ended for one")
		}
		if _, err := s.client.Cancel(context.Background(), b, ""); err != nil {
			t.Fatal(err)
		}
		if cause := <-ended; !errors.Is(cause, tusk.ErrCancelled) {
			t.Error(cause)
		}
		s.await(a, tusk.StateCancelled)
		s.await(b, tusk.StateCancelled)
		s.stop(stop)
	})
}

func ExampleHandleBatch() {
	client, mux := newClient(), tusk.NewMux()
	tusk.HandleBatch(mux, func(ctx context.Context, tasks []*tusk.Task[Greet]) []error {
		fmt.Println(len(tasks), "greetings in one call")
		return nil // all succeeded
	}, tusk.BatchOptions{Max: 3})
	results, _ := client.EnqueueMany(context.Background(), []tusk.NewTask{
		{Args: Greet{Name: "Ada"}}, {Args: Greet{Name: "Alan"}}, {Args: Greet{Name: "Grace"}}})
	runUntil(client, mux, results[2].ID, tusk.StateCompleted)
	// Output: 3 greetings in one call
}
