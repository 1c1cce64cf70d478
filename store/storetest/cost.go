package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Meter reports how much an engine's database has read, and controls what its planner assumes.
type Meter struct {
	Store store.Store
	Read  func() int64 // pages or rows since the database was created
	// Learn updates the planner's statistics to the present contents.
	Learn func()
	// Beliefs are other assumptions that the planner can have.
	Beliefs []Belief
}

// Belief makes the planner assume something about the tables.
type Belief struct {
	Name string
	Hold func()
}

// costly is a call whose cost must not depend on what the planner assumes. Its prepare function creates what the call
// works on, and returns the call.
type costly struct {
	name    string
	prepare func(c *costs) (call func())
}

// Costs makes each call of the contract in a small database, and then in one with n tasks of every sort: while the
// planner still assumes that there are few, with current statistics, and with each Belief of the meter. A call must
// read about the same whatever the planner assumes, and not much more than in the small database.
//
// A call may read twice as much as with current statistics, plus Bound. It may exceed its reads in the small database
// by ten times Bound, because a list reads a bounded number of tasks.
func Costs(t *testing.T, m Meter, n int, bound int64) {
	fresh := func(testing.TB) func() store.Store { return func() store.Store { return m.Store } }
	c := &costs{T: newT(t, Engine{New: fresh}), Meter: m}
	c.worker = c.T.worker()
	c.fill(100)
	m.Learn()
	few := c.measure(nil)
	more := func(than []int64, times int64) []int64 {
		most := make([]int64, len(than))
		for i := range than {
			most[i] = times*than[i] + bound
		}
		return most
	}
	m.Learn()
	c.fill(n)
	read := map[string][]int64{"believes that there are few": c.measure(more(few, 1))}
	m.Learn()
	knowing := c.measure(more(few, 1))
	for _, b := range m.Beliefs {
		b.Hold()
		read[b.Name] = c.measure(more(knowing, 2))
	}
	for i, call := range calls {
		t.Logf("%s reads %d beside few tasks, %d beside %d", call.name, few[i], knowing[i], n)
		if knowing[i] > few[i]+10*bound {
			t.Errorf("%s reads %d beside %d tasks, and %d beside few", call.name, knowing[i], n, few[i])
		}
		usual := max(knowing[i], few[i]) // one of them may not have been counted completely
		for belief, all := range read {
			if all[i] > 2*usual+bound {
				t.Errorf("%s reads %d while the planner %s, and %d when it knows", call.name, all[i], belief, usual)
			}
		}
	}
}

type costs struct {
	*T
	Meter
	worker store.ID
	filled int
	small  store.ID // a workflow of few tasks, which are older than most
}

// measure makes each call twice. It makes up to three more while the call reads more than most allows, because
// something else may read at the same time: chores of the database, or connections that end. It returns the least
// that each call read, ignoring zero, which may mean that the database has not counted yet.
func (c *costs) measure(most []int64) []int64 {
	least := make([]int64, len(calls))
	for i, one := range calls {
		for made := 0; made < 2 || made < 5 && most != nil && least[i] > most[i]; made++ {
			call := one.prepare(c)
			before := c.Meter.Read()
			call()
			if read := c.Meter.Read() - before; least[i] == 0 || 0 < read && read < least[i] {
				least[i] = read
			}
		}
	}
	return least
}

