package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Half of a lease of packs is finished in runs of consecutive ids. Tasks that were finished before are lost
// nonetheless, and tasks that an open transaction holds are held. The same holds if the caller has lost, or
// changed, what the claim said about where the tasks lay.
func TestPartsOfALeaseAreAcceptedOnce(t *testing.T) {
	for name, piece := range map[string]func(i int, given int32) int32{
		"as claimed":     func(_ int, given int32) int32 { return given },
		"forgotten":      func(int, int32) int32 { return 0 },
		"some forgotten": func(i int, given int32) int32 { return given * int32(i/30%2) },
		"all the same":   func(int, int32) int32 { return 7 },
		"with a ledger":  func(_ int, given int32) int32 { return given | 3<<postgres.PieceBits },
	} {
		t.Run(name, func(t *testing.T) { partsOfALease(t, piece) })
	}
}

func partsOfALease(t *testing.T, piece func(i int, given int32) int32) {
	ctx := t.Context()
	s, pool := fresh(t)
	w := startWorker(t, s)
	if _, err := s.Enqueue(ctx, newPacks(400, "q")); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Token: store.NewToken(), Queues: []string{"q"}, Limit: 400})
	if err != nil || len(tasks) != 400 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	for i := range tasks {
		tasks[i].Piece = piece(i, tasks[i].Piece)
	}
	end := func(part []store.Task, want ...store.ID) {
		t.Helper()
		lost, err := s.Finish(ctx, completed(part))
		if err != nil || len(lost) != len(want) ||
			slices.ContainsFunc(lost, func(id store.ID) bool { return !slices.Contains(want, id) }) {
			t.Errorf("lost %d of %d, %v; want %d", len(lost), len(part), err, len(want))
		}
	}
	open := func(want int64) {
		t.Helper()
		var n int64
		err := pool.QueryRow(ctx, postgres.InFunctions("select coalesce(sum(tasks), 0)::bigint from tusk_fn.load")).Scan(&n)
		if err != nil || n != want {
			t.Errorf("%d tasks are open, %v; want %d", n, err, want)
		}
	}
	end(tasks[:100])
	open(300)
	end(tasks[50:150], idsOfTasks(tasks[50:100])...)
	open(250)
	end(slices.Concat(tasks[160:170], tasks[180:260], tasks[399:])) // runs with holes, and the end of a block
	open(159)

	tx := begin(t, pool)
	finish(t, txOf(t, s, tx), tasks[300:301])
	if lost, err := s.Finish(ctx, completed(tasks[290:310])); err == nil || len(lost) > 0 ||
		errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("%v, %v: an open transaction finishes one of them", lost, err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	end(tasks, idsOfTasks(slices.Concat(tasks[:150], tasks[160:170], tasks[180:260], tasks[290:310], tasks[399:]))...)
	open(0)
	for i, state := range states(t, s, idsOfTasks(tasks)) {
		if state != store.Completed {
			t.Fatalf("task %d is %v", i, state)
		}
	}
}

func idsOfTasks(tasks []store.Task) []store.ID {
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	return ids
}

// A lease that consists of packs and rows is finished as a whole, whatever the tasks say about where they lay.
func TestALeaseOfPacksAndRowsIsFinishedAtOnce(t *testing.T) {
	ctx := t.Context()
	s, pool := fresh(t)
	w := startWorker(t, s)
	for _, piece := range []func(given int32) int32{
		func(given int32) int32 { return given },
		func(int32) int32 { return 0 },
		func(given int32) int32 { return given | 3<<postgres.PieceBits },
	} {
		for _, n := range []int{100, 3, 70} { // three tasks are single rows, with consecutive ids
			if _, err := s.Enqueue(ctx, newPacks(n, "q")); err != nil {
				t.Fatal(err)
			}
		}
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Token: store.NewToken(), Queues: []string{"q"}, Limit: 200})
		if err != nil || len(tasks) != 173 {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		for i := range tasks {
			tasks[i].Piece = piece(tasks[i].Piece)
		}
		if lost, err := s.Finish(ctx, completed(tasks)); err != nil || len(lost) > 0 {
			t.Fatalf("%d are lost, %v", len(lost), err)
		}
		if n := number(t, pool, "select count(*) from tusk.lease"); n != 0 {
			t.Errorf("%d leases are left", n)
		}
		for i, state := range states(t, s, idsOfTasks(tasks)) {
			if state != store.Completed {
				t.Fatalf("task %d is %v", i, state)
			}
		}
	}
}
