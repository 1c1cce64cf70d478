package ledgers_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// hold runs a statement in a transaction that stays open until release is called or the test ends. Its application name
// is report.
func hold(t *testing.T, dsn, statement string) (release func()) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), withoutPool(dsn))
	if err != nil {
		t.Fatal(err)
	}
	release = func() { c.Close(context.Background()) }
	t.Cleanup(release)
	for _, text := range []string{"set application_name = report", "begin", statement} {
		if _, err := c.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

// Another command holds the lock of changes for some time while a fenced ledger is opened, as after a move that failed.
func TestAnOpeningWaitsForAnotherCommand(t *testing.T) {
	dsn := three.DSN(t)
	s := open(t, dsn)
	if err := s.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	release := hold(t, dsn, fmt.Sprintf("select pg_advisory_xact_lock(%d)", ledgers.EpochLock))
	defer time.AfterFunc(7*time.Second, release).Stop()
	if err := s.Open(t.Context(), "", 1); err != nil {
		t.Error(err)
	}
}

// A call that has fenced three ledgers fails, and another command holds the lock of changes. Each ledger is tried, and
// the error names the commands that open them.
func TestEachLedgerIsOpenedAgainBehindALock(t *testing.T) {
	ledgers.ShortLocks(t.Cleanup)
	dsn := three.DSN(t)
	s := open(t, dsn)
	var release func()
	err := ledgers.FenceAndFail(t.Context(), s, func() {
		release = hold(t, dsn, fmt.Sprintf("select pg_advisory_xact_lock(%d)", ledgers.EpochLock))
	}, 0, 1, 2)
	for no := range 3 {
		want := fmt.Sprintf("ledger %d stays fenced on %s: tusk ledgers open %[1]d --on %[2]s: another command may be at "+
			"work", no, s.ServerName(0))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	release()
	if err := s.Open(t.Context(), s.ServerName(0), 0, 1, 2); err != nil {
		t.Error(err)
	}
}

// A fence names the transaction that it has waited for, and the dropping of a copy, too.
func TestCommandsSayWhoUsesATable(t *testing.T) {
	ledgers.ShortLocks(t.Cleanup)
	dsn, empty := three.DSN(t), pgtest.DSN(t)
	s := open(t, dsn, empty)
	hold(t, dsn, "lock table tusk_2_of_3.log in row exclusive mode")
	err := s.Fence(t.Context(), 2)
	if err == nil || !strings.Contains(err.Error(), "tusk_2_of_3 on "+s.ServerName(0)+" is used by process") ||
		!strings.Contains(err.Error(), "(report)") {
		t.Errorf("a fence: %v", err)
	}
	copied := open(t, empty, dsn)
	for _, text := range []string{"create schema tusk_1_of_3_fenced", "create table tusk_1_of_3_fenced.t ()"} {
		if _, err := ledgers.Pool(copied).Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	hold(t, empty, "select from tusk_1_of_3_fenced.t")
	_, err = s.DropCopies(t.Context(), false)
	if err == nil || !strings.Contains(err.Error(), "is used by process") || !strings.Contains(err.Error(), "(report)") {
		t.Errorf("a dropping: %v", err)
	}
}

// A ledger is given up. While it gets tables, which may take long, other commands do not wait.
func TestOtherCommandsDoNotWaitWhileALedgerIsGivenUp(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(3, dsns...); err != nil { // ledger 2 on the second server
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	s, other := open(t, dsns[0]), open(t, dsns[0])
	sum := sha256.Sum256([]byte("migrate tusk_2_of_3"))
	migrations := int64(binary.BigEndian.Uint64(sum[:8])>>16) & (1<<47 - 1)
	release := hold(t, dsns[0], fmt.Sprintf("select pg_advisory_xact_lock(%d)", migrations))
	given := make(chan error, 1)
	go func() {
		_, err := s.GiveUp(context.Background(), false, "", 2)
		given <- err
	}()
	eventually(t, "the schema exists", func() bool { return strings.Contains(schemasOf(t, dsns[0]), "tusk_2_of_3") })
	within, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := errors.Join(other.Fence(within, 1), other.Open(within, "", 1)); err != nil {
		t.Error(err)
	}
	if err := other.Fence(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "no tables yet") {
		t.Errorf("a ledger without tables is fenced: %v", err)
	}
	release()
	if err := <-given; err != nil {
		t.Error(err)
	}
	if got, want := places(t, other), "tusk_0_of_3 open, tusk_1_of_3 open, tusk_2_of_3 open"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A call of GiveUp is cut off. Another call that does not name the same ledgers says which to name.
func TestAGiveUpThatWasCutOffSaysHowToContinue(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil { // ledgers 2 and 3 on the second server
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	s, ctx := open(t, dsns[0]), t.Context()
	refuses := func(want, on string, numbers ...int) {
		t.Helper()
		if _, err := s.GiveUp(ctx, false, on, numbers...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("give-up %v: %v, want %q", numbers, err, want)
		}
	}
	for _, text := range []string{"create schema tusk_2_of_4", "create schema tusk_3_of_4"} {
		if err := all[0].Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	refuses("name it, too: tusk ledgers give-up 2 3", "", 3)
	refuses("has begun it on "+s.ServerName(0), "elsewhere", 2, 3)
	two, err := postgres.New(ctx, ledgers.Pool(s), postgres.Options{Schema: "tusk_2_of_4"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { two.Close() })
	if _, err := two.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	refuses("leave it out: tusk ledgers give-up 3", "", 2, 3)
	if _, err := s.GiveUp(ctx, false, "", 3); err != nil {
		t.Fatal(err)
	}
	refuses("which answers", "", 2, 3)
}
