package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// NoteRefused tests that a beat counts even if the second of its three notes cannot be stored. The caller has
// prepared the engine to refuse that note.
func NoteRefused(t testing.TB, s store.Store, message string) {
	w, ctx := store.Worker{ID: NewID(), Queues: []string{"q"}}, t.Context()
	tasks := make([]store.NewTask, 3)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: NewID(), Kind: "k", Queue: "q", Args: []byte("1")}
	}
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	beat := store.Beat{Worker: w, TTL: time.Minute, Seq: 1}
	if _, err := s.Extend(ctx, beat); err != nil {
		t.Fatal(err)
	}
	held, err := s.Claim(ctx, store.ClaimRequest{Worker: w.ID, Queues: []string{"q"}, Limit: 3, Token: store.NewToken()})
	if err != nil || len(held) != 3 {
		t.Fatal(len(held), err)
	}
	stop := store.Edit{IDs: []store.ID{held[0].ID}, Change: store.Change{Op: store.Cancel, Reason: "test"}}
	if _, err := s.Edit(ctx, stop); err != nil {
		t.Fatal(err)
	}
	beat.TTL, beat.Seq, beat.Seen, beat.Holds = time.Hour, 2, 1, []store.Token{held[0].Lease}
	for i, text := range []string{"first", message, "third"} {
		note := store.Note{ID: held[i].ID, Lease: held[i].Lease, Progress: &store.Progress{Percent: 1, Message: text}}
		beat.Notes = append(beat.Notes, note)
	}
	stops, err := s.Extend(ctx, beat)
	said := new(store.HeldError)
	if !errors.As(err, &said) || !slices.Equal(said.Tasks, []store.ID{held[1].ID}) {
		t.Fatalf("extend: %.200v: want a HeldError of the second task alone", err)
	}
	if len(stops) != 1 || stops[0].ID != held[0].ID {
		t.Errorf("extend returned the stops %v", stops)
	}
	if workers, err := s.Workers(ctx); err != nil || time.Until(workers[0].ExpiresAt) < time.Minute {
		t.Errorf("the beat does not count: %+v %v", workers, err)
	}
	for i := range held {
		list, err := s.List(ctx, store.Filter{IDs: []store.ID{held[i].ID}, Detail: true})
		if err != nil || len(list) != 1 {
			t.Fatal(len(list), err)
		}
		if noted := list[0].Detail.Progress != nil; noted != (i != 1) {
			t.Errorf("task %d has a note: %v", i, noted)
		}
	}
}
