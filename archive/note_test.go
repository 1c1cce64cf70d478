package archive

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// A process that works for long keeps its note alive. A process that has lost its note is stopped.
func TestANoteIsKeptAliveWhileAStepWorks(t *testing.T) {
	s := memory.New()
	b, _ := place(t)
	o := optionsFor(s, b, t.TempDir())
	o.Patience = 400 * time.Millisecond
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.write(t.Context(), &Note{Holder: o.ID, Batch: storetest.NewID()}); err != nil {
		t.Fatal(err)
	}
	versions := func() int64 {
		record, err := find(t.Context(), s, recordKind, noteName)
		if err != nil {
			t.Fatal(err)
		}
		return record.Version
	}
	first := versions()
	err = r.holding(t.Context(), func(ctx context.Context) error {
		for beaten := 0; beaten < 2; time.Sleep(time.Millisecond) {
			if now := versions(); now != first {
				first, beaten = now, beaten+1
			}
		}
		_, _, err := s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: recordKind, Name: noteName,
			Version: versions(), Body: []byte(`{}`)}})
		if errors.Is(err, store.ErrConflict) { // a beat came in between
			_, _, err = s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: recordKind, Name: noteName,
				Version: versions(), Body: []byte(`{}`)}})
		}
		if err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("what has lost its note ends with %v, want a conflict", err)
	}
}

func TestAnArchiveBelongsToOneDatabase(t *testing.T) {
	b, _ := place(t)
	worker := storetest.NewID()
	for i, want := range []string{"", "belongs to the database"} {
		s := memory.New()
		run(t, s, worker, 5, "q")
		time.Sleep(time.Millisecond) // their retention ends
		for range 2 {
			_, err := keeper(t, s, b).Step(t.Context())
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("database %d: %v", i+1, err)
			}
		}
	}
}
