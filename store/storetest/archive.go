package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// brief is a retention that is over as soon as the clock has advanced.
var brief = store.Retention{Completed: time.Millisecond, Cancelled: time.Millisecond, Discarded: time.Millisecond}

// archiver returns the engine's Archiver, and skips the clause if the engine is not one.
func (t *T) archiver() store.Archiver {
	t.Helper()
	a, ok := store.As[store.Archiver](t.Store)
	if !ok {
		t.Skip("the engine is no Archiver")
	}
	return a
}

// together is how many tasks more than its limit a page may have, because an engine hands over as a whole what it
// recorded together. The clauses end that many at a time.
const together = 100

// due reads all pages and returns the tasks by id.
func (t *T) due(a store.Archiver, keep store.Retention, limit int) (tasks map[store.ID]store.Task, receipts [][]byte) {
	t.Helper()
	time.Sleep(5 * time.Millisecond)
	tasks = map[store.ID]store.Task{}
	for from, pages := "", 0; ; pages++ {
		page, err := a.Due(t.ctx(), keep, from, limit)
		if err != nil {
			t.Fatalf("due: %v", err)
		}
		if (page.Receipt == nil) != (len(page.Tasks) == 0) {
			t.Errorf("a page of %d tasks has a receipt of %d bytes", len(page.Tasks), len(page.Receipt))
		}
		if len(page.Tasks) > limit+together {
			t.Errorf("a page has %d tasks, about %d were asked for", len(page.Tasks), limit)
		}
		for _, task := range page.Tasks {
			if _, twice := tasks[task.ID]; twice {
				t.Errorf("task %v was handed over twice", task.ID)
			}
			tasks[task.ID] = task
		}
		if page.Receipt != nil {
			receipts = append(receipts, page.Receipt)
		}
		if from = page.Next; from == "" {
			return tasks, receipts
		}
		if pages > 1000 {
			t.Fatal("the pages do not end")
		}
	}
}

// dueNow calls due until at least want tasks are due, while a leader prunes with a retention that keeps everything.
func (t *T) dueNow(a store.Archiver, limit, want int) (tasks map[store.ID]store.Task, receipts [][]byte) {
	t.Helper()
	t.eventually(fmt.Sprintf("%d tasks are due", want), func() bool {
		t.prune(store.Retention{})
		tasks, receipts = t.due(a, brief, limit)
		return len(tasks) >= want
	})
	return tasks, receipts
}

