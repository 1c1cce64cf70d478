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
	n, most int
	whole   bool
}

func (r *reads) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	r.n++
	r.most = max(r.most, f.Limit)
	r.whole = r.whole || f.Limit == 0
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
	if len(b.AuditGrown()) != 1 {
		t.Error("nothing signals that the log must be pruned")
	}
	if err := b.PruneAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.whole || s.most > prunePage {
		t.Errorf("the log was not read page by page: %d at once", s.most)
	}
	entries, err := b.Entries(t.Context())
	if err != nil || len(entries) != MaxRefused+1 || entries[0].WhoID != "ada" {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
}
