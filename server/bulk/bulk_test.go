package bulk

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func newRunner(t *testing.T, tasks int) *Runner {
	t.Helper()
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]tusk.NewTask, tasks)
	for i := range batch {
		batch[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "k"}}
	}
	if _, err := client.EnqueueMany(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	return New(client, slog.New(slog.DiscardHandler))
}

// leave stores an operation whose process has died.
func (r *Runner) leave(t *testing.T, o Operation) {
	t.Helper()
	o.ID, o.State, o.HeldUntil = tusk.NewID().String(), Running, time.Now().Add(-time.Second)
	o.Change, o.Who = tusk.Change{Op: tusk.OpCancel}, access.Identity{Name: "ada", Role: access.Operator}
	if o.Cursor.IsZero() {
		o.Cursor = tusk.NewID()
	}
	if _, err := r.put(t.Context(), o, 0); err != nil {
		t.Fatal(err)
	}
}

// ended runs until the only operation is over.
func (r *Runner) ended(t *testing.T) Operation {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for range 1000 {
		all, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if all[0].State != Running {
			return all[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the operation does not end")
	return Operation{}
}

func TestAnotherProcessGoesOnWhereOneDied(t *testing.T) {
	r := newRunner(t, 1200)
	tasks, err := r.client.List(t.Context(), tusk.Filter{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	r.leave(t, Operation{Cursor: tasks[199].ID, Seen: 200, Changed: 200})
	if o := r.ended(t); o.State != Done || o.Seen != 1200 || o.Changed != 1200 || o.FinishedAt.IsZero() {
		t.Errorf("%+v", o)
	}
}

func TestACancelledOperationStopsAfterItsPage(t *testing.T) {
	r := newRunner(t, 1200)
	r.leave(t, Operation{CancelRequested: true})
	if o := r.ended(t); o.State != Cancelled || o.Seen != pageSize {
		t.Errorf("%+v", o)
	}
}

func TestAnOperationThatCannotBeDoneFails(t *testing.T) {
	r := newRunner(t, 1)
	o, err := r.Start(t.Context(), access.Identity{Name: "ada"}, tusk.Filter{}, tusk.Change{Op: tusk.OpMove, Queue: "NO"})
	if err != nil {
		t.Fatal(err)
	}
	if o = r.ended(t); o.State != Failed || o.Error == "" {
		t.Errorf("%+v", o)
	}
}

func TestOnlyTheNewestOperationsAreKept(t *testing.T) {
	r := newRunner(t, 0)
	for range keep + 10 {
		body, err := json.Marshal(Operation{State: Done})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.client.Store().PutRecord(t.Context(), store.PutRecord{Record: store.Record{Kind: recordKind, Name: tusk.NewID().String(), Body: body}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != keep {
		t.Error(len(all), err)
	}
}
