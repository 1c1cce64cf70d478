package storetest

import (
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func tenant(name string) func(*store.NewTask) { return func(n *store.NewTask) { n.Tenant = name } }

// modes maps each conflict mode to the result for a second task of the same tenant.
var modes = map[store.OnConflict]store.EnqueueResult{
	store.Skip: store.Skipped, store.Replace: store.Replaced, store.Rerun: store.Replaced, store.Once: store.Skipped,
}

var tenantClauses = []clause{
	{"tenant/a key belongs to its tenant, whatever the conflict mode", func(t *T) {
		for mode, same := range modes {
			name := fmt.Sprint("key-", mode)
			t.untouched(name, conflict(mode), delay(time.Hour))
			t.untouched(name+" running", conflict(mode))
			r := t.add(newTask(key(name), tenant("acme"), conflict(mode), source(9)))[0]
			if r.Result != same {
				t.Errorf("%v: the same tenant again: %v, want %v", mode, r.Result, same)
			}
		}
	}},
	{"tenant/one call brings a key for many tenants", func(t *T) {
		names := []string{"acme", "", "umbrella", "acme", ""}
		tasks := make([]store.NewTask, len(names))
		for i, name := range names {
			tasks[i] = newTask(key("a"), tenant(name), args(fmt.Sprint(i)), conflict(store.Replace))
		}
		for i, r := range t.add(tasks...) {
			want := store.Enqueued{ID: tasks[i%3].ID, Result: []store.EnqueueResult{store.Added, store.Replaced}[i/3]}
			if r != want {
				t.Errorf("task %d: %+v, want %+v", i, r, want)
			}
		}
		for i, n := range []int{3, 4, 2} {
			if got := t.get(tasks[i].ID); string(got.Args) != fmt.Sprint(n) || got.Tenant != names[i] {
				t.Errorf("tenant %q: args %s of %q", names[i], got.Args, got.Tenant)
			}
		}
	}},
	{"tenant/no tenant can name another's key", func(t *T) {
		for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"", "1:abc"}, {"1:a", "bc"}, {"a:", "bc"},
			{"ä", "bc"}} {
			r := t.add(newTask(tenant(pair[0]), key(pair[1])))[0]
			if r.Result != store.Added {
				t.Errorf("tenant %q, key %q: %+v", pair[0], pair[1], r)
			}
		}
	}},
	{"tenant/source times of a key are its tenant's", func(t *T) {
		rerun, worker := conflict(store.Rerun), t.worker()
		t.addOne(key("a"), tenant("acme"), rerun, source(100))
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		if r := t.add(newTask(key("a"), tenant("umbrella"), rerun, source(1)))[0]; r.Result != store.Added {
			t.Errorf("another tenant: %+v", r)
		}
		if r := t.add(newTask(key("a"), tenant("acme"), rerun, source(99)))[0]; r.Result != store.Stale {
			t.Errorf("the same tenant: %+v", r)
		}
	}},
	{"tenant/the end of a task frees its own tenant's key alone", func(t *T) {
		worker := t.worker()
		waits := t.addOne(key("a"), tenant("umbrella"), delay(time.Hour))
		for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
			t.addOne(key("a"), tenant("acme"))
			t.mustEnd(to(state, t.takeOne(worker)))
			t.skipped("after "+state.String(), "umbrella", waits)
		}
		for _, op := range []store.Op{store.Cancel, store.Delete} {
			id := t.addOne(key("a"), tenant("acme"), delay(time.Hour))
			if e := t.edit(store.Change{Op: op}, id)[0]; e.Result != store.Changed {
				t.Errorf("%v: %+v", op, e)
			}
			t.skipped("after "+op.String(), "umbrella", waits)
			if r := t.add(newTask(key("a"), tenant("acme")))[0]; r.Result != store.Added {
				t.Errorf("after %v, the same tenant: %+v", op, r)
			}
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
	}},
	{"tenant/a retry and a move find their own tenant's key", func(t *T) {
		worker := t.worker()
		dead := t.addOne(key("a"), tenant("acme"))
		t.mustEnd(to(store.Discarded, t.takeOne(worker)))
		t.addOne(key("a"), tenant("umbrella"), delay(time.Hour))
		t.addOne(key("a"), tenant("umbrella"), delay(time.Hour), queue("other"))
		for _, c := range []store.Change{{Op: store.Retry, Delay: time.Hour}, {Op: store.Move, Queue: "other"}} {
			if e := t.edit(c, dead)[0]; e.Result != store.Changed {
				t.Errorf("%v: %+v", c.Op, e)
			}
		}
		if r := t.add(newTask(key("a"), tenant("acme"), queue("other")))[0]; r.Result != store.Skipped || r.ID != dead {
			t.Errorf("where it was moved: %+v", r)
		}
		if r := t.add(newTask(key("a"), tenant("acme")))[0]; r.Result != store.Added {
			t.Errorf("where it was: %+v", r)
		}
	}},
	{"tenant/a rerun waits for its own tenant's task", func(t *T) {
		rerun, worker := conflict(store.Rerun), t.worker()
		t.addOne(key("a"), tenant("acme"), rerun, source(1))
		running := t.takeOne(worker)
		other := t.addOne(key("a"), tenant("umbrella"), rerun, source(1))
		second := t.add(newTask(key("a"), tenant("acme"), rerun, source(2)))[0]
		if second.Result != store.Awaiting {
			t.Fatalf("%+v", second)
		}
		task := t.takeOne(worker)
		if task.ID != other {
			t.Fatalf("claimed %v, want the other tenant's", task.ID)
		}
		t.mustEnd(to(store.Completed, task))
		t.is(second.ID, store.Pending)
		t.mustEnd(failed(running, store.Retryable, "x"))
		if got := t.takeOne(worker); got.ID != second.ID {
			t.Errorf("claimed %v, want the rerun", got.ID)
		}
	}},
	{"tenant/pruning forgets no other tenant's key", func(t *T) {
		worker := t.worker()
		t.addOne(key("a"), tenant("acme"))
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		waits := t.addOne(key("a"), tenant("umbrella"), delay(time.Hour))
		t.prune(store.Retention{Completed: time.Microsecond})
		t.skipped("after pruning", "umbrella", waits)
	}},
	{"tenant/a key belongs to its tenant in the user's transaction", func(t *T) {
		t.transactor()
		first := t.addOne(key("a"), tenant("umbrella"), delay(time.Hour))
		tx, commit, _ := t.begin()
		results, err := tx.Enqueue(t.ctx(), []store.NewTask{newTask(key("a"), tenant("acme"), conflict(store.Replace))})
		if err != nil || results[0].Result != store.Added {
			t.Errorf("%+v, %v", results, err)
		}
		commit()
		t.skipped("afterwards", "umbrella", first)
		worker := t.worker()
		task := t.takeOne(worker)
		tx, commit, _ = t.begin()
		if lost, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, task)}); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		commit()
		t.skipped("after the end", "umbrella", first)
		if r := t.add(newTask(key("a"), tenant("acme")))[0]; r.Result != store.Added {
			t.Errorf("the key is free: %+v", r)
		}
	}},
	{"tenant/what a task enqueues with its end respects the keys of others", func(t *T) {
		first := t.addOne(key("a"), tenant("umbrella"), delay(time.Hour))
		t.addOne(tenant("acme"))
		o := to(store.Completed, t.takeOne(t.worker()))
		next := newTask(key("a"), tenant("acme"), conflict(store.Replace), args(`"acme"`))
		o.Then = []store.NewTask{next}
		t.mustEnd(o)
		t.is(next.ID, store.Available)
		if got := t.get(first); string(got.Args) != `{}` {
			t.Errorf("args %s", got.Args)
		}
	}},
}

