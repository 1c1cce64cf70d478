package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

func TestUnique(t *testing.T) {
	ctx := context.Background()
	args := func(text string) tusk.Args { return tusk.RawArgs{Name: "count", JSON: []byte(text)} }
	put := func(s *shop, a tusk.Args, o tusk.Options) tusk.Enqueued {
		s.t.Helper()
		r, err := s.client.Enqueue(ctx, a, &o)
		if err != nil {
			s.t.Fatal(err)
		}
		return r
	}
	inBubble(t, "kind, queue, tenant and the chosen args are the identity", func(t *testing.T, s *shop) {
		u := tusk.Options{Unique: &tusk.Unique{Args: []string{"customer.id", "month"}}}
		first := put(s, args(`{"customer":{"id":7,"name":"a"},"month":"may"}`), u)
		again := put(s, args(`{"month":"may", "customer":{"name":"b","id":7}}`), u)
		if first.Result != tusk.Added || again.Result != tusk.Skipped || again.ID != first.ID {
			t.Errorf("%+v, %+v", first, again)
		}
		other := u
		other.Tenant = "acme"
		queue := u
		queue.Queue = "q"
		for name, r := range map[string]tusk.Enqueued{
			"other args":   put(s, args(`{"customer":{"id":8},"month":"may"}`), u),
			"a part":       put(s, args(`{"customer":{"id":7}}`), u),
			"other tenant": put(s, args(`{"customer":{"id":7},"month":"may"}`), other),
			"other queue":  put(s, args(`{"customer":{"id":7},"month":"may"}`), queue),
			"other kind":   put(s, tusk.RawArgs{Name: "other", JSON: []byte(`{"customer":{"id":7},"month":"may"}`)}, u),
			"all args":     put(s, args(`{"customer":{"id":7},"month":"may"}`), tusk.Options{Unique: &tusk.Unique{}}),
		} {
			if r.Result != tusk.Added {
				t.Errorf("%s: %v", name, r.Result)
			}
		}
		if r := put(s, args(`{"month":"may","customer":{"id":7}}`),
			tusk.Options{Unique: &tusk.Unique{}}); r.Result != tusk.Skipped {
			t.Errorf("all args, in another order: %v", r.Result)
		}
	})
	inBubble(t, "without a window it is free again when the task has ended", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(nil)
		for range 3 {
			r := put(s, count{1}, tusk.Options{Unique: &tusk.Unique{}})
			if r.Result != tusk.Added {
				t.Error(r.Result)
			}
			s.await(r.ID, tusk.StateCompleted)
		}
		s.stop(stop)
	})
	inBubble(t, "in a window one is enqueued, whatever became of it", func(t *testing.T, s *shop) {
		tusk.HandleFunc(s.mux, func(_ context.Context, c count) error {
			if c.N == 2 {
				return tusk.Discard(errors.New("no"))
			}
			return nil
		})
		_, stop := s.work(nil)
		u := tusk.Options{Unique: &tusk.Unique{Window: time.Hour}}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		for hour := range 3 {
			for n := range 3 {
				r := put(s, count{n}, u)
				if r.Result != tusk.Added {
					t.Errorf("hour %d: %v", hour, r.Result)
				}
				if n == 2 {
					s.await(r.ID, tusk.StateDiscarded)
				} else {
					s.await(r.ID, tusk.StateCompleted)
				}
			}
			time.Sleep(30 * time.Minute)
			for n := range 3 {
				if r := put(s, count{n}, u); r.Result != tusk.Skipped {
					t.Errorf("hour %d: %v", hour, r.Result)
				}
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		}
		s.stop(stop)
	})
	inBubble(t, "duplicates within a batch are skipped", func(t *testing.T, s *shop) {
		var batch []tusk.NewTask
		for i := range 30 {
			batch = append(batch, tusk.NewTask{Args: count{i % 10},
				Options: &tusk.Options{Unique: &tusk.Unique{Window: time.Hour * time.Duration(i%2)}}})
		}
		results, err := s.client.EnqueueMany(ctx, batch)
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]int{}
		for _, r := range results {
			sums[r.Result.String()]++
		}
		if sums["added"] != 10 || sums["skipped"] != 20 {
			t.Error(sums)
		}
	})
	inBubble(t, "mistakes are reported", func(t *testing.T, s *shop) {
		for name, o := range map[string]tusk.Options{
			"a key beside it":     {Key: "k", Unique: &tusk.Unique{}},
			"a window to replace": {OnConflict: tusk.Replace, Unique: &tusk.Unique{Window: time.Hour}},
			"a short window":      {Unique: &tusk.Unique{Window: time.Millisecond}},
			"no such field":       {Unique: &tusk.Unique{Args: []string{"customer"}}},
			"no name":             {Unique: &tusk.Unique{Args: []string{""}}},
			"many":                {Unique: &tusk.Unique{Args: make([]string, 17)}},
		} {
			if _, err := s.client.Enqueue(ctx, count{1}, &o); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w := tusk.NewWorkflow()
		w.Task("a", count{}, &tusk.Options{Unique: &tusk.Unique{}})
		if _, err := s.client.EnqueueWorkflow(ctx, w); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
}

type Invoice struct {
	Customer int    `json:"customer"`
	Month    string `json:"month"`
	Note     string `json:"note"`
}

func (Invoice) Kind() string { return "invoice" }

// At most one invoice for each customer and month is enqueued in a day, however often it
// is requested, and even if the first is already written.
func ExampleUnique() {
	ctx, client := context.Background(), newClient()
	once := &tusk.Options{Unique: &tusk.Unique{Args: []string{"customer", "month"}, Window: 24 * time.Hour}}
	for _, invoice := range []Invoice{{7, "May", ""}, {7, "May", "please"}, {8, "May", ""}} {
		r, err := client.Enqueue(ctx, invoice, once)
		fmt.Println(r.Result, err)
	}
	// Output:
	// added <nil>
	// skipped <nil>
	// added <nil>
}
