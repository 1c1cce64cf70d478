package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// crowdClauses say that handlers cannot starve the engine: its own work continues while they hold every connection of
// the pool.
var crowdClauses = []clause{
	{"crowd/the engine's own work goes on while handlers hold every connection of the pool", func(t *T) {
		if t.engine.Crowded == nil {
			t.Skip("the engine's work needs no connections of a pool")
		}
		s, crowd := t.engine.Crowded(t)
		c := &T{TB: t.TB, Store: s, engine: t.engine}
		w := c.worker()
		c.addMany(4)
		left := c.take(w, 1)
		c.addOne(queue("later"), delay(time.Millisecond))
		crowd()
		c.beat(w, time.Minute, store.Note{ID: left[0].ID, Lease: left[0].Lease, Progress: &store.Progress{Percent: 50}})
		tasks := c.take(w, 3)
		if len(tasks) != 3 {
			t.Fatalf("claimed %d tasks, want 3", len(tasks))
		}
		done := to(store.Completed, &tasks[0])
		done.Then = []store.NewTask{newTask(queue("next"))}
		c.mustEnd(done, failed(&tasks[1], store.Discarded, "x"))
		c.mustEnd(to(store.Completed, &tasks[2]))
		dead := NewID()
		c.beat(dead, time.Minute)
		c.take(dead, 1, "next")
		c.beat(dead, 0)
		c.eventually("the due task is admitted", func() bool { return c.admit(10).Count > 0 })
		rescued, err := c.Rescue(c.ctx(), c.lead(), 10)
		if err != nil || !slices.ContainsFunc(rescued, func(r store.Task) bool { return r.Queue == "next" }) {
			t.Errorf("rescued %d tasks: %v", len(rescued), err)
		}
		if _, err := c.Turns(c.ctx(), c.lead(), 10, 10); err != nil {
			t.Error(err)
		}
		if _, err := c.Prune(c.ctx(), c.lead(), store.Retention{Completed: time.Hour}, 10); err != nil {
			t.Error(err)
		}
		c.putCrowded()
		if m, ok := store.As[store.Maintainer](c.Store); ok {
			if err := m.Maintain(c.ctx(), c.lead()); err != nil {
				t.Errorf("maintain: %v", err)
			}
		}
	}},
}

// putCrowded writes a record with a task of a new queue, and then writes it again, as a due schedule does. No
// connection is returned to the pool meanwhile.
func (t *T) putCrowded() {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx(), 10*time.Second)
	defer cancel()
	p := store.PutRecord{Record: store.Record{Kind: "k", Name: "n", Body: []byte("1")}, Term: t.lead(),
		Tasks: []store.NewTask{newTask(queue("record"))}}
	version, _, err := t.PutRecord(ctx, p)
	if err != nil {
		t.Fatalf("put record: %v", err)
	}
	p.Record.Version, p.Tasks = version, []store.NewTask{newTask(queue("records"))}
	updated, err := t.UpdateRecords(ctx, p.Term, []store.PutRecord{p})
	if err != nil || len(updated) != 1 || updated[0].Version == 0 {
		t.Errorf("update records: %v, %v", updated, err)
	}
}
