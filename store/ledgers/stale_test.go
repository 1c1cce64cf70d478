package ledgers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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

// One of two ledgers cannot be fenced, so the other one is opened again. A fenced copy of that does not matter.
func TestAllLedgersAreFencedOrNone(t *testing.T) {
	_, dsns := servers(t, 1)
	dsn := three.DSN(t)
	s, operator := open(t, dsn), open(t, dsn, dsns[0])
	if err := errors.Join(operator.Fence(t.Context(), 1), operator.Open(t.Context(), "", 1)); err != nil {
		t.Fatal(err)
	}
	copied := open(t, dsns[0], dsn)
	if _, err := ledgers.Pool(copied).Exec(t.Context(), "create schema tusk_1_of_3_fenced"); err != nil {
		t.Fatal(err)
	}
	tx, err := ledgers.Pool(s).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "lock table tusk_2_of_3.log in row exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := operator.Fence(ctx, 1, 2); err == nil || !strings.Contains(err.Error(), "ledger 2") {
		t.Errorf("fenced beside an open transaction: %v", err)
	}
	want := "tusk_0_of_3 open, tusk_1_of_3 open, tusk_1_of_3_fenced fenced, tusk_2_of_3 open"
	if got := places(t, operator); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := operator.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	err = operator.Open(t.Context(), operator.ServerName(1), 1)
	if err == nil || !strings.Contains(err.Error(), "old copy") {
		t.Errorf("the copy is opened: %v", err)
	}
	if err := operator.Open(t.Context(), "", 1); err != nil {
		t.Error(err)
	}
}

// A server has a fenced copy of an open ledger, of the same epoch. It is dropped, and never opened instead of the
// ledger.
func TestAFencedCopyOfTheSameEpochIsACopy(t *testing.T) {
	_, dsns := servers(t, 1)
	dsn := three.DSN(t)
	s, copied := open(t, dsn, dsns[0]), open(t, dsns[0], dsn)
	if _, err := ledgers.Pool(copied).Exec(t.Context(), "create schema tusk_1_of_3_fenced"); err != nil {
		t.Fatal(err)
	}
	if err := s.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if dropped, err := s.DropCopies(t.Context(), true); err != nil || len(dropped) > 0 {
		t.Errorf("while the ledger is fenced, %+v would be dropped, %v", dropped, err)
	}
	err := s.Open(t.Context(), s.ServerName(1), 1)
	if err == nil || !strings.Contains(err.Error(), "old copy") {
		t.Errorf("the copy is opened: %v", err)
	}
	if err := s.Open(t.Context(), "", 1); err != nil {
		t.Fatal(err)
	}
	same := "comment on schema tusk_1_of_3_fenced is 'tusk epoch 2'"
	if _, err := ledgers.Pool(copied).Exec(t.Context(), same); err != nil {
		t.Fatal(err)
	}
	if dropped, err := s.DropCopies(t.Context(), false); err != nil || len(dropped) != 1 {
		t.Errorf("dropped %+v, %v", dropped, err)
	}
	if got := places(t, s); got != "tusk_0_of_3 open, tusk_1_of_3 open, tusk_2_of_3 open" {
		t.Errorf("%s", got)
	}
}

// A command was cut off after the first of its ledgers, and is repeated.
func TestAFenceAndAnOpeningCanBeRepeated(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := t.Context()
	if err := errors.Join(s.Fence(ctx, 1), s.Fence(ctx, 1, 2)); err != nil {
		t.Fatal(err)
	}
	want := "tusk_0_of_3 open, tusk_1_of_3 away, tusk_1_of_3_fenced fenced, tusk_2_of_3 away, tusk_2_of_3_fenced fenced"
	if got := places(t, s); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := errors.Join(s.Open(ctx, "", 1), s.Open(ctx, "", 1, 2)); err != nil {
		t.Fatal(err)
	}
	if got := places(t, s); got != "tusk_0_of_3 open, tusk_1_of_3 open, tusk_2_of_3 open" {
		t.Errorf("%s", got)
	}
}

// A command has looked at all servers, and then another one fences and opens a ledger. The first one would lower the
// epoch.
func TestACommandDoesNotChangeWhatAnotherHasChanged(t *testing.T) {
	s := open(t, three.DSN(t))
	fence, err := ledgers.FenceLater(t.Context(), s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Fence(t.Context(), 1), s.Open(t.Context(), "", 1)); err != nil {
		t.Fatal(err)
	}
	if err := fence(); err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("%v", err)
	}
	if got := places(t, s); got != "tusk_0_of_3 open, tusk_1_of_3 open, tusk_2_of_3 open" {
		t.Errorf("%s", got)
	}
}
