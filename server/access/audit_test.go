package access

import (
	"context"
	"fmt"
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
	if s.whole || s.most > auditPage {
		t.Errorf("the log was not read page by page: %d at once", s.most)
	}
	entries, err := b.Entries(t.Context(), EntryFilter{})
	if err != nil || len(entries) != MaxRefused+1 || entries[0].WhoID != "ada" {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
}

// Entries of a long log are read as far as they are asked for.
func TestTheLogIsReadFromItsEnd(t *testing.T) {
	s := &reads{Store: memory.New()}
	b := NewBook(s)
	for i := range 3 * auditPage {
		e := Entry{ID: tusk.NewID().String(), At: time.Now(), WhoID: fmt.Sprint("id-", i%2), Target: fmt.Sprint(i)}
		if i < auditPage {
			e.At = e.At.Add(-time.Hour)
		}
		if err := b.append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		f             EntryFilter
		n, reads      int
		newest, least string
	}{
		{EntryFilter{Limit: 100}, 100, 1, "1499", "1400"},
		{EntryFilter{Limit: 600}, 600, 2, "1499", "900"},
		{EntryFilter{Who: "id-0", Limit: 300}, 300, 2, "1498", "900"},
		{EntryFilter{Since: time.Now().Add(-time.Minute)}, 1000, 3, "1499", "500"},
		{EntryFilter{}, 1500, 4, "1499", "0"},
	} {
		s.n, s.whole = 0, false
		got, err := b.Entries(t.Context(), c.f)
		if err != nil || len(got) != c.n || s.n != c.reads || s.whole || got[0].Target != c.newest ||
			got[len(got)-1].Target != c.least {
			t.Errorf("%+v: %d entries in %d reads, %v", c.f, len(got), s.n, err)
		}
	}
}