// release deletes the tasks of the receipts, and returns those that were retried since.
func (t *T) release(a store.Archiver, receipts [][]byte) (back []store.ID) {
	t.Helper()
	for _, receipt := range receipts {
		t.eventually("nobody holds what is released", func() bool {
			some, err := a.Release(t.ctx(), receipt)
			if held := new(store.HeldError); errors.As(err, &held) {
				return false
			}
			if err != nil {
				t.Fatalf("release: %v", err)
			}
			back = append(back, some...)
			return true
		})
	}
	slices.SortFunc(back, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(back)
}

// endAll claims all available tasks and ends them.
func (t *T) endAll(worker store.ID, state store.State) {
	t.Helper()
	for tasks := t.take(worker, together); len(tasks) > 0; tasks = t.take(worker, together) {
		outcomes := make([]store.Outcome, len(tasks))
		for i := range tasks {
			outcomes[i] = to(state, &tasks[i])
		}
		t.mustEnd(outcomes...)
	}
}

var archiveClauses = []clause{
	{"archive/hands over finished tasks with their whole history, and deletes nothing", func(t *T) {
		a, worker := t.archiver(), t.worker()
		parent := t.addOne()
		t.endAll(worker, store.Completed)
		rich := newTask(key("k"), priority(3), args(`{"a":1}`), func(n *store.NewTask) {
			n.Tenant, n.Tags, n.Workflow, n.Settings = "t", []string{"x", "y"}, NewID(), []byte(`{"s":1}`)
			n.Needs = []store.Need{{Task: parent}}
		})
		t.add(rich)
		task := t.takeOne(worker)
		t.mustEnd(failed(task, store.Retryable, "first"))
		t.eventually("the retry is due", func() bool { return t.admit(10).Count > 0 })
		task = t.takeOne(worker)
		last := to(store.Completed, task)
		last.Note = &store.Note{Output: []byte(`{"out":1}`), Progress: &store.Progress{Percent: 50, Message: "half"},
			Logs: []store.LogLine{{At: time.Unix(1e9, 0).UTC(), Attempt: 2, Level: "INFO", Text: "line"}}}
		t.mustEnd(last)
		t.addOne()
		dead := failed(t.takeOne(worker), store.Discarded, "boom")
		dead.Reason = "gave up"
		t.mustEnd(dead)
		stopped := t.addOne()
		t.edit(store.Change{Op: store.Cancel, Reason: "why not"}, stopped)
		plain := t.addMany(60)
		t.endAll(worker, store.Completed)
		waits := t.addOne(delay(time.Hour))
		got, _ := t.dueNow(a, 7, len(plain)+4)
		want := t.list(store.Filter{Limit: 1000, Detail: true})
		if len(got) != len(want)-1 {
			t.Fatalf("%d tasks were handed over, want %d", len(got), len(want)-1)
		}
		for _, w := range want {
			if g := got[w.ID]; w.ID != waits && !reflect.DeepEqual(g, w) {
				t.Errorf("handed over:\n%+v\n%+v\nwant:\n%+v\n%+v", g, g.Detail, w, w.Detail)
			}
		}
	}},
	{"archive/hands over what retention would delete, by outcome and queue, and nothing else", func(t *T) {
		a, worker := t.archiver(), t.worker()
		var ids []store.ID
		for _, q := range []string{"a", "b"} {
			for _, state := range []store.State{store.Completed, store.Cancelled, store.Discarded} {
				ids = append(ids, t.addOne(queue(q)))
				t.mustEnd(failed(&t.take(worker, 1, q)[0], state, "x"))
			}
		}
		t.addOne(queue("a"))
		t.dueNow(a, 100, 6)
		keep := store.Retention{Completed: time.Millisecond, Cancelled: time.Hour,
			Queues: map[string]store.Retention{"b": {Discarded: time.Millisecond}}}
		got, _ := t.due(a, keep, 100)
		if _, first := got[ids[0]]; len(got) != 2 || !first || got[ids[5]].ID.IsZero() {
			t.Errorf("handed over %d tasks, want the completed one of a and the discarded one of b", len(got))
		}
		if got, receipts := t.due(a, store.Retention{}, 100); len(got) != 0 || len(receipts) != 0 {
			t.Errorf("handed over %d tasks that are kept for ever", len(got))
		}
	}},
	{"archive/releases exactly what was handed over, as often as asked", func(t *T) {
		a, worker := t.archiver(), t.worker()
		t.addOne(key("a"), conflict(store.Rerun), source(100))
		t.addMany(40)
		t.endAll(worker, store.Completed)
		t.addMany(3)
		t.endAll(worker, store.Discarded)
		handed, receipts := t.dueNow(a, 11, 44)
		late := t.addMany(2)
		t.endAll(worker, store.Completed)
		for range 2 {
			if back := t.release(a, receipts); len(back) != 0 {
				t.Errorf("%d tasks are said to be back", len(back))
			}
			left := t.list(store.Filter{Limit: 100})
			if slices.ContainsFunc(left, func(task store.Task) bool { _, taken := handed[task.ID]; return taken }) ||
				len(left) != len(late) {
				t.Fatalf("%d tasks are left, want the %d that were not handed over", len(left), len(late))
			}
		}
		if r := t.add(newTask(key("a"), conflict(store.Rerun), source(50)))[0]; r.Result != store.Added {
			t.Errorf("the key of a released task starts anew: %+v", r)
		}
	}},
	{"archive/a task that was brought back since stays, and is named each time", func(t *T) {
		a, worker := t.archiver(), t.worker()
		t.addOne()
		t.endAll(worker, store.Discarded)
		ids := t.addMany(30)
		t.endAll(worker, store.Completed)
		dead := t.list(store.Filter{States: []store.State{store.Discarded}})[0].ID
		handed, receipts := t.dueNow(a, 100, 31)
		again := []store.ID{ids[3], ids[17], dead}
		slices.SortFunc(again, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
		t.edit(store.Change{Op: store.Retry}, again...)
		t.edit(store.Change{Op: store.Delete}, ids[5])
		t.sameIDs("back", t.release(a, receipts), again)
		t.endAll(worker, store.Completed)
		for range 2 {
			t.sameIDs("back", t.release(a, receipts), again)
		}
		if left := t.list(store.Filter{Limit: 100}); len(left) != 3 {
			t.Errorf("%d tasks are left, want those that came back", len(left))
		}
		anew, receipts := t.dueNow(a, 100, 3)
		for _, id := range again {
			if !anew[id].FinishedAt.After(handed[id].FinishedAt) {
				t.Errorf("%v ended at %v, and before at %v", id, anew[id].FinishedAt, handed[id].FinishedAt)
			}
		}
		if back := t.release(a, receipts); len(back) != 0 || len(t.list(store.Filter{})) != 0 {
			t.Errorf("%d tasks are back, want none", len(back))
		}
	}}, {"archive/pages are about as large as was asked for", func(t *T) {
		a, worker := t.archiver(), t.worker()
		const many = 5 * together
		for range many / together {
			t.addMany(together)
		}
		t.endAll(worker, store.Completed)
		t.dueNow(a, 10, many)
	}},
	{"archive/what has come back or is gone does not hide what is due", func(t *T) {
		a, worker := t.archiver(), t.worker()
		end := func() store.ID {
			id := t.addOne()
			t.endAll(worker, store.Completed)
			t.prune(store.Retention{}) // so that each is recorded separately
			return id
		}
		t.edit(store.Change{Op: store.Delete}, end())
		t.edit(store.Change{Op: store.Retry, Delay: time.Hour}, end(), end())
		last := end()
		t.eventually("the task is due", func() bool {
			got, _ := t.due(a, brief, 1)
			_, is := got[last]
			return is && len(got) == 1
		})
		_, receipts := t.dueNow(a, 1, 1)
		if back := t.release(a, receipts); len(back) > 0 {
			t.Errorf("%d tasks are back that were not handed over", len(back))
		}
		t.gone(last)
		if got, receipts := t.due(a, brief, 1); len(got)+len(receipts) > 0 {
			t.Errorf("%d tasks and %d receipts are left", len(got), len(receipts))
		}
	}},
}
