package ledgers_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// grown divides a queue of four ledgers on the first server into eight. It stores a parent in one of the new ledgers,
// which are on the last server, and a child in an old one.
func grown(t *testing.T, dsns ...string) (parent, child store.NewTask) {
	t.Helper()
	if err := divide(8, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	parent = newTask(nil)
	for ledgers.PlaceOf(s, &parent) != 5 {
		parent.Workflow = tusk.NewID()
	}
	child = keyedInto(s, 0, needs(store.CancelOnFailure, parent.ID))
	add(t, s, parent, child)
	return parent, child
}

// ends ends the parent, once it is found, and expects that the child is next.
func ends(t *testing.T, s *ledgers.Store, me store.Candidate, parent, child store.NewTask) {
	t.Helper()
	ctx := context.Background()
	eventually(t, "the new ledgers are found", func() bool {
		found, err := s.List(ctx, store.Filter{IDs: []store.ID{parent.ID}})
		return err == nil && len(found) == 1
	})
	if _, err := s.Lead(ctx, me); err != nil { // there, too
		t.Fatal(err)
	}
	w := worker(t, s)
	for _, want := range []store.ID{parent.ID, child.ID} {
		var got []store.Task
		eventually(t, "a task is claimed", func() bool {
			if _, err := s.Admit(ctx, me.Term, 100); err != nil {
				t.Fatal(err)
			}
			got = claim(t, s, w, 1)
			return len(got) > 0
		})
		if got[0].ID != want {
			t.Fatalf("claimed %v, want %v", got[0].ID, want)
		}
		finish(t, s, store.Outcome{Task: &got[0], State: store.Completed, Attempt: 1})
	}
}

// A process starts while the server of all new ledgers is away, so it does not know that there are any. Tasks that it
// does not find are not gone.
func TestAProcessThatKnowsTooFewLedgersDeclaresNothingGone(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns[0]); err != nil {
		t.Fatal(err)
	}
	parent, child := grown(t, dsns...)
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	me := leader(t, s)
	for range 3 {
		_, _ = s.Admit(ctx, me.Term, 100) // a server is silent
		if got := stateOf(t, s, child.ID); got != store.Pending {
			t.Fatalf("the child is %v", got)
		}
	}
	another := keyedInto(s, 0, needs(store.CancelOnFailure, parent.ID))
	_, err := s.Enqueue(ctx, []store.NewTask{another})
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrNotCommitted) {
		t.Errorf("an enqueue that needs a task that is not found: %v", err)
	}
	if got, err := s.List(ctx, store.Filter{IDs: []store.ID{parent.ID}}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the parent: %v, %v", got, err)
	}
	edit := store.Edit{IDs: []store.ID{parent.ID}, Change: store.Change{Op: store.Cancel}}
	if got, err := s.Edit(ctx, edit); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an edit of the parent: %v, %v", got, err)
	}
	warnings, err := s.Check(ctx)
	if said := strings.Join(warnings, " "); err != nil || !strings.Contains(said, s.ServerName(1)+" does not answer") {
		t.Errorf("check: %q, %v", warnings, err)
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	places(t, s) // looks for ledgers at once
	ends(t, s, me, parent, child)
}

// Some tasks of an edit are not found, and may be in ledgers that are not known. The others are changed.
func TestAnEditThatFindsSomeTasksSaysWhich(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	there, missing := add(t, s, newTask(nil))[0].ID, store.ID(tusk.NewID())
	e := store.Edit{IDs: []store.ID{missing, there}, Change: store.Change{Op: store.Cancel}}
	got, err := s.Edit(t.Context(), e)
	held := new(store.HeldError)
	if !errors.As(err, &held) || len(held.Tasks) != 1 || held.Tasks[0] != missing ||
		!errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if len(got) != 2 || got[0] != (store.Edited{ID: missing, Result: store.Refused}) ||
		got[1] != (store.Edited{ID: there, Result: store.Changed, State: store.Cancelled}) {
		t.Errorf("%+v", got)
	}
}

