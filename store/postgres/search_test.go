package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestASearchInStepsIsTheList makes tasks of all states and asks for them with
// filters made up: whatever the budget, the steps of a search add up to the list.
func TestASearchInStepsIsTheList(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	worker := store.Worker{ID: newID(), Host: "h"}
	if _, err := s.Extend(ctx, store.Beat{Worker: worker, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // made up, the same each time
	for round := range 12 {
		tasks := make([]store.NewTask, 50)
		for i := range tasks {
			n := r.IntN(100)
			tasks[i] = store.NewTask{ID: newID(), Kind: fmt.Sprintf("k%d", n%3), Queue: fmt.Sprintf("q%d", n%2), Args: []byte("{}"), Tags: []string{fmt.Sprintf("t%d", n%4)}}
			if n%3 == 0 {
				tasks[i].Tenant = fmt.Sprintf("tenant%d", n%2)
			}
			if n%5 == 0 {
				tasks[i].Key = fmt.Sprintf("key%d-%d", round, n%7)
			}
			if n%11 == 0 {
				tasks[i].Delay = time.Hour
			}
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker.ID, Queues: []string{"q0", "q1"}, Limit: 30, Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []store.Outcome
		for i := range claimed {
			o := store.Outcome{Task: &claimed[i], Attempt: claimed[i].Attempt, State: store.Completed}
			switch i % 6 {
			case 0:
				continue // it runs on
			case 1:
				o.State, o.Error, o.Fingerprint, o.Delay = store.Retryable, "x", "f1", time.Hour
			case 2:
				o.State, o.Error, o.Fingerprint, o.Reason = store.Discarded, "x", "f2", "gave up"
			case 3:
				o.State, o.Error, o.Fingerprint = store.Available, "", ""
				o.Attempt--
			}
			outcomes = append(outcomes, o)
		}
		if _, err := s.Finish(ctx, outcomes); err != nil {
			t.Fatal(err)
		}
	}
	one := func(p int, values ...string) []string {
		if r.IntN(100) >= p {
			return nil
		}
		return values[:1+r.IntN(len(values))]
	}
	found := 0
	for range 60 {
		f := store.Filter{Kinds: one(40, "k1", "k2"), Queues: one(30, "q1", "q0"), Tenants: one(30, "tenant0", "tenant1"), Tags: one(30, "t2"), Limit: 1 + r.IntN(40)}
		if r.IntN(2) == 0 {
			f.States = []store.State{store.States()[r.IntN(8)], store.States()[r.IntN(8)]}
		}
		if keys := one(10, "key3-0"); keys != nil {
			f.Key = keys[0]
		}
		if failures := one(15, "f1", "f2"); failures != nil {
			f.Fingerprint = failures[0]
		}
		if r.IntN(4) == 0 {
			f.From = time.Now().Add(-time.Hour)
		}
		all := f
		all.Limit = store.MaxPage
		want, err := s.List(ctx, all)
		if err != nil {
			t.Fatal(err)
		}
		var got []store.Task
		budget := 1 + r.IntN(100)
		for steps := 0; ; steps++ {
			page, last, err := s.Search(ctx, f, budget)
			if err != nil || len(page) > f.Limit {
				t.Fatalf("%+v: %d tasks, %v", f, len(page), err)
			}
			got = append(got, page...)
			if f.Before = last; last.IsZero() {
				break
			}
			if steps > 2000 {
				t.Fatalf("%+v: no end", f)
			}
		}
		if same := slices.EqualFunc(want, got, func(a, b store.Task) bool { return a.ID == b.ID && a.State == b.State }); !same {
			t.Errorf("%+v with a budget of %d: %d tasks, want %d", f, budget, len(got), len(want))
		}
		found += len(want)
	}
	if found < 400 {
		t.Errorf("the filters chose only %d tasks", found)
	}
}
