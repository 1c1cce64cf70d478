package access

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// reads counts how often records are read.
type reads struct {
	*memory.Store
	n int
}

func (r *reads) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	r.n++
	return r.Store.Records(ctx, f)
}

// A request waits for its entry, but not for what is too old to be deleted.
func TestAnEntryIsWrittenWithoutReadingTheLog(t *testing.T) {
	s := &reads{Store: memory.New()}
	b := NewBook(s)
	for range MaxRefused + 5 {
		e := Entry{ID: tusk.NewID().String(), At: time.Now(), WhoID: "mallory", Result: "forbidden"}
		if err := b.append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Record(t.Context(), tusk.NewID(), Entry{WhoID: "ada", Result: "ok"}); err != nil {
		t.Fatal(err)
	}
	if s.n > 0 {
		t.Errorf("records were read %d times", s.n)
	}
	if err := b.PruneAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := b.Entries(t.Context())
	if err != nil || len(entries) != MaxRefused+1 || entries[0].WhoID != "ada" {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
}
