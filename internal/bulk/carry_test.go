package bulk

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// partly changes only the first task of its first page.
type partly struct {
	*memory.Store
	failed bool
}

func (p *partly) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if p.failed {
		return p.Store.Edit(ctx, e)
	}
	p.failed = true
	edited, err := p.Store.Edit(ctx, store.Edit{IDs: e.IDs[:1], Change: e.Change})
	for _, id := range e.IDs[1:] {
		edited = append(edited, store.Edited{ID: id, Result: store.Refused})
	}
	return edited, errors.Join(store.ErrUnavailable, &store.HeldError{Tasks: e.IDs[1:]}, err)
}

func TestTasksThatWereLeftOutAreExaminedAgain(t *testing.T) {
	s := &partly{Store: memory.New()}
	tasks := make([]store.NewTask, 5)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: store.ID{byte(i + 1)}, Queue: "q", Kind: "k"}
	}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	o := Operation{ID: store.ID{9}, State: Running, Change: store.Change{Op: store.Cancel}, StartedAt: time.Now(),
		Limit: 3}
	if _, err := Put(t.Context(), s, o, 0); err != nil {
		t.Fatal(err)
	}
	c := New(s, Options{ID: store.ID{10}, Patience: time.Minute, Log: slog.Default()})
	if _, err := c.Step(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := c.Step(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := s.List(t.Context(), store.Filter{States: []store.State{store.Available}, Limit: 10})
	if err != nil || len(left) != 2 {
		t.Errorf("%d tasks are left, want 2: %v", len(left), err)
	}
	if o, _, err = Find(t.Context(), s, o.ID); err != nil || o.State != Done || o.Seen != 3 || o.Changed != 3 {
		t.Errorf("%s, %d tasks, %d changed, %v", o.State, o.Seen, o.Changed, err)
	}
}
