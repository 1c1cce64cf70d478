package ledgers_test

import (
	"errors"
	"testing"

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

// A process that writes a letter delivers it at once, but not before an older letter with its key.
func TestANewLetterDoesNotOvertakeAnOlderOneWithItsKey(t *testing.T) {
	s := open(t, three.DSN(t))
	term := lead(t, s)
	first, second := rivals(s, 1)
	if err := ledgers.WriteLetters(t.Context(), s, 0, first); err != nil {
		t.Fatal(err)
	}
	put := store.PutRecord{Record: store.Record{Kind: "test", Name: "one", Body: []byte(`{}`)},
		Tasks: []store.NewTask{second}}
	if _, _, err := s.PutRecord(t.Context(), put); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the second task has to wait, its call says %v", err)
	}
	delivered(t, s, term, first, second)
}

// A look begins with the letters that the last look left out. The older letter with a key was tried by the last look,
// when a user's transaction held the key.
func TestALetterThatWasLeftOutDoesNotOvertakeAnOlderOneWithItsKey(t *testing.T) {
	ledgers.SmallPages(t.Cleanup)
	s := open(t, three.DSN(t))
	term := lead(t, s)
	tx, err := ledgers.Pool(s).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	first, second := rivals(s, 1)
	add(t, in, newTask(func(n *store.NewTask) { n.Key = first.Key }))
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
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	delivered(t, s, term, first, second)
}
