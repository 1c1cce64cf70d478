package ledgers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// keyedInto makes a task whose key is in a ledger.
func keyedInto(s *ledgers.Store, no int, change func(*store.NewTask)) store.NewTask {
	for {
		n := newTask(change)
		if n.Key = n.ID.String(); ledgers.PlaceOf(s, &n) == no {
			return n
		}
	}
}

// More letters wait than fit on a page. A task that needs one in the oldest letter waits, and all are delivered.
func TestMoreLettersThanAPage(t *testing.T) {
	dsn := three.DSN(t)
	s, leader := open(t, dsn), open(t, dsn)
	ctx := context.Background()
	term := lead(t, leader)
	parent := keyedInto(s, 1, nil)
	child := newTask(needs(store.CancelOnFailure, parent.ID))
	if err := ledgers.WriteLetters(ctx, s, 0, parent, child); err != nil {
		t.Fatal(err)
	}
	var more []store.NewTask
	for range store.MaxPage {
		more = append(more, keyedInto(s, 2, nil))
	}
	if err := ledgers.WriteLetters(ctx, s, 0, more...); err != nil {
		t.Fatal(err)
	}
	for look := range 3 {
		if _, err := leader.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		if got := stateOf(t, s, child.ID); got != store.Pending {
			t.Fatalf("after look %d, while what it needs is in a letter or waits, the child is %v", look, got)
		}
	}
	eventually(t, "all letters are delivered", func() bool {
		if _, err := leader.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}, NoArgs: true})
		return err == nil && len(left) == 0
	})
	if got := stateOf(t, s, parent.ID); got != store.Available {
		t.Errorf("the oldest letter's task is %v", got)
	}
}

// A user's transaction holds the keys of the tasks in many letters. The leader does not wait for each of them before
// it admits due tasks.
func TestManyLettersWhoseKeysAreHeldDelayNoChore(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	tx, err := ledgers.Pool(s).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	var letters, holders []store.NewTask
	for range 100 { // a tenth of a second each
		n := keyedInto(s, 1, nil)
		letters = append(letters, n)
		holders = append(holders, newTask(func(h *store.NewTask) { h.Key = n.Key }))
	}
	goes := keyedInto(s, 1, nil)
	if _, err := in.Enqueue(ctx, holders); err != nil {
		t.Fatal(err)
	}
	if err := ledgers.WriteLetters(ctx, s, 0, append(letters, goes)...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		began := time.Now()
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	eventually(t, "the letter whose key is free is delivered", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		return stateOf(t, s, goes.ID) == store.Available
	})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are delivered once the keys are free", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}, NoArgs: true})
		return err == nil && len(left) == 0
	})
}

// An unreadable letter is named in an error, and does not block the others.
func TestALetterThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	late := keyedInto(s, 1, nil)
	if err := ledgers.WriteLetters(ctx, s, 0, late); err != nil {
		t.Fatal(err)
	}
	broken := newTask(func(n *store.NewTask) {
		n.Queue, n.Key, n.Args, n.Delay = "tusk.letters", store.ScheduleKeys+"home", []byte(`[]`), time.Hour
	})
	add(t, s, broken)
	var err error
	for range 2 {
		_, err = s.Admit(ctx, term, 1000)
	}
	if err == nil || !strings.Contains(err.Error(), broken.ID.String()) {
		t.Errorf("the letter is not named: %v", err)
	}
	if got := stateOf(t, s, late.ID); got != store.Available {
		t.Errorf("the other letter's task is %v", got)
	}
}

// A letter whose task needs a task on a server that is away does not block the others.
func TestALetterThatWaitsHoldsUpNoOther(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil { // ledgers 0 and 1 on the first, 2 and 3 on the second
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	term := lead(t, s)
	parent := keyedInto(s, 2, nil)
	add(t, s, parent)
	waits, goes := keyedInto(s, 1, needs(store.CancelOnFailure, parent.ID)), keyedInto(s, 1, nil)
	after := keyedInto(s, 1, needs(store.CancelOnFailure, waits.ID))
	if err := ledgers.WriteLetters(ctx, s, 0, waits, goes, after); err != nil {
		t.Fatal(err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the death of the server is seen", func() bool {
		_, err := s.Count(ctx)
		return errors.Is(err, store.ErrUnavailable)
	})
	there := func(id store.ID) bool {
		found, err := s.List(ctx, store.Filter{IDs: []store.ID{id}})
		return err == nil && len(found) == 1
	}
	eventually(t, "the other letter is delivered", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		return there(goes.ID)
	})
	if err := all[1].Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all letters are delivered", func() bool {
		_, err := s.Admit(ctx, term, 1000)
		return err == nil && there(waits.ID) && there(after.ID)
	})
	for _, id := range []store.ID{waits.ID, after.ID} {
		if got := stateOf(t, s, id); got != store.Pending {
			t.Errorf("a task whose need has not ended is %v", got)
		}
	}
}

