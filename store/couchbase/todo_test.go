package couchbase

import (
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// More deleted records than a sweep looks at in one round, which are older than an abandoned unit, do not hold it up.
func TestDeletedRecordsDoNotHoldUpUnits(t *testing.T) {
	r := newRig(t, 1)
	kind := store.ManyRecords + "k"
	now := r.b.now(r.ctx())
	r.must("write", each(2*sweepMost, func(i int) error {
		d := blank(recordRef(kind, fmt.Sprintf("%06d", i)))
		rec := d.body.(*record)
		rec.Kind, rec.Name, rec.Version = kind, fmt.Sprintf("%06d", i), 5
		rec.Updated = now - (forgetAfter + time.Hour).Microseconds()
		d.rest()
		_, err := r.b.write(r.ctx(), d)
		return err
	}))
	// The unit of a record with a task, whose owner died after its decision.
	root, made := blank(recordRef(kind, "z")), blank(taskRef(storetest.NewID()))
	rec, x := root.body.(*record), made.task()
	rec.Kind, rec.Name, rec.Version, rec.Updated, rec.Body = kind, "z", 5, now, []byte("1")
	x.Queue, x.Kind, x.State, x.N, x.Available, x.RunAt, x.Lap = "q", "x", "a", 1, now, now, 1
	_, err := plan(root, nil, []*doc{made}, now)
	r.must("plan", err)
	if ok, err := r.b.write(r.ctx(), root); !ok || err != nil {
		t.Fatal(ok, err)
	}
	time.Sleep(2 * r.b.patience)
	_, err = r.b.sweep(r.ctx(), 0)
	r.must("sweep", err)
	if raw, _, err := r.b.get(r.ctx(), r.b.tasks, made.ID); raw == nil || err != nil {
		t.Errorf("the task of the unit does not exist after a sweep: %v", err)
	}
}
