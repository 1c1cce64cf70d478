package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// inTurn makes a task of a tenant wait for its turn.
func inTurn(tenant, partition string) func(*store.NewTask) {
	return func(n *store.NewTask) { n.Turn, n.Tenant, n.Partition = true, tenant, partition }
}

func (t *T) turns() []store.Turns {
	t.Helper()
	all, err := t.Turns(t.ctx(), t.lead(), 1000, 1000)
	if err != nil {
		t.Fatalf("turns: %v", err)
	}
	return all
}

func (t *T) grant(ids ...store.ID) int {
	t.Helper()
	n, err := t.Grant(t.ctx(), t.lead(), ids)
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	return n
}

// held returns how many tasks of a tenant in "q" have their turn.
func (t *T) held(tenant string) int64 {
	t.Helper()
	for _, g := range t.turns() {
		if g.Queue == "q" && g.Tenant == tenant {
			return g.Held
		}
	}
	return 0
}

var turnClauses = []clause{
	{"turn/a task waits until it is granted its turn", func(t *T) {
		worker := t.worker()
		id := t.addOne(inTurn("acme", "p"), args(`7`))
		if got := t.is(id, store.Pending); !got.Turn || got.Partition != "p" {
			t.Errorf("%+v", got)
		}
		t.admit(10)
		if early := t.take(worker, 10); len(early) != 0 {
			t.Fatal("claimed before its turn")
		}
		if n := t.grant(id, NewID()); n != 1 {
			t.Errorf("granted %d", n)
		}
		if n := t.grant(id); n != 0 {
			t.Errorf("granted %d again", n)
		}
		task := t.takeOne(worker)
		if task.ID != id || string(task.Args) != `7` || !task.Turn || task.Partition != "p" || task.Tenant != "acme" {
			t.Errorf("%+v", task)
		}
		t.mustEnd(to(store.Completed, task))
		t.is(id, store.Completed)
	}},
	{"turn/a task that is named twice is granted its turn once", func(t *T) {
		worker := t.worker()
		a, b := t.addOne(inTurn("acme", "")), t.addOne(inTurn("acme", ""))
		if n := t.grant(a, b, a); n != 2 {
			t.Errorf("granted %d", n)
		}
		if tasks := t.take(worker, 10); len(tasks) != 2 {
			t.Errorf("%d tasks were claimed, want each once", len(tasks))
		}
	}},
	{"turn/of many that wait as many are told as was asked for, in order", func(t *T) {
		if t.engine.Spread {
			t.Skip("order is approximate")
		}
		var ids []store.ID
		for range 9 {
			ids = append(ids, t.addOne(inTurn("many", "")))
		}
		few := t.addOne(inTurn("few", ""))
		for _, heads := range []int{0, 1, 4, 5, 8, 9, 10} {
			all, err := t.Turns(t.ctx(), t.lead(), 10, heads)
			if err != nil || len(all) != 2 || !slices.Equal(all[0].Waiting, ids[:min(heads, 9)]) ||
				!slices.Equal(all[1].Waiting, []store.ID{few}[:min(heads, 1)]) {
				t.Errorf("%d asked for: %+v, %v", heads, all, err)
			}
		}
	}},
	{"turn/who waits is told by queue, tenant and partition, in order", func(t *T) {
		if t.engine.Spread {
			t.Skip("order is approximate")
		}
		a1 := t.addOne(inTurn("a", "1"), priority(5))
		b := t.addOne(inTurn("b", ""))
		a2 := t.addOne(inTurn("a", "2"))
		first := t.addOne(inTurn("a", "1"), priority(-5))
		last := t.addOne(inTurn("a", "1"), priority(5))
		other := t.addOne(inTurn("a", "1"), queue("other"))
		plain := t.addOne()
		all := t.turns()
		if len(all) != 4 {
			t.Fatalf("%+v", all)
		}
		for i, want := range []store.Turns{
			{Queue: "q", Tenant: "a", Partition: "1", Waiting: []store.ID{first, a1, last}},
			{Queue: "q", Tenant: "b", Waiting: []store.ID{b}},
			{Queue: "q", Tenant: "a", Partition: "2", Waiting: []store.ID{a2}},
			{Queue: "other", Tenant: "a", Partition: "1", Waiting: []store.ID{other}},
		} {
			if fmt.Sprint(all[i]) != fmt.Sprint(want) {
				t.Errorf("group %d: %+v, want %+v", i, all[i], want)
			}
		}
		few, err := t.Turns(t.ctx(), t.lead(), 2, 1)
		if err != nil || len(few) != 2 || len(few[0].Waiting) != 1 || few[0].Waiting[0] != first {
			t.Errorf("%+v, %v", few, err)
		}
		if n := t.grant(last, first); n != 2 {
			t.Errorf("granted %d", n)
		}
		all = t.turns()
		if len(all) != 4 || all[3].Partition != "1" || all[3].Held != 0 {
			t.Errorf("%+v", all)
		}
		if few, _ := t.Turns(t.ctx(), t.lead(), 0, 0); len(few) != 1 || few[0].Held != 2 || few[0].Tenant != "a" {
			t.Errorf("%+v", few)
		}
		t.sameIDs("claimed", idsOfTasks(t.take(t.worker(), 10)), []store.ID{first, plain, last})
	}},
	{"turn/a turn is held until the task ends or is put off, and counted", func(t *T) {
		worker := t.worker()
		for _, c := range []struct {
			state store.State
			keep  bool
			held  int64
		}{{store.Completed, false, 0}, {store.Cancelled, false, 0}, {store.Discarded, false, 0}, {store.Retryable, false, 0},
			{store.Scheduled, false, 0},
			{store.Retryable, true, 1}, {store.Scheduled, true, 1}, {store.Available, false, 1}, {store.Pending, false, 0}} {
			tenant := fmt.Sprint("tenant-", c.state, c.keep)
			id := t.addOne(inTurn(tenant, ""))
			t.grant(id)
			if got := t.held(tenant); got != 1 {
				t.Errorf("granted: held %d", got)
			}
			task := t.takeOne(worker)
			if got := t.held(tenant); got != 1 {
				t.Errorf("claimed: held %d", got)
			}
			o := to(c.state, task)
			o.Delay, o.KeepTurn = time.Hour, c.keep
			t.mustEnd(o)
			if got := t.held(tenant); got != c.held {
				t.Errorf("%v, keep %v: held %d, want %d", c.state, c.keep, got, c.held)
			}
			t.edit(store.Change{Op: store.Delete}, id)
			if got := t.held(tenant); got != 0 {
				t.Errorf("%v, deleted: held %d", c.state, got)
			}
		}
	}},
	{"turn/the end of a task frees its turn and its key", func(t *T) {
		worker := t.worker()
		for range 3 {
			id := t.addOne(inTurn("a", ""), key("k"))
			t.grant(id)
			t.mustEnd(to(store.Completed, t.takeOne(worker)))
			if got := t.held("a"); got != 0 {
				t.Errorf("ended: held %d", got)
			}
		}
	}},
	{"turn/an end that is refused gives no turn back, those beside it do", func(t *T) {
		worker := t.worker()
		t.grant(t.addMany(3, inTurn("a", ""))...)
		tasks := t.take(worker, 3)
		t.mustEnd(to(store.Available, &tasks[1]))
		if lost := t.end(to(store.Completed, &tasks[0]), to(store.Completed, &tasks[1]), to(store.Completed, &tasks[2])); len(
			lost) != 1 || lost[0] != tasks[1].ID {
			t.Errorf("lost %v", lost)
		}
		if got := t.held("a"); got != 1 {
			t.Errorf("held %d", got)
		}
		t.mustEnd(to(store.Completed, t.takeOne(worker)))
		if got := t.held("a"); got != 0 {
			t.Errorf("ended: held %d", got)
		}
	}},
	{"turn/a task that was put off waits for its turn again, unless it kept it", func(t *T) {
		worker := t.worker()
		again, kept := t.addOne(inTurn("a", "")), t.addOne(inTurn("b", ""))
		t.grant(again, kept)
		tasks := t.take(worker, 2)
		if tasks[0].ID == kept { // in many ledgers either may come first
			slices.Reverse(tasks)
		}
		o := failed(&tasks[1], store.Retryable, "x")
		o.KeepTurn = true
		t.mustEnd(failed(&tasks[0], store.Retryable, "x"), o)
		t.is(again, store.Retryable)
		t.is(kept, store.Retryable)
		t.eventually("both due", func() bool {
			t.admit(10)
			return t.get(kept).State == store.Available && t.get(again).State == store.Pending
		})
		task := t.takeOne(worker)
		if task.ID != kept || task.Attempt != 2 {
			t.Errorf("%+v", task)
		}
		t.grant(again)
		if task := t.takeOne(worker); task.ID != again || task.Attempt != 2 {
			t.Errorf("%+v", task)
		}
	}},
	{"turn/a delay and needs come first", func(t *T) {
		worker := t.worker()
		parent := t.addOne()
		child, late := t.addOne(inTurn("a", ""), needs(store.CancelOnFailure, parent)),
			t.addOne(inTurn("b", ""), delay(20*time.Millisecond))
		t.is(late, store.Scheduled)
		if n := t.grant(child, late); n != 0 {
			t.Errorf("granted %d", n)
		}
		t.finishNext(worker, parent, store.Completed)
		t.eventually("due", func() bool { t.admit(10); return t.get(late).State == store.Pending })
		t.is(child, store.Pending)
		if n := t.grant(child, late); n != 2 {
			t.Errorf("granted %d", n)
		}
	}},
	{"turn/edits give turns back", func(t *T) {
		for i, c := range []store.Change{{Op: store.Cancel}, {Op: store.Delete}, {Op: store.Reschedule, Delay: time.Hour},
			{Op: store.Move, Queue: "other"}} {
			tenant := fmt.Sprint("tenant-", i)
			id := t.addOne(inTurn(tenant, ""))
			t.grant(id)
			if e := t.edit(c, id)[0]; e.Result != store.Changed {
				t.Errorf("%v: %+v", c.Op, e)
			}
			if got := t.held(tenant); got != 0 {
				t.Errorf("%v: held %d", c.Op, got)
			}
			if c.Op == store.Move {
				t.is(id, store.Pending)
				if n := t.grant(id); n != 1 {
					t.Errorf("granted %d in its new queue", n)
				}
			}
		}
	}},
	{"turn/what replaces a task that could run keeps its turn, and gives it back to run later", func(t *T) {
		replace := func(changes ...func(*store.NewTask)) store.EnqueueResult {
			changes = append(changes, inTurn("a", ""), key("k"), conflict(store.Replace))
			return t.add(newTask(changes...))[0].Result
		}
		id := t.addOne(inTurn("a", ""), key("k"))
		t.grant(id)
		if r := replace(args(`1`)); r != store.Replaced || t.held("a") != 1 {
			t.Errorf("at once: %v, held %d", r, t.held("a"))
		}
		t.is(id, store.Available)
		if r := replace(delay(time.Hour)); r != store.Replaced || t.held("a") != 0 {
			t.Errorf("later: %v, held %d", r, t.held("a"))
		}
		t.is(id, store.Scheduled)
		t.edit(store.Change{Op: store.Retry}, id)
		t.is(id, store.Pending)
		if n := t.grant(id); n != 1 || t.held("a") != 1 {
			t.Errorf("granted %d again, held %d", n, t.held("a"))
		}
	}},
	{"turn/a task that is replaced in line keeps its place there", func(t *T) {
		replace := func(changes ...func(*store.NewTask)) {
			changes = append(changes, inTurn("t", ""), key("k"), conflict(store.Rerun))
			if r := t.add(newTask(changes...))[0].Result; r != store.Replaced {
				t.Error(r)
			}
		}
		a, b := t.addOne(inTurn("t", ""), key("k")), t.addOne(inTurn("t", ""))
		replace(args(`1`))
		if got := t.is(a, store.Pending); string(got.Args) != `1` {
			t.Errorf("%s", got.Args)
		}
		t.inOrder("at once", t.turns()[0].Waiting, []store.ID{a, b})
		replace(priority(1))
		t.inOrder("of another priority", t.turns()[0].Waiting, []store.ID{b, a})
		replace(delay(time.Hour), priority(1))
		t.inOrder("later", t.turns()[0].Waiting, []store.ID{b})
	}},
	{"turn/waiting tasks are edited", func(t *T) {
		a, b, c := t.addOne(inTurn("a", "")), t.addOne(inTurn("a", "")), t.addOne(inTurn("a", ""))
		t.edit(store.Change{Op: store.Reprioritize, Priority: -1}, b)
		t.edit(store.Change{Op: store.Cancel}, a)
		t.is(a, store.Cancelled)
		t.is(b, store.Pending)
		t.inOrder("waiting", t.turns()[0].Waiting, []store.ID{b, c})
		if e := t.edit(store.Change{Op: store.Retry}, a)[0]; e.Result != store.Changed || e.State != store.Pending {
			t.Errorf("%+v", e)
		}
		t.inOrder("waiting", t.turns()[0].Waiting, []store.ID{b, c, a})
	}},
	{"turn/a task that is given the priority that it has keeps its place in line", func(t *T) {
		b, c := t.addOne(inTurn("a", "")), t.addOne(inTurn("a", ""))
		for _, s := range []struct {
			task     store.ID
			priority int16
			order    []store.ID
		}{{b, 0, []store.ID{b, c}}, {b, 1, []store.ID{c, b}}, {c, 1, []store.ID{b, c}}} {
			t.edit(store.Change{Op: store.Reprioritize, Priority: s.priority}, s.task)
			t.inOrder("reprioritized", t.turns()[0].Waiting, s.order)
		}
	}},
	{"turn/the turns of a dead worker's tasks are held until they are finished", func(t *T) {
		victim := NewID()
		t.beat(victim, 20*time.Millisecond)
		id := t.addOne(inTurn("a", ""))
		t.grant(id)
		t.takeOne(victim)
		var dead []store.Task
		t.eventually("rescued", func() bool { dead = t.rescue(10); return len(dead) == 1 })
		if got := t.held("a"); got != 1 {
			t.Errorf("held %d", got)
		}
		t.mustEnd(failed(&dead[0], store.Retryable, "died"))
		if got := t.held("a"); got != 0 {
			t.Errorf("held %d", got)
		}
	}},
	{"turn/only the leader grants, and asks with its term; anybody asks without one", func(t *T) {
		id := t.addOne(inTurn("a", ""))
		if all, err := t.Turns(t.ctx(), 0, 1, 1); err != nil || len(all) != 1 || len(all[0].Waiting) != 1 ||
			all[0].Waiting[0] != id {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err := t.Grant(t.ctx(), 0, []store.ID{id}); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		term := t.lead()
		if _, err := t.Turns(t.ctx(), term+1, 1, 1); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		if _, err := t.Grant(t.ctx(), term+1, []store.ID{id}); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("%v", err)
		}
		t.is(id, store.Pending)
	}},
	{"turn/tasks without turns are not slowed by those that wait", func(t *T) {
		t.addMany(500, inTurn("a", ""))
		ids := t.addMany(5)
		t.sameIDs("claimed", idsOfTasks(t.take(t.worker(), 10)), ids)
	}},
}