// Callers that wait for a look share the next one. Tasks that are found need none, whoever names them twice.
func TestLookupsShareALook(t *testing.T) {
	s := open(t, three.DSN(t))
	there := add(t, s, newTask(nil))[0].ID
	before := ledgers.Looks(s)
	if got, err := s.List(t.Context(), store.Filter{IDs: []store.ID{there, there}}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if n := ledgers.Looks(s) - before; n != 0 {
		t.Errorf("%d looks for a task that is there", n)
	}
	resume := ledgers.HoldLooks(s)
	var done sync.WaitGroup
	for range 20 {
		done.Go(func() {
			if got, err := s.List(t.Context(), store.Filter{IDs: []store.ID{tusk.NewID()}}); err != nil || len(got) != 0 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	time.Sleep(time.Second) // they wait
	resume()
	done.Wait()
	if n := ledgers.Looks(s) - before; n < 1 || n > 5 {
		t.Errorf("%d looks for 20 tasks that are not there", n)
	}
}

// A process runs on while ledgers are added. It looks for those before it declares a task gone.
func TestAProcessThatHasNotSeenNewLedgersDeclaresNothingGone(t *testing.T) {
	_, dsns := servers(t, 1)
	if err := divide(4, dsns[0]); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	me := leader(t, s)
	parent, child := grown(t, dsns...)
	if got, err := s.List(t.Context(), store.Filter{IDs: []store.ID{parent.ID}}); len(got) == 0 && err == nil {
		t.Error("the parent is listed as gone")
	}
	_, _ = s.Admit(context.Background(), me.Term, 100)
	if got := stateOf(t, s, child.ID); got != store.Pending {
		t.Fatalf("the child is %v", got)
	}
	ends(t, s, me, parent, child)
}

// An attempt that no known ledger holds may be in a ledger that is not known.
func TestAProcessThatKnowsTooFewLedgersLosesNoOutcome(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns[0]); err != nil {
		t.Fatal(err)
	}
	if err := divide(8, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	n := newTask(nil)
	for ledgers.PlaceOf(s, &n) != 5 {
		n.Workflow = tusk.NewID()
	}
	add(t, s, n)
	task := claim(t, s, worker(t, s), 1)[0]
	add(t, s, newTask(func(later *store.NewTask) { later.Workflow = n.Workflow })) // now the claim is on the disk
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	few, ctx := open(t, dsns...), context.Background()
	task.Piece = 0 // another process has claimed it
	outcome := []store.Outcome{{Task: &task, State: store.Completed, Attempt: 1}}
	lost, err := few.Finish(ctx, outcome)
	if len(lost) > 0 || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("while its ledger is unknown, it is lost: %v, %v", lost, err)
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	places(t, few) // looks for ledgers at once
	eventually(t, "the outcome is written", func() bool {
		lost, err = few.Finish(ctx, outcome)
		return err == nil
	})
	if len(lost) > 0 {
		t.Errorf("it is lost in the end: %v", lost)
	}
}

// A process that leads does not know some ledgers. Turns of a limit may be held there, so it hands out none. Letters
// that concern those ledgers wait.
func TestALeaderThatKnowsTooFewLedgersHandsOutNoTurns(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns[0]); err != nil {
		t.Fatal(err)
	}
	if err := divide(8, dsns...); err != nil {
		t.Fatal(err)
	}
	knows, ctx := open(t, dsns...), context.Background()
	add(t, knows, newTask(nil))
	finished := store.Task{ID: tusk.NewID(), Kind: "k", Queue: "q", Args: []byte("{}"), State: store.Completed, Attempt: 1}
	for { // its ledger is new
		n := newTask(nil)
		if finished.Workflow = n.ID; ledgers.PlaceOf(knows, &store.NewTask{Workflow: n.ID}) == 5 {
			break
		}
	}
	_, err := ledgers.RestoreUnsent(ctx, knows, store.Record{Kind: "k", Name: "n", Body: []byte("{}")},
		[]store.Task{finished})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledgers.Doubt(ctx, knows, 7, true); err != nil { // its letter is in ledger 0
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	few := open(t, dsns...)
	me := leader(t, few)
	if got, err := few.Turns(ctx, me.Term, 10, 10); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("turns: %+v, %v", got, err)
	}
	for range 3 { // letters are delivered from the second look on
		if _, err := few.Admit(ctx, me.Term, 100); err != nil {
			t.Errorf("admit: %v", err)
		}
		time.Sleep(600 * time.Millisecond)
	}
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "turns are counted", func() bool {
		places(t, few)                               // looks for ledgers at once
		if _, err := few.Lead(ctx, me); err != nil { // there, too
			t.Fatal(err)
		}
		_, err := few.Turns(ctx, me.Term, 10, 10)
		return err == nil
	})
}
