package rerun

import (
	"context"
	"errors"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// asked fails the test if all records of a kind are read.
type asked struct {
	*memory.Store
	t *testing.T
}

func (a *asked) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if len(f.Names) != 1 {
		a.t.Errorf("all records are read: %+v", f)
	}
	return a.Store.Records(ctx, f)
}

func TestOneRecordIsReadByItsName(t *testing.T) {
	s, ctx, id := &asked{memory.New(), t}, t.Context(), tusk.NewID()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Get(ctx, s, id); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
	if _, err := client.Operation(ctx, id); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
	if _, err := archive.ReadRestore(ctx, s, id); !errors.Is(err, archive.ErrNoSuchRestore) {
		t.Error(err)
	}
	if _, err := archive.ReadStatus(ctx, s); err != nil {
		t.Error(err)
	}
}
