package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Thousands of tasks are not changed one by one under the locks for which claims wait.
func TestManyTasksAreChangedTogether(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	var ids []store.ID
	add := func(n int, queue string, change func(*store.NewTask)) {
		t.Helper()
		tasks := newTasks(n, queue)
		for i := range tasks {
			ids = append(ids, tasks[i].ID)
			change(&tasks[i])
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	add(20, "d", func(*store.NewTask) {})
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"d"}, Limit: 20, Token: store.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := completed(tasks)
	for i := range outcomes {
		outcomes[i].State = store.Discarded
	}
	if _, err := s.Finish(ctx, outcomes); err != nil {
		t.Fatal(err)
	}
	add(400, "a", func(*store.NewTask) {})
	add(400, "b", func(*store.NewTask) {})
	add(100, "c", func(n *store.NewTask) { n.Delay = time.Hour })
	add(5, "a", func(n *store.NewTask) { n.Key = n.ID.String() })
	if err := s.Maintain(ctx, term); err != nil { // adds them to the tallies
		t.Fatal(err)
	}
	// edit returns how many tasks were changed, in how many trips, and how many positions were written.
	edit := func(op store.Op, priority int16, queue string, delay time.Duration) (changed, trips, positions int64) {
		t.Helper()
		before, trips := number(t, pool, "select count(*) from tusk.lane_position"), s.Trips()
		began := time.Now()
		change := store.Change{Op: op, Priority: priority, Queue: queue, Delay: delay, Reason: "why"}
		edited, err := s.Edit(ctx, store.Edit{IDs: ids, Change: change})
		if err != nil {
			t.Fatal(op, err)
		}
		for _, e := range edited {
			if e.Result == store.Changed {
				changed++
			}
		}
		t.Logf("%v of %d tasks took %v", op, len(ids), time.Since(began).Round(time.Millisecond))
		return changed, s.Trips() - trips, number(t, pool, "select count(*) from tusk.lane_position") - before
	}
	available := func(want int64) {
		t.Helper()
		counts, err := s.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got int64
		for _, c := range counts {
			if c.State == store.Available {
				got += c.Tasks
			}
		}
		if got != want {
			t.Errorf("%d available, want %d", got, want)
		}
	}
	for _, c := range []struct {
		op        store.Op
		priority  int16
		queue     string
		delay     time.Duration
		changed   int64
		available int64
	}{
		{store.Reprioritize, 7, "", 0, 905, 805},
		{store.Reprioritize, 7, "", 0, 905, 805},
		{store.Move, 0, "e", 0, 905, 805},
		{store.Reschedule, 0, "", time.Hour, 905, 0},
		{store.Retry, 0, "", 0, 925, 925},
		{store.Cancel, 0, "", 0, 925, 0},
		{store.Retry, 0, "", 0, 925, 925},
		{store.Delete, 0, "", 0, 925, 0},
	} {
		changed, trips, positions := edit(c.op, c.priority, c.queue, c.delay)
		if changed != c.changed || trips > 5 || positions > 12 {
			t.Errorf("%v changed %d in %d trips, with %d positions: want %d, and a few",
				c.op, changed, trips, positions, c.changed)
		}
		available(c.available)
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		available(c.available)
	}
	if list, err := s.List(ctx, store.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("%d are left, %v", len(list), err)
	}
}

// A child comes between the look for the children of a task that is cancelled and the cancel itself, and its parent
// seems not to have ended.
func TestAChildThatComesWhileItsParentIsCancelledIsNotMissed(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	admit := leader(t, s)
	for range 100 {
		parent := newTasks(1, "q")[0]
		if _, err := s.Enqueue(ctx, []store.NewTask{parent}); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, pool)
		if _, err := tx.Exec(ctx, "lock table tusk.dead in share mode"); err != nil {
			t.Fatal(err)
		}
		cancelled := make(chan error, 1)
		go func() { cancelled <- editing(s, store.Cancel, 0, parent.ID)(ctx) }()
		eventually(t, "the cancel waits to write", func() bool { return number(t, pool, blocked) == 1 || len(cancelled) > 0 })
		late := child(parent.ID)
		if _, err := s.Enqueue(ctx, []store.NewTask{late}); err != nil {
			t.Fatal(err)
		}
		doubts := number(t, pool, "select count(*) from tusk.doubt")
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		var held *store.HeldError
		if err := <-cancelled; errors.As(err, &held) {
			continue // the child came too late, as the cancel no longer waits
		} else if err != nil {
			t.Fatal(err)
		}
		admit()
		if state := stateOf(t, s, late.ID); state != store.Cancelled {
			t.Errorf("the child is %v, with %d doubts while its parent was cancelled", state, doubts)
		}
		return
	}
	t.Error("the child came too late each time")
}

func TestTasksWhoseTimesNoProgramCanHoldAreEdited(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil { // so that the lane has a name
		t.Fatal(err)
	}
	for _, op := range []store.Op{store.Retry, store.Reprioritize, store.Cancel, store.Delete} {
		rows, err := pool.Query(ctx, postgres.InFunctions(`
			insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, line)
			select tusk_fn.new_id(), 1, tusk_fn.lane_of('q', 0), x.at, now(), 0, 0, 'job', '{}', null
			from unnest('{infinity,294275-01-01,-infinity}'::timestamptz[]) x(at) returning id`))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil || len(ids) != 3 {
			t.Fatal(ids, err)
		}
		for _, id := range ids {
			edited, err := s.Edit(ctx, store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: op, Queue: "q", Priority: 5}})
			if err != nil || edited[0].Result != store.Changed {
				t.Errorf("%v: %+v, %v", op, edited, err)
			}
		}
	}
}
