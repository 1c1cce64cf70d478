package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// reads counts the calls of List and the ids and args that they read.
type reads struct {
	store.Store
	calls, ids, withArgs, most atomic.Int64
	off                        atomic.Bool
}

func (r *reads) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	r.calls.Add(1)
	r.ids.Add(int64(len(f.IDs)))
	r.most.Store(max(r.most.Load(), int64(len(f.IDs))))
	if !f.NoArgs {
		r.withArgs.Add(1)
	}
	if r.off.Load() {
		return nil, errCut
	}
	return r.Store.List(ctx, f)
}

func (r *reads) Unwrap() store.Store { return r.Store }

// countReads counts what the shop's client reads.
func (s *shop) countReads() *reads {
	r := &reads{Store: s.store}
	s.client = clientOf(s.t, r)
	return r
}

func TestAwaitReturnsATaskThatHasEnded(t *testing.T) {
	inBubble(t, "ends", func(t *testing.T, s *shop) {
		tusk.Handle(s.mux, func(_ context.Context, task *tusk.Task[count]) error {
			time.Sleep(time.Minute)
			switch task.Args.N {
			case 1:
				return tusk.Cancel("not needed")
			case 2:
				return tusk.Discard(errors.New("no such customer"))
			}
			return task.RecordOutput(task.Args.N)
		})
		_, stop := s.work(nil)
		defer s.stop(stop)
		ends := make(chan error, 3)
		for n, want := range []tusk.State{tusk.StateCompleted, tusk.StateCancelled, tusk.StateDiscarded} {
			id, begun := s.enqueue(count{n}, nil), time.Now()
			go func() {
				task, err := s.client.Await(context.Background(), id)
				switch {
				case err != nil:
					ends <- err
				case task.ID != id || task.State != want || (task.Reason == "") != (n == 0) || len(task.Detail.Attempts) != 1:
					ends <- fmt.Errorf("task %d: %v %q", n, task.State, task.Reason)
				case n == 0 && string(task.Detail.Output) != "0":
					ends <- fmt.Errorf("the output is %s", task.Detail.Output)
				case time.Since(begun) > time.Minute+3*time.Second:
					ends <- fmt.Errorf("task %d was reported after %v", n, time.Since(begun))
				default:
					ends <- nil
				}
			}()
		}
		for range 3 {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAwaitEndsWithoutATask(t *testing.T) {
	inBubble(t, "missing", func(t *testing.T, s *shop) {
		if _, err := s.client.Await(context.Background(), tusk.NewID()); !errors.Is(err, tusk.ErrNotFound) {
			t.Errorf("no such task: %v", err)
		}
		id, ctx := s.enqueue(count{}, nil), context.Background()
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := s.client.Await(short, id); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		time.AfterFunc(time.Minute, func() { _ = s.client.Delete(ctx, id) })
		if _, err := s.client.Await(ctx, id); !errors.Is(err, tusk.ErrNotFound) || time.Since(begun) < time.Minute {
			t.Errorf("deleted meanwhile: %v", err)
		}
	})
}

func TestCallsThatWaitForTasksReadThemTogether(t *testing.T) {
	inBubble(t, "many", func(t *testing.T, s *shop) {
		r, ctx := s.countReads(), context.Background()
		const many = 2500
		ids, ended := make([]tusk.ID, many), make(chan error, 2*many)
		for i := range ids {
			ids[i] = s.enqueue(count{}, nil)
		}
		for i, id := range ids {
			for range 2 { // two calls wait for each task
				go func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					ended <- s.client.AwaitEnd(ctx, id)
				}()
			}
		}
		time.Sleep(10 * time.Second)
		r.calls.Store(0)
		r.ids.Store(0)
		time.Sleep(10 * time.Second)
		if calls, read := r.calls.Load(), r.ids.Load(); calls > 120 || read < 8*many || read > 25*many {
			t.Errorf("in ten seconds, %d calls read %d ids for %d tasks", calls, read, many)
		}
		if r.withArgs.Load() > 0 || r.most.Load() > store.MaxPage {
			t.Errorf("%d calls read args; the largest had %d ids", r.withArgs.Load(), r.most.Load())
		}
		for _, id := range ids {
			if _, err := s.client.Cancel(ctx, id, ""); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		for range 2 * many {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		if late := time.Since(begun); late > 1500*time.Millisecond {
			t.Errorf("the last call returned after %v", late)
		}
		r.calls.Store(0)
		time.Sleep(time.Minute)
		if r.calls.Load() > 0 {
			t.Errorf("%d reads while nobody waits", r.calls.Load())
		}
	})
}

func TestAwaitSurvivesAnOutageOnceItHasReadTheTask(t *testing.T) {
	inBubble(t, "outage", func(t *testing.T, s *shop) {
		r, ctx := s.countReads(), context.Background()
		id := s.enqueue(count{}, nil)
		ended := make(chan error, 1)
		go func() { ended <- s.client.AwaitEnd(ctx, id) }()
		time.Sleep(time.Second)
		r.off.Store(true)
		time.Sleep(time.Minute)
		if err := s.client.AwaitEnd(ctx, id); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a call during the outage: %v", err)
		}
		if _, err := s.client.Cancel(ctx, id, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("during the outage: %v", err)
		default:
		}
		r.off.Store(false)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