// fill adds n tasks of every sort that may be stored next to a task.
func (c *costs) fill(n int) {
	if c.filled++; c.small.IsZero() {
		c.small = NewID()
		of := func(t *store.NewTask) { t.Workflow = c.small }
		c.addMany(few, queue("other"), of, delay(time.Hour))
		c.addMany(few, queue("other"), of, needs(store.CancelOnFailure, c.addOne(queue("other"), delay(time.Hour))))
	}
	in := func(name string) func(*store.NewTask) { return queue("fill " + name) }
	many := func(n int, of func(i int) store.NewTask) (ids []store.ID) {
		tasks := make([]store.NewTask, n)
		for i := range tasks {
			tasks[i] = of(i)
		}
		for part := range slices.Chunk(tasks, 2000) {
			ids = append(ids, idsOf(c.add(part...))...)
		}
		return ids
	}
	name := func(i int) string { return fmt.Sprint("n", c.filled, "-", i) }
	many(n, func(i int) store.NewTask { return newTask(in("plain"), priority(int16(i%3))) })
	many(n, func(i int) store.NewTask { return newTask(in("later"), delay(time.Hour+time.Duration(i)*time.Second)) })
	many(n, func(i int) store.NewTask { return newTask(in("line"), inTurn("big", "")) })
	many(n/10, func(i int) store.NewTask { return newTask(in("line"), inTurn(fmt.Sprint("t", i%100), "")) })
	many(n/10, func(i int) store.NewTask {
		t := newTask(in("named"), key(name(i)))
		t.Tenant, t.Tags = fmt.Sprint("t", i%100), []string{fmt.Sprint("tag", i%100)}
		return t
	})
	root := c.addOne(in("graph"), delay(time.Hour))
	leaves := many(n/10, func(i int) store.NewTask {
		t := newTask(in("graph"), needs(store.CancelOnFailure, root))
		t.Workflow = root
		return t
	})
	c.addOne(in("graph"), needs(store.CancelOnFailure, leaves[:min(len(leaves), 500)]...))
	many(n/10, func(i int) store.NewTask { return newTask(in("over")) })
	for i := 0; ; i++ {
		tasks := c.take(c.worker, 1000, "fill over")
		if len(tasks) == 0 {
			return
		}
		ends := make([]store.Outcome, len(tasks))
		for at := range tasks {
			state := []store.State{store.Completed, store.Completed, store.Discarded, store.Cancelled}[at%4]
			if ends[at] = to(state, &tasks[at]); state == store.Discarded {
				ends[at] = failed(&tasks[at], state, fmt.Sprint("e", at%10))
			}
		}
		c.mustEnd(ends...)
	}
}

// few is the number of tasks that a call is given.
const few = 10

// held adds a few tasks to a queue and claims them.
func (c *costs) held(of string) []store.Task {
	c.addMany(few, queue(of))
	return c.claimed(few, of)
}

// claimed claims n tasks of a queue, and fails if there are fewer.
func (c *costs) claimed(n int, of string) []store.Task {
	tasks := c.take(c.worker, n, of)
	if len(tasks) != n {
		c.Fatalf("claimed %d of %d", len(tasks), n)
	}
	return tasks
}

// ends returns a call that ends the tasks in one way.
func (c *costs) ends(tasks []store.Task, as func(*store.Task) store.Outcome) func() {
	outcomes := make([]store.Outcome, len(tasks))
	for i := range tasks {
		outcomes[i] = as(&tasks[i])
	}
	return func() { c.mustEnd(outcomes...) }
}

func completes(t *store.Task) store.Outcome { return to(store.Completed, t) }

// changes returns a call that makes one change to a few tasks, which later calls then do not meet.
func changes(change store.Change, made ...func(*store.NewTask)) func(c *costs) func() {
	return func(c *costs) func() {
		ids := c.addMany(few, append(made, queue("edited"))...)
		return func() { c.edit(change, ids...) }
	}
}

func lists(f store.Filter) func(c *costs) func() {
	return func(c *costs) func() {
		return func() { c.list(f) }
	}
}

func (c *costs) search(f store.Filter) {
	c.Helper()
	engine, ok := store.As[store.Searcher](c.T.Store)
	if !ok {
		c.list(f)
		return
	}
	tasks, _, err := engine.Search(c.ctx(), f, 1<<30)
	if err != nil || len(tasks) != f.Limit {
		c.Fatalf("%d tasks, %v", len(tasks), err)
	}
}

