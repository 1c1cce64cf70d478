package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// restorer returns the engine's Restorer and Archiver, and skips the clause if the engine is not a Restorer.
func (t *T) restorer() (store.Restorer, store.Archiver) {
	t.Helper()
	r, ok := store.As[store.Restorer](t.Store)
	if !ok {
		t.Skip("the engine is no Restorer")
	}
	return r, t.archiver()
}

// noted returns the record that is written along with a restore.
func noted(version int64) store.Record {
	return store.Record{Kind: "note", Name: "restore", Version: version, Body: []byte(`{}`)}
}

// restore puts tasks back together with a record, and returns the record's version.
func (t *T) restore(r store.Restorer, version int64, tasks []store.Task, exist ...store.ID) int64 {
	t.Helper()
	version, got, err := r.Restore(t.ctx(), noted(version), tasks)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	slices.SortFunc(got, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	t.sameIDs("those that exist", got, exist)
	return version
}

// archived reads the finished tasks, deletes them, and returns them, smallest id first.
func (t *T) archived(a store.Archiver, want int) (tasks []store.Task) {
	t.Helper()
	handed, receipts := t.dueNow(a, 100, want)
	t.release(a, receipts)
	for _, task := range handed {
		tasks = append(tasks, task)
	}
	slices.SortFunc(tasks, func(a, b store.Task) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return tasks
}

// finishIn completes the tasks that wait in a queue.
func (t *T) finishIn(worker store.ID, queue string) {
	t.Helper()
	for _, task := range t.take(worker, 100, queue) {
		t.mustEnd(to(store.Completed, &task))
	}
}

// asItWas reports how a restored task differs from the archived one, apart from its end.
func (t *T) asItWas(got, want store.Task) {
	t.Helper()
	if !got.FinishedAt.After(want.FinishedAt) {
		t.Errorf("%v ended at %v, and before at %v", got.ID, got.FinishedAt, want.FinishedAt)
	}
	got.FinishedAt = want.FinishedAt
	if !reflect.DeepEqual(got, want) {
		t.Errorf("restored:\n%+v\n%+v\nwant:\n%+v\n%+v", got, got.Detail, want, want.Detail)
	}
}

var restoreClauses = []clause{
	{"restore/a task that one call names twice is restored once", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		t.addMany(2, queue("twice"))
		t.finishIn(worker, "twice")
		tasks := t.archived(a, 2)
		t.restore(r, 0, append(tasks, tasks[0]), tasks[0].ID)
		for i := range tasks {
			t.is(tasks[i].ID, store.Completed)
		}
		if n := len(t.list(store.Filter{Queues: []string{"twice"}})); n != 2 {
			t.Errorf("%d tasks, want 2", n)
		}
	}},
	{"restore/puts tasks back with their whole history, and counts nothing twice", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		parent := t.addOne()
		t.endAll(worker, store.Completed)
		t.add(newTask(key("k"), priority(3), args(`{"a":1}`), func(n *store.NewTask) {
			n.Tenant, n.Tags, n.Workflow, n.Settings = "t", []string{"x", "y"}, NewID(), []byte(`{"s":1}`)
			n.Needs = []store.Need{{Task: parent}}
			n.ExpiresIn = 24 * time.Hour
		}))
		t.mustEnd(failed(t.takeOne(worker), store.Retryable, "first"))
		t.eventually("the retry is due", func() bool { return t.admit(10).Count > 0 })
		last := to(store.Completed, t.takeOne(worker))
		last.Note = &store.Note{Output: []byte(`{"out":1}`), Progress: &store.Progress{Percent: 50, Message: "half"},
			Logs: []store.LogLine{{At: time.Unix(1e9, 0).UTC(), Attempt: 2, Level: "INFO", Text: "line"},
				{At: time.Unix(1e9, 0).UTC(), Attempt: 2, Level: "INFO", Text: "more"}}}
		t.mustEnd(last)
		t.addOne()
		dead := failed(t.takeOne(worker), store.Discarded, "boom")
		dead.Reason = "gave up"
		t.mustEnd(dead)
		stopped := t.addOne(delay(time.Hour))
		t.edit(store.Change{Op: store.Reprioritize, Priority: 2}, stopped)
		t.edit(store.Change{Op: store.Cancel, Reason: "why not"}, stopped)
		t.addMany(5, queue("other"))
		t.finishIn(worker, "other")
		groups, stats := t.groups(store.ErrorFilter{}), t.stats(store.StatsFilter{})
		was := t.archived(a, 9)
		t.restore(r, 0, was)
		got := t.list(store.Filter{Limit: 100, Detail: true})
		if len(got) != len(was) {
			t.Fatalf("%d tasks are there, want %d", len(got), len(was))
		}
		slices.Reverse(got)
		for i := range was {
			t.asItWas(got[i], was[i])
		}
		if now := t.groups(store.ErrorFilter{}); !reflect.DeepEqual(now, groups) {
			t.Errorf("groups of errors are %+v, and were %+v", now, groups)
		}
		if now := t.stats(store.StatsFilter{}); !reflect.DeepEqual(now, stats) {
			t.Errorf("statistics are %+v, and were %+v", now, stats)
		}
		for what, f := range map[string]store.Filter{"tag": {Tags: []string{"x"}}, "tenant": {Tenants: []string{"t"}},
			"key":   {Key: "k"},
			"state": {States: []store.State{store.Discarded}}, "workflow": {Workflow: got[1].Workflow},
			"error": {Fingerprint: dead.Fingerprint}} {
			if found := t.list(f); len(found) != 1 {
				t.Errorf("by its %s %d tasks are found, want 1", what, len(found))
			}
		}
	}},
	{"restore/leaves tasks that exist alone, and says which; a repetition changes nothing", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		t.addMany(3)
		t.endAll(worker, store.Completed)
		was := t.archived(a, 3)
		version := t.restore(r, 0, was[:1])
		back := t.get(was[0].ID)
		t.restore(r, version, was, was[0].ID)
		if now := t.get(was[0].ID); !now.FinishedAt.Equal(back.FinishedAt) {
			t.Errorf("a task that existed ended at %v, and now at %v", back.FinishedAt, now.FinishedAt)
		}
		if n := len(t.list(store.Filter{})); n != 3 {
			t.Errorf("%d tasks are there, want 3", n)
		}
	}},
	{"restore/is done with its record, or not at all", func(t *T) {
		r, a := t.restorer()
		t.addOne()
		t.endAll(t.worker(), store.Completed)
		was := t.archived(a, 1)
		version, err := t.put(noted(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Restore(t.ctx(), noted(0), was); !errors.Is(err, store.ErrConflict) {
			t.Errorf("with a record that is another: %v", err)
		}
		t.gone(was[0].ID)
		t.restore(r, version, was)
		t.is(was[0].ID, store.Completed)
	}},
	{"restore/a key stays with its living task, and the history is that of the key", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		first := t.addOne(key("k"), queue("a"))
		t.finishIn(worker, "a")
		was := t.archived(a, 1)
		living := t.addOne(key("k"), queue("a"))
		version := t.restore(r, 0, was)
		t.is(living, store.Available)
		if got := t.add(newTask(key("k"), queue("a")))[0]; got.Result != store.Skipped || got.ID != living {
			t.Errorf("while the task lives: %+v", got)
		}
		if e := t.edit(store.Change{Op: store.Retry}, first)[0]; e.Result != store.KeyTaken {
			t.Errorf("a retry while another task has the key: %+v", e)
		}
		t.finishIn(worker, "a")
		t.is(living, store.Completed)
		was = t.archived(a, 2)
		t.restore(r, version, was)
		if got := t.add(newTask(key("k"), queue("a")))[0]; got.Result != store.Added {
			t.Errorf("with restored tasks alone: %+v", got)
		}
		t.finishIn(worker, "a")
		t.edit(store.Change{Op: store.Delete}, was[0].ID, was[1].ID)
		if got := t.add(newTask(key("k"), queue("a")))[0]; got.Result != store.Added {
			t.Errorf("after they were deleted: %+v", got)
		}
	}},
	{"restore/runs again when it is retried, ends, and is handed over anew", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		parent := t.addOne()
		t.mustEnd(failed(t.takeOne(worker), store.Discarded, "boom"))
		child := t.addOne(func(n *store.NewTask) { n.Needs = []store.Need{{Task: parent, OnFailure: store.WaitOnFailure}} })
		was := t.archived(a, 1)
		t.restore(r, 0, was)
		t.is(child, store.Pending)
		if e := t.edit(store.Change{Op: store.Retry}, parent)[0]; e.Result != store.Changed {
			t.Fatalf("retry: %+v", e)
		}
		task := t.takeOne(worker)
		if task.ID != parent || string(task.Args) != string(was[0].Args) {
			t.Fatalf("claimed %+v", task)
		}
		t.mustEnd(to(store.Completed, task))
		t.eventually("the task that needs it runs", func() bool { t.admit(10); return t.get(child).State == store.Available })
		if d := t.list(store.Filter{IDs: []store.ID{parent}, Detail: true})[0].Detail; len(d.Attempts) != 2 ||
			d.Attempts[0].Error != "boom" {
			t.Errorf("its attempts are %+v", d.Attempts)
		}
		t.endAll(worker, store.Completed)
		if left := t.archived(a, 2); len(left) != 2 || len(t.list(store.Filter{})) != 0 {
			t.Errorf("%d tasks were handed over", len(left))
		}
	}},
	{"restore/tasks that needed each other", func(t *T) {
		r, a := t.restorer()
		t.addMany(2)
		t.endAll(t.worker(), store.Completed)
		was := t.archived(a, 2)
		for i := range was {
			was[i].Detail.Needs = []store.NeedState{{Need: store.Need{Task: was[1-i].ID}, State: store.Completed}}
		}
		t.restore(r, 0, was)
		for i := range was {
			t.asItWas(t.is(was[i].ID, store.Completed), was[i])
		}
	}},
	{"restore/retention counts from the restore, and what was handed over before is not released", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		t.addMany(3)
		t.endAll(worker, store.Completed)
		handed, receipts := t.dueNow(a, 100, 3)
		t.release(a, receipts)
		var was []store.Task
		var ids []store.ID
		for id, task := range handed {
			task.FinishedAt = task.FinishedAt.Add(-24 * time.Hour)
			was, ids = append(was, task), append(ids, id)
		}
		t.restore(r, 0, was)
		t.release(a, receipts)
		for _, id := range ids {
			t.is(id, store.Completed)
		}
		t.prune(store.Retention{})
		if early, _ := t.due(a, store.Retention{Completed: time.Hour}, 100); len(early) != 0 {
			t.Errorf("%d tasks are due at once", len(early))
		}
		if again := t.archived(a, 3); len(again) != 3 {
			t.Errorf("%d tasks are due in the end", len(again))
		}
	}},
	{"restore/readers of ends are told nothing", func(t *T) {
		r, a := t.restorer()
		worker := t.worker()
		t.addOne()
		t.mustEnd(failed(t.takeOne(worker), store.Discarded, fmt.Sprintf("worker %v died", NewID())))
		t.addOne()
		t.endAll(worker, store.Completed)
		was := t.archived(a, 2)
		h, cursor := t.historian()
		t.restore(r, 0, was)
		names := map[store.ID]string{was[0].ID: "dead", was[1].ID: "done"}
		if told := t.told(h, &cursor, names, 10); told != "" {
			t.Errorf("told of %s", told)
		}
	}},
}
