package ledgers_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// More tasks of other ledgers are needed than one look reads. Nothing is deleted before the ledgers have heard of all
// of them, and an unreadable letter does not keep needs from being read.
func TestMoreNeedsThanAPage(t *testing.T) {
	dsn := three.DSN(t)
	s, other, leader := open(t, dsn), open(t, dsn), open(t, dsn)
	ctx := context.Background()
	term := lead(t, leader)
	var parents, children []store.NewTask
	for range 1002 {
		parents = append(parents, keyedInto(s, 0, func(n *store.NewTask) { n.Queue = "parents" }))
	}
	slices.SortFunc(parents, func(a, b store.NewTask) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	parents[1000].Queue, parents[1001].Queue = "last", "last"
	for i := range parents {
		children = append(children, keyedInto(s, 1, needs(store.CancelOnFailure, parents[i].ID)))
	}
	add(t, s, parents...)
	add(t, s, children...)
	w := worker(t, other)
	end := func() {
		r := store.ClaimRequest{Worker: w, Queues: []string{"last"}, Limit: 1, Token: store.NewToken()}
		tasks, err := other.Claim(ctx, r)
		if err != nil || len(tasks) != 1 {
			t.Fatalf("%+v, %v", tasks, err)
		}
		finish(t, other, store.Outcome{Task: &tasks[0], State: store.Completed, Attempt: 1})
	}
	available := func() bool {
		counts, err := s.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(counts, func(c store.Count) bool {
			return c.Queue == "q" && c.State == store.Available && c.Tasks > 0
		})
	}
	end()
	if n, err := leader.Prune(ctx, term, store.Retention{Completed: time.Nanosecond}, 1000); err != nil || n != 1 {
		t.Fatalf("%d tasks were deleted, %v", n, err)
	}
	for range 4 {
		if _, err := leader.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if !available() {
		t.Error("a child whose parent has completed cannot run")
	}
	claim(t, other, w, 10)
	add(t, s, keyedInto(s, 1, func(n *store.NewTask) {
		n.Queue, n.Args, n.Delay = "tusk.letters", []byte(`[]`), time.Hour
	}))
	end()
	for range 4 {
		_, _ = leader.Admit(ctx, term, 1000) // its error names the letter
	}
	if !available() {
		t.Error("a letter that cannot be read keeps a child from running")
	}
}

// While one batch after the other is deleted, the needs of all ledgers are not read again for each batch, unless tasks
// are kept for so short a time that they may have ended since.
func TestNeedsAreNotReadForEachBatchThatIsDeleted(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	var parents, children []store.NewTask
	for range 1200 {
		parent := keyedInto(s, 0, func(n *store.NewTask) { n.Queue = "parents" })
		parents = append(parents, parent)
		children = append(children, keyedInto(s, 1, needs(store.CancelOnFailure, parent.ID)))
	}
	add(t, s, parents...)
	add(t, s, children...)
	trips := func(keep time.Duration) int64 {
		t.Helper()
		before, err := s.Measure(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(ctx, term, store.Retention{Completed: keep, Discarded: 24 * time.Hour}, 1000); err != nil {
			t.Fatal(err)
		}
		after, err := s.Measure(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return after.RoundTrips - before.RoundTrips
	}
	first, again, short := trips(time.Hour), trips(time.Hour), trips(time.Minute)
	if again >= first || short <= again {
		t.Errorf("trips: %d, then %d; and %d where tasks are kept for a minute", first, again, short)
	}
	t.Log(first, again, short)
}

// Two ledgers need different numbers of tasks. A look over all needs ends when each has been read to its end once.
func TestALookOverAllNeedsEndsWhenEachLedgerHasBeenReadOnce(t *testing.T) {
	ledgers.OneNeed(t.Cleanup)
	s := open(t, three.DSN(t))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	term := lead(t, s)
	var parents []store.NewTask
	var ids []store.ID
	for range 102 {
		n := keyedInto(s, 2, nil)
		parents, ids = append(parents, n), append(ids, n.ID)
	}
	add(t, s, parents...)
	add(t, s, keyedInto(s, 0, needs(store.CancelOnFailure, ids[:100]...)))
	add(t, s, keyedInto(s, 1, needs(store.CancelOnFailure, ids...))) // 101 and 103 pages end together after 10403 looks
	if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Nanosecond}, 1000); err != nil {
		t.Error(err)
	}
}

func TestAListWithoutStatesAsksForNone(t *testing.T) {
	s := open(t, three.DSN(t))
	parent := keyedInto(s, 1, nil)
	child := keyedInto(s, 0, needs(store.CancelOnFailure, parent.ID))
	add(t, s, parent, child)
	found, err := s.List(t.Context(), store.Filter{IDs: []store.ID{child.ID}, Detail: true, NoStates: true})
	if err != nil || len(found) != 1 || len(found[0].Detail.Needs) != 1 || found[0].Detail.Needs[0].State != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
