package storetest

import (
	"time"

	"github.com/tuskqueue/tusk/store"
)

// inState adds a task in the given state, in a queue for that state.
func (t *T) inState(state store.State, worker store.ID) store.ID {
	t.Helper()
	q := "in-" + state.String()
	switch state {
	case store.Scheduled:
		return t.addOne(queue(q), delay(time.Hour))
	case store.Available:
		return t.addOne(queue(q))
	case store.Pending:
		t.addOne(queue(q), key("k"), conflict(store.Rerun), source(1))
		t.take(worker, 1, q)
		return t.add(newTask(queue(q), key("k"), conflict(store.Rerun), source(2)))[0].ID
	}
	id := t.addOne(queue(q))
	task := t.take(worker, 1, q)[0]
	if state != store.Running {
		o := failed(&task, state, "x")
		o.Delay = time.Hour
		t.mustEnd(o)
	}
	return id
}

var editClauses = []clause{
	{"edit/each change is allowed in just the states that the contract names", func(t *T) {
		worker := t.worker()
		// The value is the state that follows; 0 means deleted.
		allowed := map[store.Op]map[store.State]store.State{
			store.Cancel: {store.Scheduled: store.Cancelled, store.Pending: store.Cancelled, store.Available: store.Cancelled,
				store.Retryable: store.Cancelled},
			store.Retry: {store.Scheduled: store.Available, store.Retryable: store.Available, store.Completed: store.Available,
				store.Cancelled: store.Available, store.Discarded: store.Available},
			store.Delete: {store.Scheduled: 0, store.Pending: 0, store.Available: 0, store.Retryable: 0,
				store.Completed: 0, store.Cancelled: 0, store.Discarded: 0},
			store.Reprioritize: {store.Scheduled: store.Scheduled, store.Available: store.Available,
				store.Retryable: store.Retryable},
			store.Move: {store.Scheduled: store.Scheduled, store.Available: store.Available,
				store.Retryable: store.Retryable},
			store.Reschedule: {store.Scheduled: store.Scheduled, store.Available: store.Scheduled,
				store.Retryable: store.Retryable},
		}
		for op, states := range allowed {
			for _, state := range store.States() {
				id := t.inState(state, worker)
				e := t.edit(store.Change{Op: op, Priority: 5, Queue: "elsewhere", Delay: editDelay(op)}, id)[0]
				next, ok := states[state]
				switch {
				case e.ID != id:
					t.Errorf("%v of %v: answered %v", op, state, e.ID)
				case op == store.Cancel && state == store.Running:
					if e.Result != store.Requested || e.State != store.Running {
						t.Errorf("%v of %v: %+v", op, state, e)
					}
				case !ok:
					if e.Result != store.Refused || e.State != state {
						t.Errorf("%v of %v: %+v", op, state, e)
					}
					t.is(id, state)
				case e.Result != store.Changed:
					t.Errorf("%v of %v: %+v", op, state, e)
				case next == 0:
					t.gone(id)
				case op == store.Cancel && state == store.Pending:
					// an engine may keep a cancelled rerun or forget it
				default:
					t.is(id, next)
				}
				t.clear(worker, "in-"+state.String(), "elsewhere")
			}
		}
	}},
	{"edit/unknown ids are missing, and the others are changed all the same", func(t *T) {
		a, b := t.addOne(), t.addOne()
		unknown := NewID()
		e := t.edit(store.Change{Op: store.Cancel, Reason: "why not"}, b, unknown, a)
		if e[0].ID != b || e[1].ID != unknown || e[2].ID != a {
			t.Errorf("answered in another order: %+v", e)
		}
		if e[0].Result != store.Changed || e[1].Result != store.Missing || e[1].State != 0 || e[2].Result != store.Changed {
			t.Errorf("%+v", e)
		}
		if got := t.is(b, store.Cancelled); got.Reason != "why not" || got.FinishedAt.IsZero() {
			t.Errorf("%+v", got)
		}
		if e := t.edit(store.Change{Op: store.Cancel}); len(e) != 0 {
			t.Errorf("%+v", e)
		}
	}},
	{"edit/a cancelled task is not claimed and frees its key", func(t *T) {
		id := t.addOne(key("a"))
		t.edit(store.Change{Op: store.Cancel}, id)
		if r := t.add(newTask(key("a")))[0]; r.Result != store.Added {
			t.Errorf("%+v", r)
		}
		if got := t.take(t.worker(), 10); len(got) != 1 || got[0].ID == id {
			t.Errorf("claimed %+v", got)
		}
	}},
	{"edit/a deleted task is gone with its history and frees its key", func(t *T) {
		worker := t.worker()
		id := t.addOne(key("a"))
		t.mustEnd(failed(t.takeOne(worker), store.Discarded, "x"))
		t.edit(store.Change{Op: store.Delete}, id)
		t.gone(id)
		waiting := t.addOne(key("a"))
		t.edit(store.Change{Op: store.Delete}, waiting)
		if r := t.add(newTask(key("a")))[0]; r.Result != store.Added {
			t.Errorf("%+v", r)
		}
		if got := t.take(worker, 10); len(got) != 1 {
			t.Errorf("claimed %d", len(got))
		}
	}},
	{"edit/a retried dead letter starts over and keeps its past", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		o := failed(t.takeOne(worker), store.Discarded, "x")
		o.Crashes, o.Reason = 3, "gave up"
		t.mustEnd(o)
		t.edit(store.Change{Op: store.Retry}, id)
		got := t.is(id, store.Available)
		if got.Attempt != 0 || got.Crashes != 0 || got.Reason != "" || !got.FinishedAt.IsZero() ||
			len(got.Detail.Attempts) != 1 {
			t.Errorf("%+v", got)
		}
		task := t.takeOne(worker)
		if task.ID != id || task.Attempt != 1 {
			t.Errorf("%+v", task)
		}
		t.mustEnd(to(store.Completed, task))
		if got := t.is(id, store.Completed); len(got.Detail.Attempts) != 2 {
			t.Errorf("%+v", got.Detail.Attempts)
		}
	}},
	{"edit/a retry may be put off", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		t.mustEnd(failed(t.takeOne(worker), store.Discarded, "x"))
		if e := t.edit(store.Change{Op: store.Retry, Delay: time.Hour}, id)[0]; e.Result != store.Changed {
			t.Errorf("%+v", e)
		}
		if got := t.get(id); got.State != store.Scheduled && got.State != store.Retryable ||
			time.Until(got.RunAt) < 50*time.Minute {
			t.Errorf("%v at %v", got.State, got.RunAt)
		}
	}},
	{"edit/a finished task whose key is held by another is not retried", func(t *T) {
		worker := t.worker()
		id := t.addOne(key("a"))
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		t.addOne(key("a"))
		if e := t.edit(store.Change{Op: store.Retry}, id)[0]; e.Result != store.KeyTaken || e.State != store.Completed {
			t.Errorf("%+v", e)
		}
		t.is(id, store.Completed)
	}},
	{"edit/a retried task holds its key again", func(t *T) {
		worker := t.worker()
		id := t.addOne(key("a"))
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		t.edit(store.Change{Op: store.Retry}, id)
		if r := t.add(newTask(key("a")))[0]; r.Result != store.Skipped || r.ID != id {
			t.Errorf("%+v", r)
		}
	}},
	{"edit/a new priority counts at the next claim, while workers run", func(t *T) {
		worker := t.worker()
		ids := t.addMany(5)
		t.take(worker, 1)
		t.edit(store.Change{Op: store.Reprioritize, Priority: -1}, ids[4], ids[3])
		t.edit(store.Change{Op: store.Reprioritize, Priority: 1}, ids[1])
		got := idsOfTasks(t.take(worker, 10))
		if len(got) != 4 || got[2] != ids[2] || got[3] != ids[1] || got[0] != ids[3] && got[0] != ids[4] {
			t.Errorf("%v of %v", got, ids)
		}
		if task := t.get(ids[4]); task.Priority != -1 {
			t.Errorf("%+v", task)
		}
	}},
	{"edit/a new priority counts for tasks that wait", func(t *T) {
		worker := t.worker()
		first, second := t.addOne(delay(time.Millisecond)), t.addOne(delay(20*time.Millisecond))
		t.edit(store.Change{Op: store.Reprioritize, Priority: -1}, second)
		time.Sleep(50 * time.Millisecond)
		t.admit(10)
		t.sameIDs("claimed", idsOfTasks(t.take(worker, 10)), []store.ID{second, first})
	}},
	{"edit/a moved task is claimed from its new queue alone", func(t *T) {
		worker := t.worker()
		id, waiting := t.addOne(key("a")), t.addOne(delay(time.Hour))
		t.edit(store.Change{Op: store.Move, Queue: "other"}, id, waiting)
		if got := t.take(worker, 10); len(got) != 0 {
			t.Errorf("claimed %+v", got)
		}
		if r := t.add(newTask(key("a")))[0]; r.Result != store.Added {
			t.Errorf("its key in the old queue: %+v", r)
		}
		if r := t.add(newTask(key("a"), queue("other")))[0]; r.Result != store.Skipped || r.ID != id {
			t.Errorf("its key in the new queue: %+v", r)
		}
		if got := t.take(worker, 10, "other"); len(got) != 1 || got[0].ID != id || got[0].Queue != "other" {
			t.Errorf("claimed %+v", got)
		}
		if got := t.is(waiting, store.Scheduled); got.Queue != "other" {
			t.Errorf("%+v", got)
		}
	}},
	{"edit/a task is not moved to a queue where its key is held", func(t *T) {
		id := t.addOne(key("a"))
		t.addOne(key("a"), queue("other"))
		if e := t.edit(store.Change{Op: store.Move, Queue: "other"}, id)[0]; e.Result != store.KeyTaken {
			t.Errorf("%+v", e)
		}
		if got := t.is(id, store.Available); got.Queue != "q" {
			t.Errorf("%+v", got)
		}
	}},
	{"edit/a rescheduled task is due then", func(t *T) {
		worker := t.worker()
		id, far := t.addOne(), t.addOne(delay(time.Hour))
		at := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Millisecond)
		t.edit(store.Change{Op: store.Reschedule, RunAt: at}, id)
		if got := t.is(id, store.Scheduled); !got.RunAt.Equal(at) {
			t.Errorf("%v", got.RunAt)
		}
		t.edit(store.Change{Op: store.Reschedule}, far)
		t.eventually("due", func() bool { t.admit(10); return t.get(far).State == store.Available })
		if got := t.take(worker, 10); len(got) != 1 || got[0].ID != far {
			t.Errorf("claimed %+v", got)
		}
	}},
}

func editDelay(op store.Op) time.Duration {
	if op == store.Reschedule {
		return 2 * time.Hour
	}
	return 0
}

// clear ends and deletes what an edit left in the queues.
func (t *T) clear(worker store.ID, queues ...string) {
	t.Helper()
	for _, task := range t.list(store.Filter{Queues: queues, States: []store.State{store.Running}}) {
		t.mustEnd(to(store.Completed, &task))
	}
	if left := t.list(store.Filter{Queues: queues}); len(left) > 0 {
		t.edit(store.Change{Op: store.Delete}, idsOfTasks(left)...)
	}
}