// untouched enqueues a key for one tenant and then for others, and fails if that changed the first tenant's task. If
// that task has no delay, it is running by then.
func (t *T) untouched(name string, changes ...func(*store.NewTask)) {
	t.Helper()
	mine := newTask(append(changes, key(name), tenant("acme"), source(5))...)
	t.add(mine)
	if mine.Delay == 0 {
		t.takeOne(t.worker())
	}
	before := t.get(mine.ID)
	for _, other := range []string{"umbrella", ""} {
		theirs := newTask(append(changes, key(name), tenant(other), source(1), kind("evil"), args(`"evil"`),
			delay(time.Hour))...)
		if r := t.add(theirs)[0]; r.Result != store.Added || r.ID != theirs.ID {
			t.Errorf("key %q of tenant %q: %+v", name, other, r)
		}
	}
	after := t.get(mine.ID)
	if after.Kind != before.Kind || string(after.Args) != string(before.Args) || after.State != before.State ||
		!after.RunAt.Equal(before.RunAt) {
		t.Errorf("key %q: %+v became %+v", name, before, after)
	}
}

// skipped fails unless holder has the key "a" of a tenant.
func (t *T) skipped(when, tenantName string, holder store.ID) {
	t.Helper()
	if r := t.add(newTask(key("a"), tenant(tenantName)))[0]; r.Result != store.Skipped || r.ID != holder {
		t.Errorf("%s: %+v, want skipped for %v", when, r, holder)
	}
}
