package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func needs(policy store.OnFailure, ids ...store.ID) func(*store.NewTask) {
	return func(n *store.NewTask) {
		for _, id := range ids {
			n.Needs = append(n.Needs, store.Need{Task: id, OnFailure: policy})
		}
	}
}

// finishNext claims the next task of "q", which must be the given one, and ends it.
func (t *T) finishNext(worker, id store.ID, state store.State) {
	t.Helper()
	task := t.takeOne(worker)
	if task.ID != id {
		t.Fatalf("claimed %v, want %v", task.ID, id)
	}
	o := failed(task, state, "x")
	if state == store.Completed {
		o = to(state, task)
	}
	t.mustEnd(o)
}

var needClauses = []clause{
	{"need/a task waits for all that it needs, and not longer", func(t *T) {
		worker := t.worker()
		a, b := t.addOne(), t.addOne()
		child := t.addOne(needs(store.CancelOnFailure, a, b), args(`{"x":1}`), priority(3))
		if got := t.is(child, store.Pending); len(got.Detail.Needs) != 2 || got.Detail.Needs[0].State != store.Available {
			t.Errorf("%+v", got.Detail.Needs)
		}
		t.finishNext(worker, a, store.Completed)
		t.is(child, store.Pending)
		t.finishNext(worker, b, store.Completed)
		t.is(child, store.Available)
		if task := t.takeOne(worker); task.ID != child || string(task.Args) != `{"x":1}` || task.Priority != 3 ||
			task.Attempt != 1 {
			t.Errorf("%+v", task)
		}
	}},
	{"need/what has completed before is no longer needed", func(t *T) {
		worker := t.worker()
		a := t.addOne()
		t.finishNext(worker, a, store.Completed)
		for _, policy := range []store.OnFailure{store.CancelOnFailure, store.ContinueOnFailure, store.WaitOnFailure} {
			t.is(t.addOne(needs(policy, a)), store.Available)
		}
	}},
	{"need/parents and children may come in one call", func(t *T) {
		worker := t.worker()
		a := newTask()
		b := newTask(needs(store.CancelOnFailure, a.ID))
		c := newTask(needs(store.CancelOnFailure, a.ID, b.ID))
		t.add(a, b, c)
		t.finishNext(worker, a.ID, store.Completed)
		t.finishNext(worker, b.ID, store.Completed)
		t.finishNext(worker, c.ID, store.Completed)
	}},
	{"need/a retry of what is needed changes nothing until it ends", func(t *T) {
		worker := t.worker()
		a := t.addOne()
		child := t.addOne(needs(store.CancelOnFailure, a))
		t.finishNext(worker, a, store.Retryable)
		t.admit(10)
		t.is(child, store.Pending)
		t.finishNext(worker, a, store.Completed)
		t.is(child, store.Available)
	}},
	{"need/a failure cancels, is waited for, or is all that was needed", func(t *T) {
		worker := t.worker()
		for _, state := range []store.State{store.Discarded, store.Cancelled} {
			a := t.addOne()
			cancelled := t.addOne(needs(store.CancelOnFailure, a))
			below := t.addOne(needs(store.CancelOnFailure, cancelled))
			after := t.addOne(needs(store.ContinueOnFailure, cancelled))
			waits := t.addOne(needs(store.WaitOnFailure, a))
			goesOn := t.addOne(needs(store.ContinueOnFailure, a))
			t.finishNext(worker, a, state)
			t.is(goesOn, store.Available)
			if did := t.admit(10); did.Cancelled != 2 {
				t.Errorf("%+v", did)
			}
			if got := t.is(cancelled, store.Cancelled); !strings.Contains(got.Reason, a.String()) ||
				!strings.Contains(got.Reason, state.String()) || got.FinishedAt.IsZero() {
				t.Errorf("%+v", got)
			}
			t.is(below, store.Cancelled)
			t.is(after, store.Available)
			t.is(waits, store.Pending)
			if e := t.edit(store.Change{Op: store.Retry}, a)[0]; e.Result != store.Changed {
				t.Fatalf("%+v", e)
			}
			for range 3 { // after, goesOn and a, in the order in which they became available
				task := t.takeOne(worker)
				t.mustEnd(to(store.Completed, task))
			}
			t.is(waits, store.Available)
			t.clear(worker, "q")
		}
	}},
	{"need/an operator's cancel or delete is a failure, too", func(t *T) {
		for _, op := range []store.Op{store.Cancel, store.Delete} {
			a := t.addOne()
			child, goesOn := t.addOne(needs(store.CancelOnFailure, a)), t.addOne(needs(store.ContinueOnFailure, a))
			t.edit(store.Change{Op: op}, a)
			t.is(goesOn, store.Available)
			t.admit(10)
			t.is(child, store.Cancelled)
		}
	}},
	{"need/what does not exist has failed", func(t *T) {
		nothing := NewID()
		child, waits, goesOn := t.addOne(needs(store.CancelOnFailure, nothing)),
			t.addOne(needs(store.WaitOnFailure, nothing)), t.addOne(needs(store.ContinueOnFailure, nothing))
		t.is(goesOn, store.Available)
		t.admit(10)
		t.is(child, store.Cancelled)
		t.is(waits, store.Cancelled)
	}},
	{"need/nothing waits for a retry of what is deleted or past its retention", func(t *T) {
		worker := t.worker()
		for name, remove := range map[string]func(parent store.ID){
			"deleted": func(parent store.ID) { t.edit(store.Change{Op: store.Delete}, parent) },
			"pruned":  func(store.ID) { t.prune(store.Retention{Discarded: time.Millisecond}) },
		} {
			a := t.addOne()
			waits := t.addOne(needs(store.WaitOnFailure, a))
			below := t.addOne(needs(store.CancelOnFailure, waits))
			t.finishNext(worker, a, store.Discarded)
			t.admit(10)
			t.is(waits, store.Pending)
			t.eventually("the parent is "+name, func() bool {
				remove(a)
				return len(t.list(store.Filter{IDs: []store.ID{a}})) == 0
			})
			t.eventually("the tasks that wait for what is "+name+" are cancelled", func() bool {
				t.admit(10)
				return t.get(waits).State == store.Cancelled && t.get(below).State == store.Cancelled
			})
			if got := t.get(waits); !strings.Contains(got.Reason, "does not exist") || got.FinishedAt.IsZero() {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}},
	{"need/a parent that is past its retention when its child's transaction commits has ended as it did", func(t *T) {
		t.transactor()
		if t.engine.OneWriter {
			t.Skip("the engine has one writer: nothing ends beside an open transaction that wrote")
		}
		worker := t.worker()
		t.addMany(2)
		parents := t.take(worker, 2)
		tx, commit, _ := t.begin()
		var children []store.NewTask
		for _, policy := range []store.OnFailure{store.CancelOnFailure, store.ContinueOnFailure, store.WaitOnFailure} {
			children = append(children, newTask(needs(policy, parents[0].ID)))
		}
		doomed := newTask(needs(store.CancelOnFailure, parents[1].ID))
		if _, err := tx.Enqueue(t.ctx(), append(children, doomed)); err != nil {
			t.Fatal(err)
		}
		outcomes := []store.Outcome{to(store.Completed, &parents[0]), failed(&parents[1], store.Discarded, "x")}
		_, err := t.Finish(t.ctx(), outcomes)
		held := errors.As(err, new(*store.HeldError)) // it may return that, and wait for the commit
		if err != nil && !held {
			t.Fatal(err)
		}
		prune := func() {
			keep := store.Retention{Completed: time.Nanosecond, Cancelled: time.Hour, Discarded: time.Nanosecond}
			if _, err := t.Prune(t.ctx(), t.lead(), keep, 100); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			prune()
		}
		commit()
		if held {
			t.end(outcomes...)
		}
		for i := range children {
			t.eventually("a child is set free", func() bool {
				t.admit(10)
				return t.get(children[i].ID).State == store.Available
			})
		}
		if got := t.is(doomed.ID, store.Cancelled); !strings.Contains(got.Reason, "discarded") {
			t.Errorf("%+v", got)
		}
		t.eventually("the parents are pruned", func() bool {
			prune()
			return len(t.list(store.Filter{IDs: idsOfTasks(parents)})) == 0
		})
	}},
	{"need/a cancelled child that is retried waits for what it needs", func(t *T) {
		worker := t.worker()
		a := t.addOne()
		child := t.addOne(needs(store.CancelOnFailure, a))
		t.finishNext(worker, a, store.Discarded)
		t.admit(10)
		t.edit(store.Change{Op: store.Retry}, a)
		if e := t.edit(store.Change{Op: store.Retry}, child)[0]; e.Result != store.Changed || e.State != store.Pending {
			t.Errorf("%+v", e)
		}
		t.admit(10)
		t.is(child, store.Pending)
		t.finishNext(worker, a, store.Completed)
		t.finishNext(worker, child, store.Completed)
	}},
	{"need/a task that has failed and is retried does not need again what is pruned", func(t *T) {
		worker := t.worker()
		a := t.addOne()
		child := t.addOne(needs(store.CancelOnFailure, a))
		t.finishNext(worker, a, store.Completed)
		t.finishNext(worker, child, store.Discarded)
		t.eventually("what it needed is pruned", func() bool {
			t.prune(store.Retention{Completed: time.Millisecond})
			return len(t.list(store.Filter{IDs: []store.ID{a}})) == 0
		})
		if e := t.edit(store.Change{Op: store.Retry}, child)[0]; e.Result != store.Changed || e.State != store.Available {
			t.Errorf("%+v", e)
		}
		t.admit(10)
		t.finishNext(worker, child, store.Completed)
	}},
	{"need/a pending task can be cancelled and deleted, and not more", func(t *T) {
		a := t.addOne()
		for op, want := range map[store.Op]store.EditResult{store.Cancel: store.Changed, store.Delete: store.Changed,
			store.Retry: store.Refused, store.Reprioritize: store.Refused, store.Move: store.Refused,
			store.Reschedule: store.Refused} {
			child := t.addOne(needs(store.WaitOnFailure, a))
			if e := t.edit(store.Change{Op: op, Queue: "other"}, child)[0]; e.Result != want {
				t.Errorf("%v: %+v", op, e)
			}
			switch op {
			case store.Cancel:
				t.is(child, store.Cancelled)
			case store.Delete:
				t.gone(child)
			default:
				t.is(child, store.Pending)
			}
		}
	}},
	{"need/a delay counts when the needs are met", func(t *T) {
		worker := t.worker()
		a := t.addOne()
		child := t.addOne(needs(store.CancelOnFailure, a), delay(time.Hour))
		t.is(child, store.Pending)
		t.finishNext(worker, a, store.Completed)
		t.is(child, store.Scheduled)
	}},
	{"need/a pending task holds its key", func(t *T) {
		a := t.addOne()
		child := t.addOne(needs(store.WaitOnFailure, a), key("k"), args(`1`))
		if r := t.add(newTask(key("k")))[0]; r.Result != store.Skipped || r.ID != child {
			t.Errorf("%+v", r)
		}
		if r := t.add(newTask(key("k"), conflict(store.Replace), args(`2`)))[0]; r.Result != store.Replaced || r.ID != child {
			t.Errorf("%+v", r)
		}
		if got := t.is(child, store.Pending); string(got.Args) != `2` {
			t.Errorf("%s", got.Args)
		}
	}},
	{"need/an outcome's tasks are enqueued with it, once, and only if it is accepted", func(t *T) {
		worker := t.worker()
		t.addOne()
		task := t.takeOne(worker)
		next := newTask(args(`"next"`), priority(2))
		o := to(store.Completed, task)
		o.Then = []store.NewTask{next}
		stale := o
		forged := *task
		forged.Lease = store.NewToken()
		stale.Task = &forged
		t.end(stale)
		t.gone(next.ID)
		t.mustEnd(o)
		t.is(next.ID, store.Available)
		o.Then = []store.NewTask{newTask()}
		t.end(o)
		if n := len(t.list(store.Filter{})); n != 2 {
			t.Errorf("%d tasks", n)
		}
		t.finishNext(worker, next.ID, store.Completed)
	}},
	{"need/a task may wait for children that it enqueues, and run again after them", func(t *T) {
		worker := t.worker()
		id := t.addOne()
		task := t.takeOne(worker)
		o := to(store.Pending, task)
		o.Attempt = 0
		for range 3 {
			child := newTask()
			o.Then = append(o.Then, child)
			o.Needs = append(o.Needs, store.Need{Task: child.ID, OnFailure: store.ContinueOnFailure})
		}
		t.mustEnd(o)
		if got := t.is(id, store.Pending); len(got.Detail.Needs) != 3 || !got.Lease.IsZero() {
			t.Errorf("%+v", got)
		}
		t.finishNext(worker, o.Then[0].ID, store.Completed)
		t.finishNext(worker, o.Then[1].ID, store.Discarded)
		t.is(id, store.Pending)
		t.finishNext(worker, o.Then[2].ID, store.Completed)
		again := t.takeOne(worker)
		if again.ID != id || again.Attempt != 1 {
			t.Errorf("%+v", again)
		}
		states := t.get(id).Detail.Needs
		if states[0].State != store.Completed || states[1].State != store.Discarded {
			t.Errorf("%+v", states)
		}
		last := to(store.Pending, again)
		t.mustEnd(last) // nothing to wait for
		t.finishNext(worker, id, store.Completed)
	}},
	{"need/a workflow's tasks are found by it", func(t *T) {
		flow := NewID()
		var want []store.ID
		for range 3 {
			n := newTask()
			n.Workflow = flow
			t.add(n)
			want = append([]store.ID{n.ID}, want...)
		}
		t.addOne()
		t.sameIDs("found", idsOfTasks(t.list(store.Filter{Workflow: flow})), want)
		for i, id := range want {
			page := t.list(store.Filter{Workflow: flow, Before: id, Limit: 1})
			t.sameIDs("found next", idsOfTasks(page), want[i+1:][:min(1, len(want)-i-1)])
		}
		for _, task := range t.take(t.worker(), 10) {
			if (task.Workflow == flow) != slices.Contains(want, task.ID) {
				t.Errorf("%+v", task)
			}
		}
	}},
	{"need/of two last parents that end at once one sets the child free, once", func(t *T) {
		worker := t.worker()
		other := t.another()
		for range 30 {
			parents := t.addMany(4)
			child := t.addOne(needs(store.CancelOnFailure, parents...))
			tasks := t.take(worker, 4)
			var all sync.WaitGroup
			for i := range tasks {
				s := t.Store
				if i%2 == 0 {
					s = other
				}
				all.Go(func() {
					if lost, err := finish(t.ctx(), s, []store.Outcome{to(store.Completed, &tasks[i])}); err != nil || len(lost) > 0 {
						t.Errorf("%v %v", lost, err)
					}
				})
			}
			all.Wait()
			t.finishNext(worker, child, store.Completed)
			if more := t.take(worker, 10); len(more) != 0 {
				t.Fatalf("%d more", len(more))
			}
		}
	}},
	{"need/a wide and deep graph runs from one end to the other", func(t *T) {
		worker := t.worker()
		var graph []store.NewTask
		var before []store.ID
		for level := range 4 {
			var ids []store.ID
			for range 40 {
				n := newTask(needs(store.CancelOnFailure, before...), args(fmt.Sprint(level)))
				graph = append(graph, n)
				ids = append(ids, n.ID)
			}
			before = ids
		}
		t.add(graph...)
		for level := range 4 {
			tasks := t.take(worker, 1000)
			if len(tasks) != 40 {
				t.Fatalf("level %d: %d tasks", level, len(tasks))
			}
			var outcomes []store.Outcome
			for i := range tasks {
				if string(tasks[i].Args) != fmt.Sprint(level) {
					t.Fatalf("level %d: %s", level, tasks[i].Args)
				}
				outcomes = append(outcomes, to(store.Completed, &tasks[i]))
			}
			t.mustEnd(outcomes...)
		}
	}},
}
