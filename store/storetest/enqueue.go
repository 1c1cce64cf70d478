package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var enqueueClauses = []clause{
	{"enqueue/a task is available at once and keeps everything it was given", func(t *T) {
		n := newTask()
		n.Kind, n.Queue, n.Tenant, n.Priority = "send.mail", "mail:eu", "acme", -7
		n.Args, n.Tags, n.Settings = []byte(` {"a": 1.0,  "b":[12345678901234567890]}`), []string{"x", "ünï"},
			[]byte(`{"max_attempts":3}`)
		n.ExpiresIn = time.Hour
		if r := t.add(n)[0]; r.ID != n.ID || r.Result != store.Added {
			t.Fatalf("result %+v", r)
		}
		got := t.is(n.ID, store.Available)
		if got.Kind != n.Kind || got.Queue != n.Queue || got.Tenant != n.Tenant || got.Priority != n.Priority ||
			got.Key != "" {
			t.Errorf("got %+v", got)
		}
		if !bytes.Equal(got.Args, n.Args) || fmt.Sprint(got.Tags) != fmt.Sprint(n.Tags) ||
			!bytes.Equal(got.Settings, n.Settings) {
			t.Errorf("args %s tags %v settings %s", got.Args, got.Tags, got.Settings)
		}
		if got.Attempt != 0 || got.Crashes != 0 || !got.ClaimedAt.IsZero() || !got.FinishedAt.IsZero() ||
			!got.Lease.IsZero() || !got.Worker.IsZero() {
			t.Errorf("a new task has a past: %+v", got)
		}
		if since := time.Since(got.EnqueuedAt); since < -time.Minute || since > time.Minute {
			t.Errorf("enqueued at %v", got.EnqueuedAt)
		}
		t.near("run time", got.RunAt, got.EnqueuedAt)
		t.near("expiry", got.ExpiresAt, got.EnqueuedAt.Add(time.Hour))
	}},
	{"enqueue/args of any size and text come back byte for byte", func(t *T) {
		for _, text := range []string{`""`, `{}`, "\"\u20ac \U0001F600 \\\\ ' \\\" %s $1 ? :x --\"",
			`"` + strings.Repeat("x", 256<<10) + `"`} {
			id := t.addOne(args(text))
			if got := t.get(id); string(got.Args) != text {
				t.Errorf("%.40s came back as %.40s (%d bytes)", text, got.Args, len(got.Args))
			}
		}
		worker := t.worker()
		for _, task := range t.take(worker, 10) {
			if len(task.Args) == 0 {
				t.Errorf("claimed without args")
			}
		}
	}},
	{"enqueue/text that looks like a statement stays text", func(t *T) {
		hostile := `'); drop table task; -- " \ %`
		n := newTask(key(hostile), kind("k"))
		n.Tags = []string{hostile}
		t.add(n)
		got := t.get(n.ID)
		if got.Key != hostile || got.Tags[0] != hostile {
			t.Errorf("%+v", got)
		}
		if found := t.list(store.Filter{Tags: []string{hostile}, Key: hostile}); len(found) != 1 {
			t.Errorf("found %d", len(found))
		}
	}},
	{"enqueue/a call may bring nothing or thousands", func(t *T) {
		if results, err := t.Enqueue(t.ctx(), nil); err != nil || len(results) != 0 {
			t.Errorf("nothing: %v, %v", results, err)
		}
		ids := t.addMany(3000)
		got := t.take(t.worker(), 5000)
		t.sameIDs("claimed", idsOfTasks(got), ids)
	}},
	{"enqueue/a delayed task is scheduled for then", func(t *T) {
		id := t.addOne(delay(time.Hour))
		got := t.is(id, store.Scheduled)
		t.near("run time", got.RunAt, got.EnqueuedAt.Add(time.Hour))
		at := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond).UTC()
		n := newTask()
		n.RunAt = at
		t.add(n)
		if got := t.is(n.ID, store.Scheduled); !got.RunAt.Equal(at) {
			t.Errorf("run time %v, want %v", got.RunAt, at)
		}
		n = newTask(delay(time.Hour))
		n.RunAt = at
		t.add(n)
		if got := t.is(n.ID, store.Scheduled); !got.RunAt.Equal(at.Add(time.Hour)) {
			t.Errorf("run time %v, want an hour after %v", got.RunAt, at)
		}
		if claimed := t.take(t.worker(), 10); len(claimed) != 0 {
			t.Errorf("claimed %d before their time", len(claimed))
		}
	}},
	{"enqueue/a run time in a moment is waited for, with a key and without", func(t *T) {
		for _, k := range []string{"", "k"} {
			n := newTask(key(k))
			n.RunAt = time.Now().Add(1900 * time.Millisecond)
			t.add(n)
			if got := t.get(n.ID); !got.RunAt.After(got.EnqueuedAt) {
				t.Errorf("key %q: due at %v, enqueued at %v", k, got.RunAt, got.EnqueuedAt)
			}
		}
	}},
	{"enqueue/a run time in the past is now", func(t *T) {
		n := newTask()
		n.RunAt = time.Now().Add(-time.Hour)
		t.add(n)
		if got := t.is(n.ID, store.Available); got.RunAt.Before(got.EnqueuedAt.Add(-time.Minute)) {
			t.Errorf("due since %v, enqueued at %v", got.RunAt, got.EnqueuedAt)
		}
	}},
	{"enqueue/what becomes of the caller's slices afterwards changes nothing", func(t *T) {
		n := newTask(args(`{"a":1}`))
		n.Tags, n.Settings = []string{"a"}, []byte(`{"b":2}`)
		t.add(n)
		copy(n.Args, "torn")
		copy(n.Settings, "torn")
		n.Tags[0] = "torn"
		if got := t.get(n.ID); string(got.Args) != `{"a":1}` || string(got.Settings) != `{"b":2}` || got.Tags[0] != "a" {
			t.Errorf("%s %s %v", got.Args, got.Settings, got.Tags)
		}
		if task := t.takeOne(t.worker()); string(task.Args) != `{"a":1}` {
			t.Errorf("claimed with %s", task.Args)
		}
	}},
	{"enqueue/an expiry is kept", func(t *T) {
		n := newTask()
		n.ExpiresAt = time.Now().Add(2 * time.Hour).Truncate(time.Millisecond).UTC()
		t.add(n)
		if got := t.get(n.ID); !got.ExpiresAt.Equal(n.ExpiresAt) {
			t.Errorf("%v, want %v", got.ExpiresAt, n.ExpiresAt)
		}
	}},
	{"enqueue/the sooner of two expiries counts", func(t *T) {
		n := newTask()
		n.ExpiresAt, n.ExpiresIn = time.Now().Add(10*time.Hour), time.Hour
		t.add(n)
		got := t.get(n.ID)
		t.near("expiry", got.ExpiresAt, got.EnqueuedAt.Add(time.Hour))
	}},
	{"enqueue/what was stored is seen by other handles", func(t *T) {
		other := t.another()
		id := t.addOne()
		found, err := other.List(t.ctx(), store.Filter{IDs: []store.ID{id}})
		if err != nil || len(found) != 1 {
			t.Fatalf("found %d, %v", len(found), err)
		}
		if got := t.takeFrom(other, t.worker(), 1); len(got) != 1 || got[0].ID != id {
			t.Errorf("claimed %v", got)
		}
	}},
}

