package storetest

import (
	"time"

	"github.com/tuskqueue/tusk/store"
)

// wasChanged fails unless a task was last changed in the given way, between two times of the engine's clock. It
// returns the time of the change.
func (t *T) wasChanged(id store.ID, how store.How, from, until time.Time) time.Time {
	t.Helper()
	c := t.get(id).Detail.Changed
	if c == nil {
		t.Fatalf("%v does not tell that it was %s", id, how)
	}
	const rounding = 2 * time.Millisecond
	if c.How != how || c.At.Before(from.Add(-rounding)) || c.At.After(until.Add(rounding)) {
		t.Errorf("%s at %v; want %s between %v and %v", c.How, c.At, how, from, until)
	}
	return c.At
}

// stamp returns the engine's time, as the EnqueuedAt of a new task.
func (t *T) stamp() time.Time {
	t.Helper()
	return t.get(t.addOne(queue("clock"))).EnqueuedAt
}

// unchanged fails if one of the tasks has a recorded change.
func (t *T) unchanged(what string, ids ...store.ID) {
	t.Helper()
	for _, id := range ids {
		if c := t.get(id).Detail.Changed; c != nil {
			t.Errorf("%s: %s at %v", what, c.How, c.At)
		}
	}
}

var changedClauses = []clause{
	{"changed/an edit of a waiting task tells when and how", func(t *T) {
		worker := t.worker()
		ended := func() store.ID {
			id := t.addOne(queue("ended"))
			t.mustEnd(to(store.Completed, &t.take(worker, 1, "ended")[0]))
			return id
		}
		for _, test := range []struct {
			what   string
			id     store.ID
			change store.Change
			how    store.How
		}{
			{"available", t.addOne(), store.Change{Op: store.Reprioritize, Priority: 3}, store.WasReprioritized},
			{"scheduled", t.addOne(delay(time.Hour)), store.Change{Op: store.Reprioritize, Priority: 3}, store.WasReprioritized},
			{"available", t.addOne(), store.Change{Op: store.Move, Queue: "other"}, store.WasMoved},
			{"scheduled", t.addOne(delay(time.Hour)), store.Change{Op: store.Move, Queue: "other"}, store.WasMoved},
			{"available", t.addOne(), store.Change{Op: store.Reschedule, Delay: time.Hour}, store.WasRescheduled},
			{"scheduled", t.addOne(delay(time.Hour)), store.Change{Op: store.Reschedule}, store.WasRescheduled},
			{"scheduled", t.addOne(delay(time.Hour)), store.Change{Op: store.Retry}, store.WasRetried},
			{"completed", ended(), store.Change{Op: store.Retry}, store.WasRetried},
		} {
			t.unchanged(test.what+", before", test.id)
			from := t.stamp()
			if e := t.edit(test.change, test.id)[0]; e.Result != store.Changed {
				t.Fatalf("%v of %s: %+v", test.change.Op, test.what, e)
			}
			t.wasChanged(test.id, test.how, from, t.stamp())
		}
	}},
	{"changed/the latest change counts, and is kept to the end", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		t.edit(store.Change{Op: store.Reprioritize, Priority: 3}, id)
		from := t.stamp()
		t.edit(store.Change{Op: store.Move, Queue: "other"}, id)
		at := t.wasChanged(id, store.WasMoved, from, t.stamp())
		task := t.take(worker, 1, "other")[0]
		t.beat(worker, time.Minute, store.Note{ID: id, Lease: task.Lease, Output: []byte(`1`),
			Progress: &store.Progress{Percent: 5}})
		t.wasChanged(id, store.WasMoved, at, at)
		t.mustEnd(to(store.Completed, &task))
		t.wasChanged(id, store.WasMoved, at, at)
		if d := t.get(id).Detail; string(d.Output) != "1" || d.Progress == nil {
			t.Errorf("%+v", d)
		}
		t.edit(store.Change{Op: store.Retry}, id)
		t.wasChanged(id, store.WasRetried, at, t.stamp())
		if d := t.get(id).Detail; string(d.Output) != "1" || d.Progress == nil {
			t.Errorf("what its handler recorded is gone: %+v", d)
		}
	}},
	{"changed/what leaves a task as it was, and what is no edit, changes nothing", func(t *T) {
		worker := t.worker()
		at := time.Now().Add(3 * time.Hour)
		id := t.addOne(key("a"), func(n *store.NewTask) { n.RunAt = at })
		t.edit(store.Change{Op: store.Reprioritize}, id)
		t.edit(store.Change{Op: store.Move, Queue: "q"}, id)
		t.edit(store.Change{Op: store.Reschedule, RunAt: at}, id)
		t.add(newTask(key("a")))
		t.unchanged("scheduled", id)
		t.edit(store.Change{Op: store.Cancel}, id)
		t.unchanged("cancelled", id)
		due := t.addOne(delay(time.Millisecond))
		t.eventually("due", func() bool { t.admit(10); return t.get(due).State == store.Available })
		task := t.takeOne(worker)
		t.edit(store.Change{Op: store.Move, Queue: "other"}, due)
		t.add(newTask(key("b")))
		t.edit(store.Change{Op: store.Cancel}, due)
		t.unchanged("running", due)
		t.mustEnd(failed(task, store.Retryable, "x"))
		t.unchanged("called off", due)
	}},
	{"changed/an edit of many tasks is told of each", func(t *T) {
		ids := t.addMany(100)
		from := t.stamp()
		t.edit(store.Change{Op: store.Reprioritize, Priority: 3}, ids[10:90]...)
		until := t.stamp()
		for _, task := range t.list(store.Filter{Queues: []string{"q"}, Detail: true, Limit: 1000}) {
			edited := task.Priority == 3
			if c := task.Detail.Changed; edited != (c != nil) || edited && c.How != store.WasReprioritized {
				t.Fatalf("%v: priority %d, %+v", task.ID, task.Priority, c)
			}
		}
		t.unchanged("not edited", ids[0], ids[99])
		t.wasChanged(ids[10], store.WasReprioritized, from, until)
		t.wasChanged(ids[89], store.WasReprioritized, from, until)
	}},
	{"changed/a task that an enqueue with its key replaces tells so", func(t *T) {
		worker := t.worker()
		replaced := func(what string, from time.Time, changes ...func(*store.NewTask)) {
			t.Helper()
			r := t.add(newTask(changes...))[0]
			if r.Result != store.Replaced && r.Result != store.Awaiting {
				t.Fatalf("%s: %v", what, r.Result)
			}
			t.wasChanged(r.ID, store.WasReplaced, from, t.stamp())
		}
		a, b := t.addOne(key("a")), t.addOne(key("b"), delay(time.Hour))
		t.unchanged("new", a, b)
		replaced("stays in its lane", t.stamp(), key("a"), conflict(store.Replace), args(`1`))
		replaced("goes to another", t.stamp(), key("a"), conflict(store.Replace), priority(3))
		replaced("is put off", t.stamp(), key("a"), conflict(store.Replace), delay(time.Hour))
		replaced("waits", t.stamp(), key("b"), conflict(store.Rerun), source(2))
		from := t.stamp()
		if r := t.add(newTask(key("b"), conflict(store.Rerun), source(1)))[0]; r.Result != store.Stale {
			t.Errorf("%v", r.Result)
		}
		if c := t.get(b).Detail.Changed; c == nil || c.At.After(from.Add(2*time.Millisecond)) {
			t.Errorf("a stale enqueue: %+v", c)
		}
		c := t.addOne(key("c"), queue("c"))
		t.take(worker, 1, "c")
		awaiting := t.add(newTask(key("c"), queue("c"), conflict(store.Rerun), source(1)))[0]
		t.unchanged("running, and what awaits its end", c, awaiting.ID)
		replaced("awaits", t.stamp(), key("c"), queue("c"), conflict(store.Rerun), source(2))
		twice := t.add(newTask(key("d")), newTask(key("d"), conflict(store.Replace)))
		if r := twice[1]; r.Result != store.Replaced {
			t.Fatalf("%v", r.Result)
		}
		t.wasChanged(twice[0].ID, store.WasReplaced, from, t.stamp())
	}},
}
