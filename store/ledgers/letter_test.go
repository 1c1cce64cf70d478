package ledgers_test

import (
	"context"
	"errors"
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

// More letters wait than a page has. A task that needs one of the oldest letter goes on waiting, and all come.
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
	if got := stateOf(t, s, parent.ID); got != store.Available {
		t.Errorf("the oldest letter's task is %v", got)
	}
	if left, err := s.List(ctx, store.Filter{Queues: []string{"tusk.letters"}, NoArgs: true}); err != nil || len(left) > 0 {
		t.Errorf("%d letters are left, %v", len(left), err)
	}
}

// A letter that nobody can read is named, and holds up no other.
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

// A letter whose task needs one of a server that is away holds up no other.
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