var keyClauses = []clause{
	{"enqueue/skip leaves the unfinished task of the key alone", func(t *T) {
		first := t.addOne(key("a"), args(`1`))
		r := t.add(newTask(key("a"), args(`2`)))[0]
		if r.ID != first || r.Result != store.Skipped {
			t.Errorf("%+v", r)
		}
		if got := t.get(first); string(got.Args) != `1` || got.Key != "a" {
			t.Errorf("%s", got.Args)
		}
		worker := t.worker()
		task := t.takeOne(worker)
		if r := t.add(newTask(key("a")))[0]; r.ID != first || r.Result != store.Skipped {
			t.Errorf("while it runs: %+v", r)
		}
		t.mustEnd(failed(task, store.Retryable, "x"))
		if r := t.add(newTask(key("a")))[0]; r.ID != first || r.Result != store.Skipped {
			t.Errorf("while it waits: %+v", r)
		}
	}},
	{"enqueue/a key is free again when its task has finished", func(t *T) {
		worker := t.worker()
		for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
			first := t.addOne(key("a"))
			t.mustEnd(to(state, t.takeOne(worker)))
			if r := t.add(newTask(key("a")))[0]; r.Result != store.Added || r.ID == first {
				t.Errorf("after %v: %+v", state, r)
			}
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
	}},
	{"enqueue/a key belongs to its queue", func(t *T) {
		a, b := t.add(newTask(key("a"), queue("q1")))[0], t.add(newTask(key("a"), queue("q2")))[0]
		if a.Result != store.Added || b.Result != store.Added {
			t.Errorf("%+v %+v", a, b)
		}
	}},
	{"enqueue/a key twice in one call is as if in two", func(t *T) {
		r := t.add(newTask(key("a"), args(`1`)), newTask(), newTask(key("a"), args(`2`)),
			newTask(key("a"), args(`3`), conflict(store.Replace)))
		if r[0].Result != store.Added || r[1].Result != store.Added || r[2].Result != store.Skipped ||
			r[3].Result != store.Replaced {
			t.Errorf("%+v", r)
		}
		if r[2].ID != r[0].ID || r[3].ID != r[0].ID || string(t.get(r[0].ID).Args) != `3` {
			t.Errorf("%+v", r)
		}
	}},
	{"enqueue/replace changes a task that has not started and leaves a running one alone", func(t *T) {
		first := t.addOne(key("a"), args(`1`))
		n := newTask(key("a"), args(`2`), conflict(store.Replace), priority(4), kind("other"), delay(time.Hour))
		n.Tags = []string{"new"}
		if r := t.add(n)[0]; r.ID != first || r.Result != store.Replaced {
			t.Errorf("%+v", r)
		}
		got := t.is(first, store.Scheduled)
		if string(got.Args) != `2` || got.Priority != 4 || got.Kind != "other" || len(got.Tags) != 1 {
			t.Errorf("%+v", got)
		}
		if r := t.add(newTask(key("a"), args(`3`), conflict(store.Replace)))[0]; r.ID != first || r.Result != store.Replaced {
			t.Errorf("%+v", r)
		}
		worker := t.worker()
		if task := t.takeOne(worker); string(task.Args) != `3` || task.ID != first {
			t.Errorf("claimed %+v", task)
		}
		if r := t.add(newTask(key("a"), args(`4`), conflict(store.Replace)))[0]; r.ID != first || r.Result != store.Skipped {
			t.Errorf("while it runs: %+v", r)
		}
		if got := t.is(first, store.Running); string(got.Args) != `3` {
			t.Errorf("%s", got.Args)
		}
	}},
	{"enqueue/rerun ignores what is not newer and replaces what waits", func(t *T) {
		rerun := conflict(store.Rerun)
		first := t.addOne(key("a"), args(`1`), rerun, source(10))
		for _, c := range []struct {
			second int64
			want   store.EnqueueResult
			args   string
		}{{10, store.Stale, `1`}, {5, store.Stale, `1`}, {20, store.Replaced, `20`}, {15, store.Stale, `20`},
			{21, store.Replaced, `21`}} {
			r := t.add(newTask(key("a"), rerun, source(c.second), args(fmt.Sprint(c.second))))[0]
			if r.Result != c.want || r.ID != first {
				t.Errorf("source %d: %+v", c.second, r)
			}
			if got := t.get(first); string(got.Args) != c.args {
				t.Errorf("source %d: args %s", c.second, got.Args)
			}
		}
	}},
	{"enqueue/a source time outlives its task", func(t *T) {
		rerun := conflict(store.Rerun)
		t.addOne(key("a"), rerun, source(10))
		t.mustEnd(to(store.Completed, t.takeOne(t.worker())))
		for _, c := range []struct {
			second int64
			want   store.EnqueueResult
		}{{10, store.Stale}, {9, store.Stale}, {11, store.Added}, {11, store.Stale}} {
			if r := t.add(newTask(key("a"), rerun, source(c.second)))[0]; r.Result != c.want {
				t.Errorf("source %d: %v", c.second, r.Result)
			}
		}
	}},
	{"enqueue/what is stale names the task that ended last", func(t *T) {
		rerun, worker := conflict(store.Rerun), t.worker()
		var last store.ID
		for second := int64(1); second <= 2; second++ {
			last = t.addOne(key("a"), rerun, source(second))
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
		if r := t.add(newTask(key("a"), rerun, source(2)))[0]; r != (store.Enqueued{ID: last, Result: store.Stale}) {
			t.Errorf("%+v, want %v", r, last)
		}
		t.edit(store.Change{Op: store.Delete}, last)
		if r := t.add(newTask(key("a"), rerun, source(2)))[0]; r != (store.Enqueued{Result: store.Stale}) {
			t.Errorf("after it was deleted: %+v", r)
		}
	}},
	{"enqueue/once leaves a task alone that has finished, until it is deleted", func(t *T) {
		once, worker := conflict(store.Once), t.worker()
		for i, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
			name := fmt.Sprint("key-", i)
			first := t.addOne(key(name), once)
			skipped := func(when string, want store.ID) {
				t.Helper()
				if r := t.add(newTask(key(name), once))[0]; r != (store.Enqueued{ID: want, Result: store.Skipped}) {
					t.Errorf("%v, %s: %+v", state, when, r)
				}
			}
			skipped("waiting", first)
			task := t.takeOne(worker)
			skipped("running", first)
			t.mustEnd(to(state, task))
			skipped("over", first)
			second := t.addOne(key(name)) // the key is free for others
			skipped("waiting again", second)
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
			skipped("over again", second)
			t.edit(store.Change{Op: store.Delete}, second)
			skipped("one is deleted", store.ID{})
			t.edit(store.Change{Op: store.Delete}, first)
			if r := t.add(newTask(key(name), once))[0]; r.Result != store.Added {
				t.Errorf("%v, both are deleted: %+v", state, r)
			}
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
		}
	}},
	{"enqueue/once after a cancel, and twice in a call", func(t *T) {
		once := conflict(store.Once)
		first := t.addOne(key("a"), once)
		t.edit(store.Change{Op: store.Cancel}, first)
		r := t.add(newTask(key("a"), once), newTask(key("b"), once), newTask(key("b"), once))
		if r[0] != (store.Enqueued{ID: first, Result: store.Skipped}) || r[1].Result != store.Added ||
			r[2] != (store.Enqueued{ID: r[1].ID, Result: store.Skipped}) {
			t.Errorf("%+v", r)
		}
	}},
	{"enqueue/a call brings one key many times", func(t *T) {
		tasks := make([]store.NewTask, 300)
		for i := range tasks {
			tasks[i] = newTask(key(fmt.Sprint("k", i%100)), args(fmt.Sprint(i)))
			if i >= 200 {
				tasks[i].OnConflict = store.Replace
			}
		}
		results := t.add(tasks...)
		for i, r := range results {
			want := []store.EnqueueResult{store.Added, store.Skipped, store.Replaced}[i/100]
			if r.Result != want || r.ID != tasks[i%100].ID {
				t.Fatalf("task %d: %+v, want %v", i, r, want)
			}
		}
		for i := range 100 {
			if got := t.get(tasks[i].ID); string(got.Args) != fmt.Sprint(200+i) {
				t.Errorf("args %s of key %d", got.Args, i)
			}
		}
	}},
	{"enqueue/reruns during a run become exactly one more, with the newest", func(t *T) {
		rerun := conflict(store.Rerun)
		worker := t.worker()
		first := t.addOne(key("a"), args(`1`), rerun, source(1))
		running := t.takeOne(worker)
		second := t.add(newTask(key("a"), args(`2`), rerun, source(2)))[0]
		if second.Result != store.Awaiting || second.ID == first {
			t.Fatalf("%+v", second)
		}
		for _, r := range t.add(newTask(key("a"), args(`4`), rerun, source(4)),
			newTask(key("a"), args(`5`), rerun, source(5))) {
			if r.Result != store.Awaiting || r.ID != second.ID {
				t.Errorf("%+v", r)
			}
		}
		if r := t.add(newTask(key("a"), args(`3`), rerun, source(3)))[0]; r.Result != store.Stale {
			t.Errorf("an older one: %+v", r)
		}
		if got := t.is(second.ID, store.Pending); string(got.Args) != `5` || got.Key != "a" {
			t.Errorf("awaiting %+v", got)
		}
		if early := t.take(worker, 10); len(early) != 0 {
			t.Fatalf("claimed %d while the first runs", len(early))
		}
		t.mustEnd(to(store.Completed, running))
		t.is(first, store.Completed)
		task := t.takeOne(worker)
		if task.ID != second.ID || string(task.Args) != `5` || task.Attempt != 1 {
			t.Errorf("%+v", task)
		}
		t.mustEnd(to(store.Completed, task))
		if again := t.take(worker, 10); len(again) != 0 {
			t.Errorf("%d more runs", len(again))
		}
		if r := t.add(newTask(key("a"), rerun, source(5)))[0]; r.Result != store.Stale {
			t.Errorf("after the end: %+v", r)
		}
		if r := t.add(newTask(key("a"), rerun, source(6)))[0]; r.Result != store.Added {
			t.Errorf("newer, after the end: %+v", r)
		}
	}},
	{"enqueue/a rerun takes the place of an attempt that did not end for good", func(t *T) {
		rerun := conflict(store.Rerun)
		worker := t.worker()
		for i, state := range []store.State{store.Retryable, store.Scheduled, store.Available, store.Discarded,
			store.Cancelled} {
			name := fmt.Sprint("key-", i)
			first := t.addOne(key(name), rerun, source(1))
			running := t.takeOne(worker)
			second := t.add(newTask(key(name), args(`2`), rerun, source(2)))[0].ID
			o := failed(running, state, "x")
			o.Delay = time.Hour
			t.mustEnd(o)
			want, reason := store.Cancelled, "superseded"
			if state.Finished() {
				want, reason = state, ""
			}
			if got := t.is(first, want); got.Reason != reason {
				t.Errorf("%v: reason %q", state, got.Reason)
			}
			task := t.takeOne(worker)
			if task.ID != second || string(task.Args) != `2` {
				t.Errorf("%v: %+v", state, task)
			}
			t.mustEnd(to(store.Completed, task))
		}
	}},
	{"enqueue/a rerun survives the death of the worker that runs", func(t *T) {
		rerun := conflict(store.Rerun)
		victim := NewID()
		t.beat(victim, 50*time.Millisecond)
		t.addOne(key("a"), rerun, source(1))
		t.takeOne(victim)
		second := t.add(newTask(key("a"), rerun, source(2)))[0].ID
		var dead []store.Task
		t.eventually("rescued", func() bool { dead = t.rescue(10); return len(dead) == 1 })
		t.mustEnd(failed(&dead[0], store.Retryable, "died"))
		if task := t.takeOne(t.worker()); task.ID != second {
			t.Errorf("%+v", task)
		}
	}},
	{"enqueue/an awaiting rerun with a delay is scheduled when its turn comes", func(t *T) {
		worker := t.worker()
		t.addOne(key("a"), conflict(store.Rerun), source(1))
		running := t.takeOne(worker)
		second := t.add(newTask(key("a"), conflict(store.Rerun), source(2), delay(time.Hour)))[0].ID
		t.mustEnd(to(store.Completed, running))
		t.is(second, store.Scheduled)
	}},
	{"enqueue/a cancelled or deleted rerun is forgotten", func(t *T) {
		worker := t.worker()
		for i, op := range []store.Op{store.Cancel, store.Delete} {
			name := fmt.Sprint("key-", i)
			t.addOne(key(name), conflict(store.Rerun), source(1))
			running := t.takeOne(worker)
			second := t.add(newTask(key(name), conflict(store.Rerun), source(2)))[0].ID
			if e := t.edit(store.Change{Op: op}, second)[0]; e.Result != store.Changed {
				t.Errorf("%v: %+v", op, e)
			}
			t.mustEnd(to(store.Completed, running))
			if more := t.take(worker, 10); len(more) != 0 {
				t.Errorf("%v: ran all the same: %+v", op, more)
			}
		}
	}},
}
