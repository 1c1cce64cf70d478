package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// child makes a task in a queue of its own that needs others.
func child(parents ...store.ID) store.NewTask {
	n := newTasks(1, "children")[0]
	for _, id := range parents {
		n.Needs = append(n.Needs, store.Need{Task: id})
	}
	return n
}

func stateOf(t testing.TB, s *postgres.Store, id store.ID) store.State {
	t.Helper()
	list, err := s.List(context.Background(), store.Filter{IDs: []store.ID{id}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0].State
}

// started enqueues tasks and claims them.
func started(t testing.TB, s *postgres.Store, worker store.ID, n int) []store.Task {
	t.Helper()
	if _, err := s.Enqueue(context.Background(), newTasks(n, "q")); err != nil {
		t.Fatal(err)
	}
	return claimSome(t, s, worker, n)
}

func leader(t testing.TB, s *postgres.Store) (admit func()) {
	t.Helper()
	l, err := s.Lead(context.Background(), store.Candidate{ID: newID(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := s.Admit(context.Background(), l.Term, 1000); err != nil {
			t.Error(err)
		}
	}
}

func TestAParentThatEndsWhileItsChildIsEnqueuedIsNotMissed(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	admit := leader(t, s)
	var ids []store.ID
	for range 40 {
		parents := started(t, s, w, 2)
		inside, outside := child(parents[0].ID), child(parents[0].ID, parents[1].ID)
		ids = append(ids, inside.ID, outside.ID)
		var g sync.WaitGroup
		g.Go(func() {
			if lost, err := s.Finish(ctx, completed(parents[:1])); err != nil || len(lost) > 0 {
				t.Error(lost, err)
			}
		})
		g.Go(func() {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback(ctx)
			if lost, err := finishIn(ctx, s, tx, parents[1:]); err != nil || len(lost) > 0 {
				t.Error(lost, err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		})
		g.Go(func() {
			if _, err := s.Enqueue(ctx, []store.NewTask{outside}); err != nil {
				t.Error(err)
			}
		})
		g.Go(func() {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback(ctx)
			u, _ := s.Tx(tx)
			if _, err := u.Enqueue(ctx, []store.NewTask{inside}); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		})
		g.Wait()
		if t.Failed() {
			return
		}
	}
	admit()
	for _, id := range ids {
		if state := stateOf(t, s, id); state != store.Available {
			t.Fatalf("child is %v", state)
		}
	}
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 0 {
		t.Errorf("%d doubts are left", n)
	}
}

func finishIn(ctx context.Context, s *postgres.Store, tx any, tasks []store.Task) ([]store.ID, error) {
	u, err := s.Tx(tx)
	if err != nil {
		return nil, err
	}
	return u.Finish(ctx, completed(tasks))
}

func TestAnOpenTransactionTellsChildrenAtItsCommitAndHoldsNobodyUp(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	for _, commit := range []bool{true, false} {
		parents := started(t, s, w, 2)
		both := child(parents[0].ID, parents[1].ID)
		if _, err := s.Enqueue(ctx, []store.NewTask{both}); err != nil {
			t.Fatal(err)
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if lost, err := finishIn(ctx, s, tx, parents[:1]); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		brief, cancel := context.WithTimeout(ctx, 20*time.Second)
		if lost, err := s.Finish(brief, completed(parents[1:])); err != nil || len(lost) > 0 {
			t.Fatal("a sibling waited for the open transaction:", lost, err)
		}
		cancel()
		if state := stateOf(t, s, both.ID); state != store.Pending {
			t.Fatal(state)
		}
		end, want := tx.Rollback, store.Pending
		if commit {
			end, want = tx.Commit, store.Available
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		if state := stateOf(t, s, both.ID); state != want {
			t.Fatalf("child is %v, want %v", state, want)
		}
	}
}

func TestADoubtLastsAsLongAsSomebodyMayBeEndingTheParent(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	admit := leader(t, s)
	parents := started(t, s, w, 1)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := finishIn(ctx, s, tx, parents); err != nil {
		t.Fatal(err)
	}
	late := child(parents[0].ID)
	if _, err := s.Enqueue(ctx, []store.NewTask{late}); err != nil {
		t.Fatal(err)
	}
	admit()
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 1 || stateOf(t, s, late.ID) != store.Pending {
		t.Fatalf("%d doubts", n)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	admit()
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 0 || stateOf(t, s, late.ID) != store.Available {
		t.Fatalf("%d doubts", n)
	}
}

func TestAdmitWaitsForNoTransactionThatHoldsAChild(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	admit := leader(t, s)
	parents := newTasks(2, "q")
	held, free := child(parents[0].ID), child(parents[0].ID)
	held.Key = "k"
	waits := child(parents[1].ID)
	if _, err := s.Enqueue(ctx, append(parents, held, free, waits)); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := s.Tx(tx)
	again := child()
	again.Key, again.OnConflict = "k", store.Replace
	if results, err := u.Enqueue(ctx, []store.NewTask{again}); err != nil || results[0].Result != store.Replaced {
		t.Fatal(results, err)
	}
	if _, err := tx.Exec(ctx, "select from tusk.waiting where id = $1 for update", [16]byte(waits.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{parents[0].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, s)
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 1 {
		t.Fatal(len(claimed), err)
	}
	finish(t, s, claimed)
	admit()
	for id, want := range map[store.ID]store.State{held.ID: store.Pending, free.ID: store.Cancelled,
		waits.ID: store.Pending} {
		if state := stateOf(t, s, id); state != want {
			t.Errorf("%v is %v, want %v", id, state, want)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	admit()
	for id, want := range map[store.ID]store.State{held.ID: store.Cancelled, waits.ID: store.Available} {
		if state := stateOf(t, s, id); state != want {
			t.Errorf("%v is %v, want %v", id, state, want)
		}
	}
}

func TestFailuresReachAllThatFollowsButWhatIsHeld(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	admit := leader(t, s)
	parent := newTasks(1, "q")[0]
	children, grandchildren := []store.NewTask{}, []store.NewTask{}
	for range 600 {
		c := child(parent.ID)
		children, grandchildren = append(children, c), append(grandchildren, child(c.ID))
	}
	if _, err := s.Enqueue(ctx, append(append([]store.NewTask{parent}, children...), grandchildren...)); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := grandchildren[100]
	if _, err := tx.Exec(ctx, "select from tusk.waiting where id = $1 for update", [16]byte(held.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{parent.ID}, Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	admit() // up to 1,000
	admit()
	if n := number(t, pool, "select count(*) from tusk.dead where state = 7"); n != 1200 {
		t.Fatalf("%d tasks are cancelled, want all of 1,201 but the one that a transaction holds", n)
	}
	if state := stateOf(t, s, held.ID); state != store.Pending {
		t.Errorf("the task that a transaction holds is %v", state)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	admit()
	if state := stateOf(t, s, held.ID); state != store.Cancelled {
		t.Errorf("after the transaction the task that it held is %v", state)
	}
	if n := number(t, pool, "select (select count(*) from tusk.doubt) + (select count(*) from tusk.open_need)"); n != 0 {
		t.Errorf("%d needs and doubts are left", n)
	}
}

func TestOutcomesInsideATransactionBringTasks(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	tasks := started(t, s, w, 2)
	next, spawned := newTasks(1, "q")[0], newTasks(1, "q")[0]
	outcomes := completed(tasks)
	outcomes[0].Then = []store.NewTask{next}
	outcomes[1].State, outcomes[1].Then = store.Pending, []store.NewTask{spawned}
	outcomes[1].Needs = []store.Need{{Task: spawned.ID}}
	for _, commit := range []bool{false, true, false} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		u, _ := s.Tx(tx)
		if _, err := u.Finish(ctx, outcomes); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.List(ctx, store.Filter{})
	if err != nil || len(list) != 4 || stateOf(t, s, tasks[1].ID) != store.Pending {
		t.Fatalf("%d tasks, %v", len(list), err)
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 2 {
		t.Fatal(len(claimed), err)
	}
	finish(t, s, claimed)
	if state := stateOf(t, s, tasks[1].ID); state != store.Available {
		t.Fatal(state)
	}
}
