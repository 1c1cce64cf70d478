package ledgers_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
)

// refuses expects that a task with a key of a ledger that is away is not stored.
func refuses(t *testing.T, s *ledgers.Store, no int, when string) {
	t.Helper()
	_, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, no, nil)})
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("%s: a task with a key of ledger %d: %v", when, no, err)
	}
}

// A ledger moves to a standby, and then the old server is lost. The new one has an old copy of the ledger that stayed.
// Nobody uses it: neither processes that ran all the time nor those that start now.
func TestCopiesOfAPromotedStandbyAreNotUsedWhenTheOldServerIsLost(t *testing.T) {
	all, dsns := servers(t, 1)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	s, operator := open(t, all[0].DSN, standby.DSN), open(t, all[0].DSN, standby.DSN)
	ctx := context.Background()
	if _, err := operator.Move(ctx, operatorName(standby), 1); err != nil {
		t.Fatal(err)
	}
	later := keyedInto(s, 0, nil) // the copy does not have it
	add(t, s, later)
	eventually(t, "the move is seen", func() bool {
		_, err := s.Enqueue(ctx, []store.NewTask{keyedInto(s, 1, nil)})
		return err == nil
	})
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, s)
	_, _ = s.Places(ctx) // looks for ledgers at once
	refuses(t, s, 0, "a process that ran all the time")
	refuses(t, open(t, all[0].DSN, standby.DSN), 0, "a process that starts now")
	if err := all[0].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old server is back", func() bool {
		tasks, err := s.List(ctx, store.Filter{IDs: []store.ID{later.ID}})
		return err == nil && len(tasks) == 1
	})
	eventually(t, "the copies are dropped, one here and one there", func() bool {
		dropped, err := operator.DropCopies(ctx, false)
		return err == nil && len(dropped) == 2
	})
}

// A process has used a ledger of a higher epoch than the only one that answers.
func TestAProcessDoesNotGoBackToAnOldCopy(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	if err := errors.Join(s.Fence(ctx, 1), s.Open(ctx, "", 1)); err != nil {
		t.Fatal(err)
	}
	copied, err := postgres.New(ctx, ledgers.Pool(s), postgres.Options{Schema: "tusk_1_of_2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { copied.Close() })
	if err := all[0].Exec(ctx, "create schema tusk_1_of_2"); err != nil {
		t.Fatal(err)
	}
	if _, err := copied.Migrate(ctx, -1); err != nil { // a copy of the epoch before, with its tables
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, s)
	found, err := s.Places(ctx) // looks for ledgers at once
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, s, 1, "beside an old copy")
	for _, p := range found {
		if p.No == 1 && p.State == "open" || p.State == "away" && !strings.Contains(p.Why, "old copy") {
			t.Errorf("%+v", p)
		}
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is back", func() bool {
		_, err := s.Enqueue(ctx, []store.NewTask{keyedInto(s, 1, nil)})
		return err == nil
	})
}

// A standby that takes over has the same epoch.
func TestAStandbyThatTakesOverIsUsed(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	if err := errors.Join(s.Fence(ctx, 1), s.Open(ctx, "", 1)); err != nil {
		t.Fatal(err)
	}
	standby, err := all[1].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	if err := ledgers.Meet(ctx, s, standby.DSN); err != nil {
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, s)
	if err := standby.Exec(ctx, "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is used", func() bool {
		_, _ = s.Places(ctx) // looks for ledgers at once
		_, err := s.Enqueue(ctx, []store.NewTask{keyedInto(s, 1, nil)})
		return err == nil
	})
}
