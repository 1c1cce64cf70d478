package couchbase

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// A process dies while it cancels a running task. If the task says already that it should stop, another cancel still
// tells its worker.
func TestARepeatedCancelTellsTheWorker(t *testing.T) {
	for n, met := int64(1), true; met; n++ {
		r := newRig(t, 1)
		r.add(r.task("x", nil))
		r.claim()
		cancel := store.Edit{IDs: []store.ID{r.ids["x"]}, Change: store.Change{Op: store.Cancel}}
		met, _ = r.spoil(n, fault{"dies before", cbfake.LoseRequest, true}, func(ctx context.Context) error {
			_, err := r.a.Edit(ctx, cancel)
			return err
		})
		_, err := r.b.Edit(r.ctx(), cancel)
		r.must("cancel", err)
		stops, err := r.b.Extend(r.ctx(), store.Beat{Worker: store.Worker{ID: r.worker}, TTL: time.Hour})
		r.must("extend", err)
		if len(stops) != 1 {
			t.Errorf("after a death at request %d, the worker is told to stop %d tasks", n, len(stops))
		}
	}
}
