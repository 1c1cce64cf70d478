package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// impatient is a context that ends once it has been checked a number of times.
type impatient struct {
	context.Context
	left atomic.Int32
}

func (c *impatient) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestAWriteEndsWithItsCaller gives up in the middle of a large batch. The writer is free for others, and nothing of
// the batch is stored.
func TestAWriteEndsWithItsCaller(t *testing.T) {
	s, err := sqlitefile.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	ctx := &impatient{Context: t.Context()}
	ctx.left.Store(500)
	tasks := make([]store.NewTask, 5000)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: tusk.NewID(), Kind: "k", Queue: "default", Args: []byte("{}"),
			Key: string(rune('a'+i%26)) + tusk.NewID().String()}
	}
	if _, err := s.Enqueue(ctx, tasks); !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrNotCommitted) {
		t.Fatalf("the batch went on: %v", err)
	}
	if left, err := s.List(t.Context(), store.Filter{}); err != nil || len(left) != 0 {
		t.Errorf("%d tasks are stored: %v", len(left), err)
	}
	if _, err := s.Enqueue(t.Context(), tasks[:1]); err != nil {
		t.Error(err)
	}
}
