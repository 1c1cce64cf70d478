package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A parent is claimed and completed after a chore has seen it as unfinished, and before the chore commits. The chore
// holds the child, since another of its parents has completed.
func TestAParentThatEndsBesideTheSettlingOfItsDoubtIsNotMissed(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	early, late := started(t, s, w, 1), newTasks(1, "q")
	if _, err := s.Enqueue(ctx, late); err != nil {
		t.Fatal(err)
	}
	both := child(early[0].ID, late[0].ID)
	tx := begin(t, pool)
	u, _ := s.Tx(tx)
	if _, err := u.Enqueue(ctx, []store.NewTask{both}); err != nil {
		t.Fatal(err)
	}
	finish(t, s, early)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	chore := begin(t, pool)
	settle := postgres.InFunctions("select tusk_fn.settle(array(select n from tusk.doubt))")
	if _, err := chore.Exec(ctx, settle); err != nil {
		t.Fatal(err)
	}
	ends := completed(claimSome(t, s, w, 1))
	var held *store.HeldError
	lost, err := s.Finish(ctx, ends)
	if len(lost) > 0 || err != nil && !errors.As(err, &held) {
		t.Fatal(lost, err)
	}
	if err := chore.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if held != nil { // then it is tried again
		if lost, err := s.Finish(ctx, ends); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
	}
	if _, err := s.Admit(ctx, term, 1000); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, s, both.ID); state != store.Available {
		t.Errorf("the child is %v, and both of its parents have completed", state)
	}
}

// If a task that goes on was cancelled, the tasks that it brings are dropped, but not those that other tasks bring.
func TestACancelledTaskDropsNothingThatOthersBring(t *testing.T) {
	s, _ := fresh(t)
	ctx := context.Background()
	tasks := started(t, s, startWorker(t, s), 2)
	edited, err := s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[0].ID}, Change: store.Change{Op: store.Cancel}})
	if err != nil || edited[0].Result != store.Requested {
		t.Fatal(edited, err)
	}
	spawned, next := newTasks(1, "q"), newTasks(1, "q")
	outcomes := completed(tasks)
	outcomes[0].State, outcomes[0].Then = store.Pending, spawned
	outcomes[0].Needs = []store.Need{{Task: spawned[0].ID}}
	outcomes[1].Then = next
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if a, b := stateOf(t, s, tasks[0].ID), stateOf(t, s, tasks[1].ID); a != store.Cancelled || b != store.Completed {
		t.Errorf("the cancelled task is %v, the other one %v", a, b)
	}
	list, err := s.List(ctx, store.Filter{IDs: []store.ID{spawned[0].ID, next[0].ID}})
	if err != nil || len(list) != 1 || list[0].ID != next[0].ID {
		t.Errorf("of what they bring there is %v, want what the completed one brings alone; %v", list, err)
	}
}

// If a task were pruned before the tasks that need it are told, nobody would know how it ended.
func TestACompletedTaskIsKeptUntilThoseThatNeedItAreTold(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	parents := started(t, s, w, 2)
	plain, odd := child(parents[0].ID), child(parents[1].ID)
	if _, err := s.Enqueue(ctx, []store.NewTask{plain, odd}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, "select from tusk.waiting for update"); err != nil {
		t.Fatal(err)
	}
	outcomes := completed(parents)
	outcomes[1].Reason = "why" // so that it has a row of its own
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	keep := store.Retention{Completed: time.Microsecond}
	if due, err := s.Due(ctx, keep, "", 100); err != nil || len(due.Tasks) > 0 {
		t.Errorf("%d tasks are handed to an archive, %v", len(due.Tasks), err)
	}
	if n, err := s.Prune(ctx, term, keep, 100); err != nil || n > 0 {
		t.Errorf("%d tasks are pruned, %v", n, err)
	}
	if _, err := s.Admit(ctx, term, 100); err != nil {
		t.Fatal(err)
	}
	for _, id := range []store.ID{plain.ID, odd.ID} {
		if state := stateOf(t, s, id); state != store.Available {
			t.Errorf("a child is %v, and what it needs was completed", state)
		}
	}
	if n, err := s.Prune(ctx, term, keep, 100); err != nil || n != 2 {
		t.Errorf("%d tasks of 2 are pruned afterwards, %v", n, err)
	}
}

