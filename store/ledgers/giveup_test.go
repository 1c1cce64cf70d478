package ledgers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// A server is lost for good. Its ledger is given up and begins anew: processes use it, outcomes for it are lost,
// letters for it arrive, children of its tasks do not wait forever, and when it comes back it is an old copy.
func TestALedgerIsGivenUp(t *testing.T) {
	all, dsns := servers(t, 2)
	ctx := t.Context()
	if err := divide(3, dsns...); err != nil { // ledger 2 on the second server
		t.Fatal(err)
	}
	before := open(t, dsns...)
	if err := errors.Join(before.Fence(ctx, 2), before.Open(ctx, "", 2)); err != nil { // its epoch is 2
		t.Fatal(err)
	}
	w := worker(t, before)
	parent := keyedInto(before, 2, nil)
	child := keyedInto(before, 0, func(n *store.NewTask) {
		n.Queue = "children"
		needs(store.ContinueOnFailure, parent.ID)(n)
	})
	add(t, before, parent, child)
	held := claim(t, before, w, 1)
	if _, err := before.GiveUp(ctx, false, "", 2); err == nil || !strings.Contains(err.Error(), "it is on") {
		t.Errorf("a ledger that answers: %v", err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	awaitAway(t, before)
	if err := ledgers.WriteLetters(ctx, before, 0, keyedInto(before, 2, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := before.GiveUp(ctx, false, "", 2); err == nil || !strings.Contains(err.Error(), "out of the URL") {
		t.Errorf("a server that may be back: %v", err)
	}

	operator, s := open(t, dsns[0]), open(t, dsns[0])
	dry, err := operator.GiveUp(ctx, true, "", 2)
	want := []ledgers.Loss{{No: 2, Schema: "tusk_2_of_3", Server: operator.ServerName(0), Missing: 1, Letters: 1}}
	if err != nil || !slices.Equal(dry, want) {
		t.Fatalf("%+v, %v; want %+v", dry, err, want)
	}
	if got := places(t, operator); !strings.Contains(got, "tusk_2_of_3 away") {
		t.Errorf("a dry run: %s", got)
	}
	if lost, err := operator.GiveUp(ctx, false, "", 2); err != nil || !slices.Equal(lost, want) {
		t.Fatalf("%+v, %v; want %+v", lost, err, want)
	}
	if _, err := operator.GiveUp(ctx, false, "", 2); err == nil {
		t.Error("it was given up twice")
	}
	me := leader(t, s)
	eventually(t, "the letter is delivered, and the child may run", func() bool {
		if _, err := s.Lead(ctx, me); err != nil { // a ledger that is back adopts the term
			return false
		}
		if _, err := s.Admit(ctx, me.Term, 100); err != nil {
			return false
		}
		n, err := ledgers.CountIn(ctx, s, 2, store.Filter{Queues: []string{"q"}})
		return err == nil && n == 1 && stateOf(t, s, child.ID) == store.Available
	})
	eventually(t, "a process that ran all the time uses it", func() bool {
		_, _ = before.Places(ctx) // looks for ledgers at once
		_, err := before.Enqueue(ctx, []store.NewTask{keyedInto(before, 2, nil)})
		return err == nil
	})
	o := store.Outcome{Task: &held[0], State: store.Completed, Attempt: 1}
	if lost, err := s.Finish(ctx, []store.Outcome{o}); err != nil || !slices.Equal(lost, []store.ID{parent.ID}) {
		t.Errorf("an outcome for the lost ledger: lost %v, %v", lost, err)
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	late := open(t, dsns...)
	eventually(t, "the lost server is back", func() bool {
		_, err := late.Count(ctx)
		return err == nil
	})
	if got := places(t, late); !strings.Contains(got, "tusk_2_of_3 open, tusk_2_of_3 copy") &&
		!strings.Contains(got, "tusk_2_of_3 copy, tusk_2_of_3 open") {
		t.Errorf("%s", got)
	}
	if got := stateOf(t, late, parent.ID); got != 0 {
		t.Errorf("the old copy is used: its task is %v", got)
	}
}

// The home ledger is given up. Its records are lost, and the queue has a leader again.
func TestHomeIsGivenUp(t *testing.T) {
	all, dsns := servers(t, 2)
	ctx := t.Context()
	if err := divide(2, dsns[1], dsns[0]); err != nil { // home on the second server
		t.Fatal(err)
	}
	before := open(t, dsns...)
	me := leader(t, before)
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns[0])
	if _, err := s.GiveUp(ctx, false, "", 0); err != nil {
		t.Fatal(err)
	}
	if n := keyedInto(s, 0, nil); len(add(t, s, n)) != 1 {
		t.Error("nothing was stored")
	}
	other := store.Candidate{ID: store.ID(store.NewToken()), TTL: me.TTL}
	eventually(t, "somebody leads", func() bool {
		l, err := s.Lead(ctx, other)
		return err == nil && l.Term > 0
	})
}

// GiveUp was cut off after it had made the schema.
func TestAGiveUpThatWasCutOffIsFinished(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil { // ledgers 2 and 3 on the second server
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Exec(t.Context(), "create schema tusk_2_of_4"); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns[0])
	if _, err := s.GiveUp(t.Context(), false, "", 2); err == nil || !strings.Contains(err.Error(), "name it, too") {
		t.Errorf("another ledger is lost: %v", err)
	}
	if _, err := s.GiveUp(t.Context(), false, "", 2, 3); err != nil {
		t.Fatal(err)
	}
	for no := range 4 {
		eventually(t, "it is used", func() bool {
			_, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, no, nil)})
			return err == nil
		})
	}
}

// Two commands give up a ledger at the same time, each on another server. Only one of them makes it.
func TestALedgerIsGivenUpOnce(t *testing.T) {
	all, dsns := servers(t, 3)
	if err := divide(3, dsns...); err != nil { // one ledger on each
		t.Fatal(err)
	}
	if err := all[2].Kill(); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i := range errs {
		s := open(t, dsns[:2]...)
		both.Go(func() { _, errs[i] = s.GiveUp(context.Background(), false, s.ServerName(i), 2) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("%v, %v: want one error", errs[0], errs[1])
	}
	if got, want := places(t, open(t, dsns[:2]...)), "tusk_0_of_3 open, tusk_1_of_3 open, tusk_2_of_3 open"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Nothing is given up that may still be had.
func TestALedgerThatIsFencedIsNotGivenUp(t *testing.T) {
	s := open(t, three.DSN(t))
	if err := s.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for no, want := range map[int]string{1: "tusk ledgers open 1", 0: "it is on", 3: "ledgers 0 to 2"} {
		if _, err := s.GiveUp(t.Context(), true, "", no); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ledger %d: %v", no, err)
		}
	}
}

// A letter in doubt does not wait until the new server has had as many transactions as the lost one.
func TestALetterInDoubtDoesNotCountTransactionsOfALostServer(t *testing.T) {
	for _, c := range []struct {
		looks [][2]int64
		over  bool
	}{
		{[][2]int64{{90, 100}, {95, 110}}, false},
		{[][2]int64{{90, 100}, {100, 110}}, true},
		{[][2]int64{{90, 100}, {7, 9}}, false},
		{[][2]int64{{90, 100}, {7, 9}, {9, 12}}, true},
	} {
		if got := ledgers.IsOver(c.looks...); got != c.over {
			t.Errorf("after %v: over %v, want %v", c.looks, got, c.over)
		}
	}
}
