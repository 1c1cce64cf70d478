package tusk_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// looks counts how often tasks are looked for.
type looks struct {
	store.Store
	n atomic.Int64
}

func (l *looks) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	l.n.Add(1)
	time.Sleep(time.Millisecond)
	return l.Store.Claim(ctx, r)
}

func (l *looks) Unwrap() store.Store { return l.Store }

func TestCallsThatWaitForTheSameQueuesLookForTasksTogether(t *testing.T) {
	inBubble(t, "two hundred", func(t *testing.T, s *shop) {
		counted := &looks{Store: s.store}
		s.client = clientOf(t, counted)
		p, end := s.pull()
		defer end()
		const many = 200
		type answer struct {
			lent  []tusk.Lent
			after time.Duration
		}
		answers, begun := make(chan answer, many), time.Now()
		for range many {
			go func() {
				lent, err := p.Claim(context.Background(), tusk.Pull{Queues: []string{"mail", "default"}, Wait: 20 * time.Second})
				if err != nil {
					t.Error(err)
				}
				answers <- answer{lent, time.Since(begun)}
			}()
		}
		time.Sleep(5 * time.Second)
		before := counted.n.Load()
		for range 10 {
			time.Sleep(500 * time.Millisecond)
			s.enqueue(count{}, &tusk.Options{Queue: "other"})
		}
		if n := counted.n.Load() - before; n < 5 || n > 30 {
			t.Errorf("%d calls that wait for one queue look %d times in five seconds, while tasks come into another", many, n)
		}
		before = counted.n.Load()
		for i := range 3 {
			enqueued := time.Since(begun)
			s.enqueue(count{}, &tusk.Options{Queue: "mail"})
			if a := <-answers; len(a.lent) != 1 || a.after-enqueued > 100*time.Millisecond {
				t.Errorf("task %d came after %v: %v", i, a.after-enqueued, a.lent)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := counted.n.Load() - before; n > 20 {
			t.Errorf("three tasks were looked for %d times", n)
		}
		for range many - 3 {
			if a := <-answers; len(a.lent) > 0 || a.after < 20*time.Second {
				t.Errorf("without a task, a call ended after %v with %v", a.after, a.lent)
			}
		}
	})
}
