package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/tuskqueue/tusk/store"
)

// lineUp stores tasks that wait for their turns, alternating between the tenants, and returns their ids.
func lineUp(t *testing.T, s *Store, mark byte, n int, tenants ...string) (ids []store.ID) {
	t.Helper()
	for _, r := range mustEnqueue(t, s, tasksOf(n, func(i int, task *store.NewTask) {
		task.ID = store.ID{mark, byte(i >> 8), byte(i), 9}
		task.Turn, task.Tenant = true, tenants[i%len(tenants)]
	})...) {
		ids = append(ids, r.ID)
	}
	return ids
}

// tenantsIn returns the waiting tenants, in the order of a look.
func tenantsIn(t *testing.T, s *Store, term int64, groups int) (names []string) {
	t.Helper()
	all, err := s.Turns(t.Context(), term, groups, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if len(g.Waiting) > 0 {
			names = append(names, g.Tenant)
		}
	}
	return names
}

// another opens the same file as another process would.
func another(t *testing.T, s *Store) *Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+s.path)
	if err != nil {
		t.Fatal(err)
	}
	o, err := New(t.Context(), db, Options{CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// TestWhoHasWaitedLongestIsFirstThoughOthersBeforeHaveLeft has so many waiting tasks that they are read by group.
// Grants do not correct what a group's row says of the task that came first.
func TestWhoHasWaitedLongestIsFirstThoughOthersBeforeHaveLeft(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	ids := lineUp(t, s, 1, 3, "a", "b", "c")
	lineUp(t, s, 2, 1000, "a", "b", "c", "d")
	for i, want := range []string{"a", "b", "c", "a"} {
		if got := tenantsIn(t, s, term, 1); !slices.Equal(got, []string{want}) {
			t.Errorf("after %d grants %q is first, want %s", i, got, want)
		}
		if i < len(ids) {
			if n, err := s.Grant(t.Context(), term, ids[i:i+1]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if n := rowsOf(t, s, "tusk_turn where since <= 3"); n != 0 {
		t.Errorf("%d rows say that somebody waits who has left", n)
	}
	if got := tenantsIn(t, s, term, 10); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("in order: %q", got)
	}
}

// TestWhoComesBackIsSeenThoughAnotherProcessPruned makes the leader forget a tenant that another process remembers.
func TestWhoComesBackIsSeenThoughAnotherProcessPruned(t *testing.T) {
	s := openTest(t)
	other, term := another(t, s), leading(t, s)
	for round := range byte(3) {
		tenant := fmt.Sprint("t", round/2)
		ids := lineUp(t, s, 10+round, 2, tenant)
		for look, term := range map[*Store]int64{other: term, s: 0} {
			if got := tenantsIn(t, look, term, 10); !slices.Equal(got, []string{tenant}) {
				t.Fatalf("round %d: %q wait", round, got)
			}
		}
		if n, err := other.Grant(t.Context(), term, ids); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.Finish(t.Context(), ends(claimAll(t, s), store.Completed)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := other.Prune(t.Context(), term, store.Retention{Completed: time.Nanosecond}, 1000); err != nil {
				t.Fatal(err)
			}
		}
		if n := rowsOf(t, s, "tusk_turn"); n != 0 {
			t.Fatalf("round %d: %d rows are left", round, n)
		}
	}
}

// TestATaskThatIsEditedAfterALookGoesWhereItBelongs grants a turn to a task that the last look has seen in another
// place.
func TestATaskThatIsEditedAfterALookGoesWhereItBelongs(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	ids := lineUp(t, s, 1, 4, "a")
	if got := tenantsIn(t, s, term, 10); len(got) != 1 {
		t.Fatal(got)
	}
	other := another(t, s)
	for i, change := range []store.Change{{Op: store.Reprioritize, Priority: -7}, {Op: store.Cancel}} {
		if _, err := other.Edit(t.Context(), store.Edit{IDs: ids[i : i+1], Change: change}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Grant(t.Context(), term, append(ids, ids...)); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for where, want := range map[string]int{
		"tusk_lane where queue = 'q' and priority = -7 and available = 1": 1,
		"tusk_lane where queue = 'q' and priority = 0 and available = 2":  1,
		"tusk_waiting": 0,
	} {
		if n := rowsOf(t, s, where); n != want {
			t.Errorf("%d rows of %s, want %d", n, where, want)
		}
	}
}

// TestRowsOfATransactionThatWasRolledBackAreNotTakenForOthers has a look share a transaction with an enqueue, and
// another group get the row that was new in it.
func TestRowsOfATransactionThatWasRolledBackAreNotTakenForOthers(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	lineUp(t, s, 1, 1, "a")
	if got := tenantsIn(t, s, term, 10); !slices.Equal(got, []string{"a"}) {
		t.Fatal(got)
	}
	var refuses atomic.Bool
	err := s.writer.conn.conn.Raw(func(raw any) error {
		raw.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
			if refuses.Load() {
				return 1
			}
			return 0
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refuses.Store(true)
	_, err = s.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{2}, Kind: "k", Queue: "p", Tenant: "b", Turn: true}})
	if !errors.Is(err, store.ErrNotCommitted) {
		t.Error(err)
	}
	refuses.Store(false)

	ids := lineUp(t, s, 3, 1, "c")
	if got := tenantsIn(t, s, term, 10); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%q wait, want a and c", got)
	}
	if n, err := s.Grant(t.Context(), term, ids); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if tasks := claimAll(t, s); len(tasks) != 1 || tasks[0].ID != ids[0] {
		t.Errorf("of the queue it got, %+v were claimed", tasks)
	}
}

// TestRowsOfAnotherLedgerAreNotTakenForThoseOfTheLast drops and creates the schema again under a leader.
func TestRowsOfAnotherLedgerAreNotTakenForThoseOfTheLast(t *testing.T) {
	s := openTest(t)
	for round := range byte(2) {
		for _, version := range []int64{0, -1} {
			if _, err := s.Migrate(t.Context(), version); err != nil {
				t.Fatal(err)
			}
		}
		term, tenant := leading(t, s), fmt.Sprint("t", round)
		lineUp(t, s, 1, 2, tenant)
		if got := tenantsIn(t, s, term, 10); !slices.Equal(got, []string{tenant}) {
			t.Errorf("%q wait, want %s", got, tenant)
		}
	}
}
