package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Thousands of tasks are not changed one by one under the locks that claims wait for.
func TestManyTasksAreChangedTogether(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	term, w := lead(t, s), startWorker(t, s)
	var ids [][16]byte
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
	if err := s.Maintain(ctx, term); err != nil { // tallies count them
		t.Fatal(err)
	}
	// edit returns how many were changed, how many of them by themselves, and how many
	// positions were written.
	edit := func(op store.Op, priority int, queue string, delay time.Duration) (changed, alone, positions int64) {
		t.Helper()
		before := number(t, pool, "select count(*) from tusk.lane_position")
		began := time.Now()
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local track_functions = 'all'"); err != nil {
				return err
			}
			const calls = "select coalesce(sum(calls), 0)::bigint from pg_stat_xact_user_functions where funcname = 'edit_one'"
			var others int64
			if err := tx.QueryRow(ctx, calls).Scan(&others); err != nil {
				return err
			}
			err := tx.QueryRow(ctx, postgres.InFunctions("select count(*) filter (where result = 1) from tusk_fn.edit($1, $2, $3, $4, null, $5, 'why')"),
				ids, int16(op), priority, queue, delay.Microseconds()).Scan(&changed)
			if err != nil {
				return err
			}
			err = tx.QueryRow(ctx, calls).Scan(&alone)
			alone -= others
			return err
		})
		if err != nil {
			t.Fatal(op, err)
		}
		t.Logf("%v of %d tasks took %v", op, len(ids), time.Since(began).Round(time.Millisecond))
		return changed, alone, number(t, pool, "select count(*) from tusk.lane_position") - before
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
		priority  int
		queue     string
		delay     time.Duration
		changed   int64
		alone     int64
		available int64
	}{
		{store.Reprioritize, 7, "", 0, 905, 25, 805}, // by themselves: those with a key, and whatever does not allow it
		{store.Reprioritize, 7, "", 0, 905, 25, 805},
		{store.Move, 0, "e", 0, 905, 25, 805},
		{store.Reschedule, 0, "", time.Hour, 905, 25, 0},
		{store.Retry, 0, "", 0, 925, 5, 925},
		{store.Cancel, 0, "", 0, 925, 5, 0},
		{store.Retry, 0, "", 0, 925, 5, 925},
		{store.Delete, 0, "", 0, 925, 5, 0},
	} {
		changed, alone, positions := edit(c.op, c.priority, c.queue, c.delay)
		if changed != c.changed || alone != c.alone || positions > 12 {
			t.Errorf("%v changed %d, %d of them alone, with %d positions: want %d, %d, and a few", c.op, changed, alone, positions, c.changed, c.alone)
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
