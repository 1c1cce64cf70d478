package ledgers_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/storetest"
)

// A ledger was away when a worker last beat. Once it is back, the worker claims there without another beat, and the
// ledger does not take for unknown what the worker holds.
func TestALedgerThatIsBackHearsOfAWorkerFromItsFirstClaim(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	w, ctx := storetest.NewID(), t.Context()
	beat := func(seq int64, holds ...store.Token) {
		t.Helper()
		_, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: w}, TTL: 5 * time.Minute, Seq: seq, Seen: seq - 1,
			Holds: holds})
		if err != nil {
			t.Fatal(err)
		}
	}
	beat(1)
	add(t, s, keyedInto(s, 1, nil))
	before := claim(t, s, w, 1)[0]
	add(t, s, keyedInto(s, 1, func(n *store.NewTask) { n.Queue = "other" })) // now the claim is on the disk
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, s)
	beat(2, before.Lease)
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { _, err := s.Count(ctx); return err == nil })
	add(t, s, keyedInto(s, 1, nil))
	var after []store.Task
	eventually(t, "the worker claims there", func() bool {
		after = claim(t, s, w, 1)
		return len(after) > 0
	})
	beat(3, before.Lease, after[0].Lease)
	beat(4, before.Lease, after[0].Lease)
	if strays, err := s.Rescue(ctx, lead(t, s), 100); err != nil || len(strays) > 0 {
		t.Errorf("taken back: %+v, %v", strays, err)
	}
	for _, task := range []store.Task{before, after[0]} {
		finish(t, s, store.Outcome{Task: &task, State: store.Completed, Attempt: 1})
	}
}

// Ledgers are added after a worker's last beat. It claims there, and nobody considers it dead.
func TestANewLedgerHearsOfAWorkerFromItsFirstClaim(t *testing.T) {
	dsn := pgtest.DSN(t)
	grownOf(t, dsn, 2)
	s := open(t, dsn)
	w := worker(t, s)
	grownOf(t, dsn, 4)
	places(t, s) // looks for ledgers at once
	for range 40 {
		add(t, s, newTask(nil))
	}
	got := 0
	eventually(t, "tasks of all ledgers are claimed", func() bool {
		got += len(claim(t, s, w, 100))
		return got == 40
	})
}
