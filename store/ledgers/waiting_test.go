package ledgers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// rivals makes two tasks with one key in a ledger. The first was made before the second.
func rivals(s *ledgers.Store, no int) (first, second store.NewTask) {
	first = keyedInto(s, no, nil)
	return first, newTask(func(n *store.NewTask) { n.Key = first.Key })
}

// delivered has the leader deliver all letters, and expects that the first of two rivals has got the key.
func delivered(t *testing.T, s *ledgers.Store, term int64, first, second store.NewTask) {
	t.Helper()
	eventually(t, "all letters are delivered", func() bool {
		if _, err := s.Admit(t.Context(), term, 1000); err != nil {
			t.Fatal(err)
		}
		left, err := s.List(t.Context(), store.Filter{Queues: []string{"tusk.letters"}, NoArgs: true})
		return err == nil && len(left) == 0
	})
	found, err := s.List(t.Context(), store.Filter{IDs: []store.ID{first.ID, second.ID}})
	if err != nil || len(found) != 1 || found[0].ID != first.ID {
		t.Errorf("%d tasks have the key, %v: want only the first", len(found), err)
	}
}

// put writes a record with a task whose key is in another ledger.
func put(t *testing.T, s *ledgers.Store, n store.NewTask) ([]store.Enqueued, error) {
	t.Helper()
	_, results, err := s.PutRecord(t.Context(), recordWith("one", n))
	return results, err
}

func recordWith(name string, n store.NewTask) store.PutRecord {
	return store.PutRecord{Record: store.Record{Kind: "test", Name: name, Body: []byte(`{}`)}, Tasks: []store.NewTask{n}}
}

// holdKeys has a user's transaction hold the keys of tasks until it is released.
func holdKeys(t *testing.T, s *ledgers.Store, tasks ...store.NewTask) (release func()) {
	t.Helper()
	tx, err := ledgers.Pool(s).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range tasks {
		add(t, in, newTask(func(h *store.NewTask) { h.Key = n.Key }))
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that writes a letter delivers older letters with its key first. A letter that cannot be read, and one with
// another key that is held, do not prevent this.
func TestANewLetterTakesOlderOnesWithItsKeyAlong(t *testing.T) {
	s := open(t, three.DSN(t))
	first, second := rivals(s, 1)
	other := keyedInto(s, 1, nil)
	holdKeys(t, s, other)
	if err := ledgers.WriteLetters(t.Context(), s, 0, other, first); err != nil {
		t.Fatal(err)
	}
	add(t, s, newTask(func(n *store.NewTask) {
		n.Queue, n.Key, n.Args, n.Delay = "tusk.letters", store.ScheduleKeys+"home", []byte(`[]`), time.Hour
	}))
	results, err := put(t, s, second)
	if err != nil || results[0] != (store.Enqueued{ID: first.ID, Result: store.Skipped}) {
		t.Errorf("%+v, %v: want the first task, which has the key", results, err)
	}
	if got := stateOf(t, s, first.ID); got != store.Available {
		t.Errorf("the first task is %v", got)
	}
}

// A new letter does not overtake an older one with its key that cannot be delivered.
func TestANewLetterDoesNotOvertakeAnOlderOneWithItsKey(t *testing.T) {
	s := open(t, three.DSN(t))
	term := lead(t, s)
	first, second := rivals(s, 1)
	release := holdKeys(t, s, first)
	if err := ledgers.WriteLetters(t.Context(), s, 0, first); err != nil {
		t.Fatal(err)
	}
	if _, err := put(t, s, second); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the second task has to wait, its call says %v", err)
	}
	release()
	delivered(t, s, term, first, second)
}

// Schedules fire together. The key of one task is held, and the others are delivered.
func TestALetterThatWaitsHoldsUpNoOtherOfItsCall(t *testing.T) {
	s := open(t, three.DSN(t))
	term := lead(t, s)
	held, goes := keyedInto(s, 1, nil), keyedInto(s, 1, nil)
	holdKeys(t, s, held)
	puts := []store.PutRecord{recordWith("held", held), recordWith("goes", goes)}
	for i := range puts {
		version, _, err := s.PutRecord(t.Context(), store.PutRecord{Record: puts[i].Record})
		if err != nil {
			t.Fatal(err)
		}
		puts[i].Record.Version = version
	}
	updated, err := s.UpdateRecords(t.Context(), term, puts)
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a task has to wait, its call says %v", err)
	}
	if got := stateOf(t, s, goes.ID); got != store.Available {
		t.Errorf("the other task is %v", got)
	}
	if got := updated[1].Enqueued[0]; got != (store.Enqueued{ID: goes.ID, Result: store.Added}) {
		t.Errorf("the result for the other task is %+v", got)
	}
}

// A look begins with the letters that the last look left out. The older letter with a key was tried by the last look,
// when a user's transaction held the key.
func TestALetterThatWasLeftOutDoesNotOvertakeAnOlderOneWithItsKey(t *testing.T) {
	ledgers.SmallPages(t.Cleanup)
	s := open(t, three.DSN(t))
	term := lead(t, s)
	first, second := rivals(s, 1)
	release := holdKeys(t, s, first)
	letters := []store.NewTask{first}
	for range 11 { // three pages
		if len(letters) == 8 {
			second.ID = newTask(nil).ID
			letters = append(letters, second)
			continue
		}
		letters = append(letters, keyedInto(s, 1, nil))
	}
	if err := ledgers.WriteLetters(t.Context(), s, 0, letters...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a look tries the first letter and leaves the second task out", func() bool {
		if _, err := s.Admit(t.Context(), term, 1000); err != nil {
			t.Fatal(err)
		}
		n, err := ledgers.CountIn(t.Context(), s, 0, store.Filter{Queues: []string{"tusk.letters"}, Limit: 100})
		return err == nil && n == 5
	})
	release()
	delivered(t, s, term, first, second)
}
