package together

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// runs records which calls were answered together. Each run takes a second.
type runs struct {
	mu   sync.Mutex
	all  [][]int
	done bool
	err  error
}

func (r *runs) run(ctx context.Context, all []int) (bool, error) {
	r.mu.Lock()
	r.all = append(r.all, slices.Clone(all))
	r.mu.Unlock()
	select {
	case <-time.After(time.Second):
		return r.done, r.err
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

func TestCallsThatMeetAreAnsweredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		r := &runs{done: true, err: failed}
		var calls Calls[int]
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if done, err := calls.Do(t.Context(), i, 1, nil, r.run); !done || err != failed {
					t.Errorf("call %d: %v, %v", i, done, err)
				}
			})
		}
		wait.Wait()
		if want := [][]int{{0}, {1, 2, 3}}; !slices.EqualFunc(r.all, want, slices.Equal) {
			t.Errorf("answered %v, want %v", r.all, want)
		}
		if calls.busy != 0 || len(calls.waiting) != 0 {
			t.Errorf("%d under way and %d waiting in the end", calls.busy, len(calls.waiting))
		}
	})
}

func TestManyCallsDoNotWaitForTheOnesBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runs{done: true}
		var calls Calls[int]
		var wait sync.WaitGroup
		began := time.Now()
		for i := range many + 1 {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if done, err := calls.Do(t.Context(), i, 1, nil, r.run); !done || err != nil {
					t.Errorf("call %d: %v, %v", i, done, err)
				}
			})
		}
		wait.Wait()
		if len(r.all) != 2 || time.Since(began) > 1500*time.Millisecond {
			t.Errorf("answered %v in %v, want two at a time", r.all, time.Since(began))
		}
	})
}

func TestCallsThatDoNotJoinGoOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runs{done: true}
		var calls Calls[int]
		var wait sync.WaitGroup
		for i := range 5 {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				calls.Do(t.Context(), i, Most/2, func(a, b int) bool { return a%2 == b%2 }, r.run)
			})
		}
		wait.Wait()
		if want := [][]int{{0}, {1, 3}, {2, 4}}; !slices.EqualFunc(r.all, want, slices.Equal) {
			t.Errorf("answered %v, want %v", r.all, want)
		}
	})
}

func TestACallWhoseTimeIsOverHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runs{done: true}
		var calls Calls[int]
		var wait sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i, one := range []context.Context{t.Context(), ctx, t.Context()} {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if done, _ := calls.Do(one, i, 1, nil, r.run); done == (i == 1) {
					t.Errorf("call %d: answered: %v", i, done)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		cancel()
		wait.Wait()
		if want := [][]int{{0}, {2}}; !slices.EqualFunc(r.all, want, slices.Equal) {
			t.Errorf("answered %v, want %v", r.all, want)
		}
	})
}

func TestATransactionEndsEarlyOnlyWhenAllItIsForHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runs{done: true}
		var calls Calls[int]
		var wait sync.WaitGroup
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for i, one := range []context.Context{t.Context(), short, t.Context()} {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if done, err := calls.Do(one, i, 1, nil, r.run); !done || err != nil {
					t.Errorf("call %d: %v, %v", i, done, err)
				}
			})
		}
		wait.Wait()
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if done, err := calls.Do(gone, 3, 1, nil, r.run); !done || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call alone: %v, %v", done, err)
		}
	})
}

func TestCallsOfARunThatDidNothingGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runs{}
		var calls Calls[int]
		var wait sync.WaitGroup
		for i := range 3 {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if done, err := calls.Do(t.Context(), i, 1, nil, r.run); done || err != nil {
					t.Errorf("call %d: %v, %v", i, done, err)
				}
			})
		}
		wait.Wait()
	})
}

func TestACallWithoutPatienceGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runs{done: true}
		calls := Calls[int]{Patience: 100 * time.Millisecond}
		var wait sync.WaitGroup
		began := time.Now()
		for i := range 2 {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				done, err := calls.Do(t.Context(), i, 1, nil, r.run)
				if done != (i == 0) || err != nil {
					t.Errorf("call %d: %v, %v", i, done, err)
				}
				if took := time.Since(began); i == 1 && took > 110*time.Millisecond {
					t.Errorf("it has waited for %v", took)
				}
			})
		}
		wait.Wait()
		if want := [][]int{{0}}; !slices.EqualFunc(r.all, want, slices.Equal) {
			t.Errorf("answered %v, want %v", r.all, want)
		}
	})
}

func TestAPanicHoldsUpNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls Calls[int]
		var wait sync.WaitGroup
		wait.Go(func() {
			defer func() { _ = recover() }()
			_, _ = calls.Do(t.Context(), 1, 1, nil, func(context.Context, []int) (bool, error) {
				time.Sleep(time.Second)
				panic("planned")
			})
		})
		for i := range 3 {
			wait.Go(func() {
				time.Sleep(time.Millisecond)
				if done, err := calls.Do(t.Context(), 2, 1, nil, (&runs{done: true}).run); !done || err != nil {
					t.Errorf("call %d: %v, %v", i, done, err)
				}
			})
		}
		wait.Wait()
		if calls.busy != 0 || len(calls.waiting) != 0 {
			t.Errorf("%d under way and %d waiting in the end", calls.busy, len(calls.waiting))
		}
	})
}