// A task is needed for the first time between an archive's look at due tasks and the end of that look.
func TestACompletedTaskIsNotReleasedOnceSomebodyNeedsIt(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	parents := started(t, s, startWorker(t, s), 1)
	outcomes := completed(parents)
	outcomes[0].Reason = "why" // so that it has a row of its own
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	due, err := s.Due(ctx, store.Retention{Completed: time.Microsecond}, "", 100)
	if err != nil || len(due.Tasks) != 1 {
		t.Fatal(due, err)
	}
	if _, err := pool.Exec(ctx, "insert into tusk.open_need (parent, child, policy) values ($1, $2, 0)",
		[16]byte(parents[0].ID), [16]byte(newID())); err != nil {
		t.Fatal(err)
	}
	held := new(store.HeldError)
	_, err = s.Release(ctx, due.Receipt)
	if !errors.As(err, &held) || !slices.Equal(held.Tasks, []store.ID{parents[0].ID}) {
		t.Errorf("released what somebody needs: %v", err)
	}
	if _, err := pool.Exec(ctx, "delete from tusk.open_need"); err != nil {
		t.Fatal(err)
	}
	if back, err := s.Release(ctx, due.Receipt); err != nil || len(back) > 0 {
		t.Errorf("not released afterwards: %v, %v", back, err)
	}
}

// Two tasks end, each of which brings a task with the key of the other. Their keys are locked in one order.
func TestKeysOfWhatTasksBringAreLockedInOrder(t *testing.T) {
	s, _ := open(t, migrated.DSN(t, "pool_max_conns=8"), false)
	const rounds = 50
	var keys [2][]string
	for i := range rounds {
		keys[0], keys[1] = append(keys[0], fmt.Sprint("a", i)), append(keys[1], fmt.Sprint("b", i))
	}
	queues := [2]string{"q", "r"}
	var outcomes [2][]store.Outcome
	for i, queue := range queues {
		outcomes[i] = completed(running(t, s, withKeys(newTasks(rounds, queue), keys[i]...)))
	}
	var held atomic.Int32
	for round := range rounds {
		var both errgroup.Group
		for i := range outcomes {
			end := outcomes[i][round : round+1]
			end[0].Then = withKeys(newTasks(1, queues[1-i]), outcomes[1-i][round].Task.Key)
			end[0].Then[0].OnConflict = store.Skip
			both.Go(func() error {
				var by *store.HeldError
				err := finishing(s, end)(context.Background())
				for ; errors.As(err, &by); err = finishing(s, end)(context.Background()) {
					held.Add(1)
				}
				return err
			})
		}
		if err := both.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if n := held.Load(); n > rounds/5 {
		t.Errorf("%d of %d pairs waited for each other", n, rounds)
	}
}

// Doubts that cannot be settled yet do not keep later ones from being looked at.
func TestDoubtsBehindThoseOfAHeldTaskAreSettled(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term := lead(t, s)
	s.ResolveFor(0) // each call looks at one part
	parents := newTasks(1, "q")
	parents[0].Delay = time.Hour
	if _, err := s.Enqueue(ctx, parents); err != nil {
		t.Fatal(err)
	}
	children := make([]store.NewTask, 450)
	for i := range children {
		children[i] = child(parents[0].ID)
	}
	if _, err := s.Enqueue(ctx, children); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `insert into tusk.doubt (child, parent) select o.child, o.parent from tusk.open_need o
		on conflict do nothing`); err != nil {
		t.Fatal(err)
	}
	last := child(newID()) // its parent does not exist
	if _, err := s.Enqueue(ctx, []store.NewTask{last}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, "select from tusk.waiting where id = $1 for update", [16]byte(parents[0].ID)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if state := stateOf(t, s, last.ID); state != store.Cancelled {
		t.Errorf("the last task is %v, and what it needs does not exist", state)
	}
}
