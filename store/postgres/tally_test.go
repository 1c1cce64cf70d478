package postgres_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store/postgres"
)

// A tally adds a bounded number of rows, so that claims do not wait for long after a backlog. It must count each row
// once, whatever commits between its parts.
func TestATallyCountsAFewRowsAtATime(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	late := begin(t, pool)
	in := txOf(t, s, late)
	later := begin(t, pool)
	for round := range 10 {
		switch round {
		case 1:
			if _, err := in.Enqueue(ctx, newTasks(3, "q")); err != nil { // in front of most rows, and open
				t.Fatal(err)
			}
		case 8:
			in := txOf(t, s, later)
			if _, err := in.Enqueue(ctx, newTasks(5, "q")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Enqueue(ctx, newTasks(8, "q")); err != nil {
			t.Fatal(err)
		}
	}
	lane := number(t, pool, "select id from tusk.lane")
	counted := func(want int64) {
		t.Helper()
		if n := number(t, pool, postgres.InFunctions("select sum(tasks)::bigint from tusk_fn.depth")); n != want {
			t.Fatalf("%d tasks are available, want %d", n, want)
		}
	}
	tasks, parts := int64(80), 0
	for more := true; more; parts++ {
		switch parts {
		case 3:
			if err := late.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			tasks += 3
		case 4:
			if err := later.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			tasks += 5
		case 20:
			t.Fatal("it does not end")
		}
		before := number(t, pool, "select coalesce(sum(added), 0)::bigint from tusk.lane_tally")
		if err := pool.QueryRow(ctx, s.Statement("tally_lane"), lane, 1000, 10).Scan(&more); err != nil {
			t.Fatal(err)
		}
		if n := number(t, pool, "select added from tusk.lane_tally") - before; n > 16+8 {
			t.Errorf("part %d counted %d rows", parts, n)
		}
		counted(tasks)
	}
	if parts < 5 || number(t, pool, "select added from tusk.lane_tally") != tasks {
		t.Errorf("%d parts", parts)
	}
}
