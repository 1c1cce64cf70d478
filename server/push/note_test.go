package push

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// counted is a store that counts the records that are read.
type counted struct {
	*memory.Store
	read atomic.Int64
}

func (s *counted) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	records, err := s.Store.Records(ctx, f)
	s.read.Add(int64(len(records)))
	return records, err
}

// In an outage of all endpoints, reading all of them for each would take quadratic time.
func TestANoteReadsOnlyItsOwnEndpoint(t *testing.T) {
	s := &counted{Store: memory.New()}
	book, err := NewBook(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://app.example.com/"
	for i := range 20 {
		queue := fmt.Sprint("q", i)
		if _, _, err := book.Put(t.Context(), Endpoint{Queue: queue, URL: url}, "ada"); err != nil {
			t.Fatal(err)
		}
		s.read.Store(0)
		for range 2 {
			if err := book.note(t.Context(), queue, url, failed(time.Now(), "gone")); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.read.Load(); n > 3 { // the endpoint twice, its state once
			t.Fatalf("%d records are read with %d endpoints", n, i+1)
		}
	}
}
