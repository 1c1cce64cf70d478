package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// noting is a store that remembers every note that was written.
type noting struct {
	*memory.Store
	notes [][]byte
}

func (n *noting) PutRecord(ctx context.Context, put store.PutRecord) (int64, []store.Enqueued, error) {
	if put.Record.Kind == recordKind && put.Record.Name == noteName && put.Record.Body != nil {
		n.notes = append(n.notes, put.Record.Body)
	}
	return n.Store.PutRecord(ctx, put)
}

// A failover brings back an older note, from any step of batches and of a merge that ended long
// ago. The process that continues from it comes to an end, and the archive has each task once.
func TestAnOlderNoteThatComesBackChangesNothing(t *testing.T) {
	s := &noting{Store: memory.New()}
	b, _ := place(t)
	start := func() *Runner { return unhurried(t, s, b) }
	r := start()
	ids := batches(t, s, r, mergeFiles)
	if _, err := r.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	once(t, "before", archived(t, b), ids)

	old := s.notes
	changes := 0
	for i, body := range old {
		if record, err := find(t.Context(), s, recordKind, noteName); err != nil || record.Version != 0 {
			t.Fatal("a note is left", err)
		}
		if _, _, err := s.PutRecord(t.Context(),
			store.PutRecord{Record: store.Record{Kind: recordKind, Name: noteName, Body: body}}); err != nil {
			t.Fatal(err)
		}
		next := start()
		for range 3 {
			drain(t, next)
		}
		once(t, fmt.Sprintf("note %d of %d, %s", i+1, len(old), body), archived(t, b), ids)
		var note Note
		if err := json.Unmarshal(body, &note); err != nil {
			t.Fatal(err)
		}
		if note.Change && len(note.Drafts) > 0 {
			changes++
		}
	}
	if changes == 0 {
		t.Error("no note was that of a merge with a draft")
	}
}