var calls = []costly{
	{"enqueue", func(c *costs) func() { return func() { c.addMany(few, queue("other")) } }},
	{"enqueue for later", func(c *costs) func() { return func() { c.addMany(few, queue("other"), delay(2*time.Hour)) } }},
	{"enqueue in line", func(c *costs) func() { return func() { c.addMany(few, queue("other"), inTurn("a", "")) } }},
	{"enqueue with a key", func(c *costs) func() {
		return func() { c.addOne(queue("other"), key(NewID().String()), conflict(store.Replace)) }
	}},
	{"enqueue with a key that is taken", func(c *costs) func() {
		c.addOne(queue("other"), key("taken"))
		return func() { c.addOne(queue("other"), key("taken"), conflict(store.Replace)) }
	}},
	{"enqueue what needs another", func(c *costs) func() {
		id := c.addOne(queue("other"), delay(time.Hour))
		return func() { c.addMany(few, queue("other"), needs(store.CancelOnFailure, id)) }
	}},
	{"claim", func(c *costs) func() {
		c.addMany(few)
		return func() { c.take(c.worker, few) }
	}},
	{"claim from the backlog", func(c *costs) func() { return func() { c.take(c.worker, few, "fill plain") } }},
	{"claim from an empty queue", func(c *costs) func() { return func() { c.take(c.worker, few, "empty") } }},
	{"complete", func(c *costs) func() { return c.ends(c.held("q"), completes) }},
	{"retry", func(c *costs) func() {
		return c.ends(c.held("q"), func(t *store.Task) store.Outcome {
			o := failed(t, store.Retryable, "x")
			o.Delay = time.Hour
			return o
		})
	}},
	{"discard", func(c *costs) func() {
		return c.ends(c.held("q"), func(t *store.Task) store.Outcome { return failed(t, store.Discarded, "x") })
	}},
	{"hand back", func(c *costs) func() {
		return c.ends(c.held("back"), func(t *store.Task) store.Outcome {
			o := to(store.Available, t)
			o.Attempt--
			return o
		})
	}},
	{"complete what has a key", func(c *costs) func() {
		c.addOne(queue("keyed"), key(NewID().String()))
		return c.ends(c.claimed(1, "keyed"), completes)
	}},
	{"complete what another needs", func(c *costs) func() {
		id := c.addOne(queue("needed"))
		c.addOne(queue("other"), needs(store.CancelOnFailure, id))
		return c.ends(c.claimed(1, "needed"), completes)
	}},
	{"fail what another needs", func(c *costs) func() {
		id := c.addOne(queue("needed"))
		c.addOne(queue("other"), needs(store.CancelOnFailure, id))
		end := c.ends(c.claimed(1, "needed"), func(t *store.Task) store.Outcome { return failed(t, store.Discarded, "x") })
		return func() { end(); c.admit(100) }
	}},
	{"complete what had a turn", func(c *costs) func() {
		c.grant(c.addMany(few, queue("turns"), inTurn("a", ""))...)
		return c.ends(c.claimed(few, "turns"), completes)
	}},
	{"look at who waits for a turn", func(c *costs) func() { return func() { c.turns() } }},
	{"grant", func(c *costs) func() {
		ids := c.addMany(few, queue("granted"), inTurn("a", ""))
		return func() { c.grant(ids...) }
	}},
	{"grant from the backlog", func(c *costs) func() {
		var ids []store.ID
		for _, g := range c.turns() {
			if g.Queue == "fill line" && g.Tenant == "big" {
				ids = g.Waiting[:min(len(g.Waiting), few)]
			}
		}
		return func() { c.grant(ids...) }
	}},
	{"admit", func(c *costs) func() {
		c.addMany(few, queue("admitted"), delay(time.Millisecond))
		time.Sleep(5 * time.Millisecond)
		return func() { c.admit(100) }
	}},
	{"exchange", func(c *costs) func() {
		c.addMany(2)
		done := c.claimed(1, "q")
		if _, is := c.T.Store.(store.Exchanger); !is {
			return func() { c.ends(done, completes)(); c.take(c.worker, 1) }
		}
		return func() { c.swap(c.worker, &done[0]) }
	}},
	{"enqueue what is leased as it is stored", func(c *costs) func() {
		c.rest(c.worker)
		if _, is := c.T.Store.(store.Parker); !is {
			return func() { c.addOne() }
		}
		return func() {
			p := c.park(c.T.Store, c.worker)
			c.addOne()
			if c.got(p) == nil {
				c.Error("the task was not leased as it was stored")
			}
			p.recall()
		}
	}},
	{"prune nothing", func(c *costs) func() {
		return func() { c.prune(store.Retention{Completed: time.Hour, Cancelled: time.Hour, Discarded: time.Hour}) }
	}},
	{"rescue nothing", func(c *costs) func() { return func() { c.rescue(100) } }},
	{"beat", func(c *costs) func() { return func() { c.beat(c.worker, time.Minute) } }},
	{"cancel", changes(store.Change{Op: store.Cancel})},
	{"cancel what has a key", func(c *costs) func() {
		id := c.addOne(queue("edited"), key(NewID().String()))
		return func() { c.edit(store.Change{Op: store.Cancel}, id) }
	}},
	{"cancel from the backlog", func(c *costs) func() {
		line := store.Filter{Queues: []string{"fill line"}, States: []store.State{store.Pending}, Limit: few}
		ids := idsOfTasks(c.list(line))
		return func() { c.edit(store.Change{Op: store.Cancel}, ids...) }
	}},
	{"reprioritize", changes(store.Change{Op: store.Reprioritize, Priority: 5})},
	{"reprioritize what waits in line", changes(store.Change{Op: store.Reprioritize, Priority: 5}, inTurn("a", ""))},
	{"move", changes(store.Change{Op: store.Move, Queue: "moved"})},
	{"delete", changes(store.Change{Op: store.Delete})},
	{"run what is scheduled now", changes(store.Change{Op: store.Retry}, delay(time.Hour))},
	{"read a few", func(c *costs) func() {
		ids := c.addMany(few, queue("other"))
		return func() { c.list(store.Filter{IDs: ids, Detail: true}) }
	}},
	{"list a key", lists(store.Filter{Key: "taken", Queues: []string{"other"}})},
	{"list a tag", lists(store.Filter{Tags: []string{"tag7"}, Limit: few})},
	{"list a queue's", lists(store.Filter{Queues: []string{"fill line"}, Limit: few})},
	{"list the latest", lists(store.Filter{Limit: few})},
	{"list a workflow's", func(c *costs) func() {
		return func() { c.list(store.Filter{Workflow: c.small, Limit: few}) }
	}},
	{"search for a workflow's", func(c *costs) func() {
		return func() { c.search(store.Filter{Workflow: c.small, Limit: few}) }
	}},
	{"list a state's", lists(store.Filter{States: []store.State{store.Discarded}, Limit: few})},
	{"records", func(c *costs) func() {
		return func() {
			if _, err := c.Records(c.ctx(), store.RecordFilter{Kind: "none"}); err != nil {
				c.Fatal(err)
			}
		}
	}},
	{"put a record", func(c *costs) func() {
		return func() {
			if _, err := c.put(store.Record{Kind: "cost", Name: NewID().String(), Body: []byte("{}")}); err != nil {
				c.Fatal(err)
			}
		}
	}},
	{"statistics of an hour", func(c *costs) func() {
		return func() { c.stats(store.StatsFilter{Bucket: time.Hour, From: time.Now().Add(-time.Hour)}) }
	}},
	{"groups of errors", func(c *costs) func() {
		return func() {
			if _, err := c.Errors(c.ctx(), store.ErrorFilter{}); err != nil {
				c.Fatal(err)
			}
		}
	}},
	{"workers", func(c *costs) func() {
		return func() {
			if _, err := c.Workers(c.ctx()); err != nil {
				c.Fatal(err)
			}
		}
	}},
}
