package storetest

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// crowdClauses say that handlers cannot starve the engine: its own work goes on while they
// hold every connection of the pool.
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
	}},
}
