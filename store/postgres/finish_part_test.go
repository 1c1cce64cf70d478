package postgres_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// One call meets the key of a task that ends and the key of a task that another outcome brings, both of which an open
// transaction holds.
func TestAnOutcomeIsHeldOnce(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	if _, err := s.Enqueue(ctx, withKeys(newTasks(1, "r"), "c")); err != nil {
		t.Fatal(err)
	}
	outcomes := completed(running(t, s, withKeys(newTasks(2, "q"), "a", "b")))
	outcomes[0].Then, outcomes[1].Then = newTasks(1, "q"), withKeys(newTasks(1, "r"), "c")
	outcomes[1].Then[0].OnConflict = store.Skip
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, "select from tusk.key where key = '0:c' or holder = $1 for update",
		outcomes[0].Task.ID); err != nil {
		t.Fatal(err)
	}
	held := new(store.HeldError)
	lost, err := s.Finish(ctx, outcomes)
	if !errors.As(err, &held) || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	want := []store.ID{outcomes[0].Task.ID, outcomes[1].Task.ID}
	byID := func(a, b store.ID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(held.Tasks, byID)
	if slices.SortFunc(want, byID); !slices.Equal(held.Tasks, want) {
		t.Errorf("held %v, want %v", held.Tasks, want)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
}

// An outcome that cannot be stored is written after others, because it brings a task.
func TestOutcomesThatWereAcceptedAreNotLostWithOthers(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	outcomes := completed(running(t, s, newTasks(3, "q")))
	bad := &outcomes[1]
	bad.Then = newTasks(1, "q")
	bad.Then[0].Kind = "no\x00kind"
	held := new(store.HeldError)
	lost, err := s.Finish(ctx, outcomes)
	if len(lost) > 0 || !errors.Is(err, store.ErrUnstorable) || !errors.As(err, &held) ||
		!slices.Equal(held.Tasks, []store.ID{bad.Task.ID}) {
		t.Fatalf("lost %v, %v; want that one is held and cannot be stored", lost, err)
	}
	if lost, err := s.Finish(ctx, []store.Outcome{*bad}); !errors.Is(err, store.ErrUnstorable) || errors.As(err, &held) ||
		len(lost) > 0 {
		t.Fatalf("alone: lost %v, %v", lost, err)
	}
	bad.Then = nil
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) != 2 || slices.Contains(lost, bad.Task.ID) {
		t.Error(lost, err)
	}
}
