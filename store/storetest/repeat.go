package storetest

import (
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A caller whose answer was lost repeats an enqueue with the same id.
var repeatClauses = []clause{
	{"enqueue/a keyed enqueue that is repeated stores nothing, and the key stays free", func(t *T) {
		worker := t.worker()
		for _, c := range []store.OnConflict{store.Skip, store.Replace, store.Rerun, store.Once} {
			name := fmt.Sprint("key-", c)
			n := newTask(key(name), conflict(c))
			again := func(when string) {
				t.Helper()
				if r := t.add(n)[0]; r != (store.Enqueued{ID: n.ID, Result: store.Skipped}) {
					t.Errorf("%v, %s: %+v", c, when, r)
				}
			}
			t.add(n)
			task := t.takeOne(worker)
			again("running")
			t.mustEnd(to(store.Completed, task))
			again("ended")
			t.is(n.ID, store.Completed)
			if more := t.take(worker, 10); len(more) != 0 {
				t.Errorf("%v: it runs again: %+v", c, more)
			}
			if r := t.add(newTask(key(name)))[0]; r.Result != store.Added {
				t.Errorf("%v: the next task with the key: %+v", c, r)
			}
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
	}},
	{"enqueue/several keyed tasks that are repeated together store nothing", func(t *T) {
		worker := t.worker()
		both := []store.NewTask{newTask(key("a")), newTask(key("b"))}
		t.add(both...)
		t.rest(worker)
		for i, r := range t.add(both...) {
			if r != (store.Enqueued{ID: both[i].ID, Result: store.Skipped}) {
				t.Errorf("task %d: %+v", i, r)
			}
		}
		if more := t.take(worker, 10); len(more) != 0 {
			t.Errorf("%d run again", len(more))
		}
	}},
	{"enqueue/a rerun that is repeated does not make a later source time stale", func(t *T) {
		worker := t.worker()
		n := newTask(key("a"), conflict(store.Rerun))
		t.add(n)
		t.rest(worker)
		later := newTask(key("a"), conflict(store.Rerun))
		later.SourceTime = t.stamp()
		time.Sleep(10 * time.Millisecond)
		t.add(n)
		if r := t.add(later)[0]; r.Result != store.Added {
			t.Errorf("a change before the repetition: %+v", r)
		}
	}},
}