// The server that has a letter died during its delivery. It comes back after days, when the letter's task has run.
func TestALetterThatIsSentAgainAfterDays(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	n := keyedInto(s, 1, nil)
	deliver := func() {
		if err := ledgers.WriteLetters(ctx, s, 0, n); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Admit(ctx, term, 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	deliver()
	w := worker(t, s)
	task := claim(t, s, w, 1)[0]
	finish(t, s, store.Outcome{Task: &task, State: store.Completed, Attempt: 1})
	if _, err := ledgers.Pool(s).Exec(ctx, "update tusk_1_of_3.delivered set at = at - interval '6 days'"); err != nil {
		t.Fatal(err)
	}
	deliver()
	if again := claim(t, s, w, 1); len(again) > 0 {
		t.Errorf("it runs again: %+v", again)
	}
}

// An ephemeral task was stored and has run before its letter in doubt is resolved.
func TestATaskThatNeedNotBeKeptIsFoundByItsLetter(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	if _, err := ledgers.Doubt(ctx, s, 1, true); err != nil {
		t.Fatal(err)
	}
	w := worker(t, s)
	task := claim(t, s, w, 1)[0]
	finish(t, s, store.Outcome{Task: &task, State: store.Completed, Attempt: 1, Forget: true})
	eventually(t, "the letter is resolved", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}})
		return err == nil && len(left) == 0
	})
	if again := claim(t, s, w, 1); len(again) > 0 {
		t.Errorf("it runs again: %+v", again)
	}
}

// A user's transaction holds the key of a letter's task. The task waits, and so do tasks that need it, but no others.
// This is not an error.
func TestALetterWhoseKeyIsHeldHoldsUpNoOther(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	held, goes := keyedInto(s, 1, nil), keyedInto(s, 1, nil)
	after := keyedInto(s, 1, needs(store.CancelOnFailure, held.ID))
	tx, err := ledgers.Pool(s).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Enqueue(ctx, []store.NewTask{newTask(func(n *store.NewTask) { n.Key = held.Key })}); err != nil {
		t.Fatal(err)
	}
	if err := ledgers.WriteLetters(ctx, s, 0, held, goes, after); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Errorf("the leader fails: %v", err)
		}
	}
	states := [3]store.State{stateOf(t, s, held.ID), stateOf(t, s, goes.ID), stateOf(t, s, after.ID)}
	if states != [3]store.State{0, store.Available, 0} {
		t.Errorf("while the key is held: %v", states)
	}
	left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}})
	if err != nil || len(left) != 2 {
		t.Errorf("%d letters are left, %v", len(left), err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "they are delivered once it is free", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		states = [3]store.State{stateOf(t, s, held.ID), stateOf(t, s, goes.ID), stateOf(t, s, after.ID)}
		return states == [3]store.State{store.Available, store.Available, store.Pending}
	})
}

// More letters are held than one look delivers. Those after them are delivered by the next looks.
func TestHeldLettersDoNotHideThoseBehindThem(t *testing.T) {
	ledgers.SmallPages(t.Cleanup)
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	held := make([]store.NewTask, 12)
	for i := range held {
		held[i] = keyedInto(s, 1, nil)
	}
	tx, err := ledgers.Pool(s).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range held {
		n := newTask(func(n *store.NewTask) { n.Key = held[i].Key })
		if _, err := in.Enqueue(ctx, []store.NewTask{n}); err != nil {
			t.Fatal(err)
		}
	}
	goes := keyedInto(s, 1, nil)
	if err := ledgers.WriteLetters(ctx, s, 0, append(held, goes)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last letter is delivered", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		return stateOf(t, s, goes.ID) == store.Available
	})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are delivered once their keys are free", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}})
		return err == nil && len(left) == 0
	})
}

// A task is enqueued that needs a task in a letter. It waits for that as for any other.
func TestAChildWhoseParentIsInALetterWaits(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	inDoubt, err := ledgers.Doubt(ctx, s, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	keyed := keyedInto(s, 1, nil)
	if err := ledgers.WriteLetters(ctx, s, 0, keyed); err != nil {
		t.Fatal(err)
	}
	var children []store.ID
	for _, policy := range []store.OnFailure{store.CancelOnFailure, store.ContinueOnFailure} {
		for _, parent := range []store.ID{inDoubt, keyed.ID} {
			child := newTask(func(n *store.NewTask) { n.Queue = "children" })
			needs(policy, parent)(&child)
			children = append(children, add(t, s, child)[0].ID)
		}
	}
	are := func(want store.State) bool {
		return !slices.ContainsFunc(children, func(id store.ID) bool { return stateOf(t, s, id) != want })
	}
	if !are(store.Pending) {
		t.Fatal("a child does not wait for what is in a letter")
	}
	w := worker(t, s)
	var parents []store.Task
	eventually(t, "the parents can be claimed", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		parents = append(parents, claim(t, s, w, 2)...)
		return len(parents) == 2
	})
	if !are(store.Pending) {
		t.Fatal("a child does not wait for what has come from a letter")
	}
	for i := range parents {
		finish(t, s, store.Outcome{Task: &parents[i], State: store.Completed, Attempt: 1})
	}
	eventually(t, "the children can run", func() bool {
		if _, err := s.Admit(ctx, term, 1000); err != nil {
			t.Fatal(err)
		}
		return are(store.Available)
	})
}
