package storetest

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// parking is a claim that is left with the engine, and its answer.
type parking struct {
	store.Parked
	recall func()
	begun  atomic.Bool
	answer chan parkedAnswer
}

type parkedAnswer struct {
	tasks []store.Task
	err   error
}

// park leaves a claim with the engine, for a task of queue q. It skips the clause if the engine is no Parker.
func (t *T) park(s store.Store, worker store.ID) *parking {
	engine, ok := s.(store.Parker)
	if !ok {
		t.Skip("the engine is no Parker")
	}
	p := &parking{answer: make(chan parkedAnswer, 1)}
	p.Parked = store.Parked{
		Request: one(worker),
		Begin:   func(queue string) bool { return queue == "q" && p.begun.CompareAndSwap(false, true) },
		Answer:  func(tasks []store.Task, _ time.Time, err error) { p.answer <- parkedAnswer{tasks, err} },
	}
	p.recall = engine.Park(&p.Parked)
	return p
}

// got returns the task that a parked claim got, or nil. If the engine used the claim, it must have answered it.
func (t *T) got(p *parking) *store.Task {
	t.Helper()
	select {
	case a := <-p.answer:
		if a.err != nil || len(a.tasks) > 1 {
			t.Fatalf("a parked claim got %d tasks, %v", len(a.tasks), a.err)
		}
		if len(a.tasks) == 1 {
			return &a.tasks[0]
		}
	default:
		if p.begun.Load() {
			t.Fatal("a parked claim was used and not answered")
		}
	}
	return nil
}

// lentNothing fails if a parked claim got a task.
func (t *T) lentNothing(what string, p *parking) {
	t.Helper()
	if task := t.got(p); task != nil {
		t.Errorf("%s was leased as it was stored: %v", what, task.ID)
	}
	p.recall()
}

// idle returns a worker of a queue whose tasks have all ended.
func (t *T) idle() (worker store.ID) {
	worker = t.worker()
	t.addOne()
	t.rest(worker)
	return worker
}

var parkClauses = []clause{
	{"park/a task that is leased as it is stored is like one that was claimed", func(t *T) {
		worker := t.idle()
		p := t.park(t.Store, worker)
		id := t.addOne(func(n *store.NewTask) { n.Tags, n.Tenant, n.Settings = []string{"a", `b"\`}, "t", []byte(`{}`) })
		task := t.got(p)
		if task == nil {
			t.Fatal("the engine did not lease it")
		}
		again := p.Request
		again.Again = true
		tasks, err := t.Claim(t.ctx(), again)
		if err != nil || len(tasks) != 1 || !reflect.DeepEqual(tasks[0], *task) {
			t.Fatalf("repeated: %+v, %v, want %+v", tasks, err, task)
		}
		if task.ID != id || task.Worker != worker || task.Lease != p.Request.Token || task.Attempt != 1 {
			t.Errorf("%+v", task)
		}
		t.is(id, store.Running)
		if n := len(t.take(worker, 10)); n != 0 {
			t.Errorf("claimed %d more", n)
		}
		t.addMany(2)
		t.mustEnd(to(store.Completed, task))
		t.is(id, store.Completed)
		if n := len(t.take(worker, 10)); n != 2 {
			t.Errorf("claimed %d of 2 that came later", n)
		}
	}},
	{"park/a task with a key that is taken changes what has the key, and leaves the claim without a task", func(t *T) {
		worker := t.idle()
		p := t.park(t.Store, worker)
		id := t.addOne(key("a"))
		holder := t.got(p)
		if holder == nil {
			t.Fatal("the engine did not lease it")
		}
		if holder.ID != id || holder.Key != "a" {
			t.Errorf("leased %+v", holder)
		}
		p = t.park(t.Store, worker)
		if r := t.add(newTask(key("a"))); r[0].Result != store.Skipped || r[0].ID != id {
			t.Errorf("a second task with the key: %+v", r)
		}
		t.lentNothing("a task that was skipped", p)
		t.mustEnd(to(store.Completed, holder))
		p = t.park(t.Store, worker)
		if id = t.addOne(key("a")); t.got(p) == nil {
			t.Errorf("%v was not leased after the key was free again", id)
		}
		p = t.park(t.Store, worker)
		if r := t.add(newTask(key("b"), conflict(store.Once))); r[0].Result != store.Added || t.got(p) == nil {
			t.Errorf("the first with a key: %+v", r)
		}
	}},
	{"park/a task that others precede is not leased, nor is one that may not run at once", func(t *T) {
		worker := t.idle()
		first := t.addOne()
		p := t.park(t.Store, worker)
		second := t.addOne()
		t.lentNothing("a task behind another one", p)
		t.inOrder("claimed", idsOfTasks(t.take(worker, 10)), []store.ID{first, second})
		for what, change := range map[string]func(*store.NewTask){
			"a delayed task":             delay(time.Hour),
			"a task that runs in turns":  func(n *store.NewTask) { n.Turn = true },
			"a task of another queue":    func(n *store.NewTask) { n.Queue = "p" },
			"one of two tasks of a call": nil,
		} {
			p := t.park(t.Store, worker)
			if change != nil {
				t.addOne(change)
			} else {
				t.addMany(2)
			}
			t.lentNothing(what, p)
		}
		t.rest(worker)
		better := t.addOne(priority(-1))
		p = t.park(t.Store, worker)
		t.addOne(priority(1))
		t.lentNothing("a task of a lower priority", p)
		if tasks := t.take(worker, 1); len(tasks) != 1 || tasks[0].ID != better {
			t.Errorf("claimed %v, want %v", tasks, better)
		}
	}},
	{"park/a claim that was recalled, or that does not begin, or of a dead worker, gets nothing", func(t *T) {
		worker := t.idle()
		p := t.park(t.Store, worker)
		p.recall()
		t.addOne()
		t.lentNothing("after it was recalled", p)
		p = t.park(t.Store, worker)
		p.begun.Store(true) // so Begin returns false
		t.take(worker, 10)
		id := t.addOne()
		if t.is(id, store.Available); len(p.answer) > 0 {
			t.Error("a claim that did not begin was answered")
		}
		p.recall()
		t.take(worker, 10)
		dead := t.worker()
		p = t.park(t.Store, dead)
		t.beat(dead, 0)
		id = t.addOne()
		t.lentNothing("after the worker had signed off", p)
		t.is(id, store.Available)
	}},
	{"park/what a transaction stored that was open meanwhile is claimed", func(t *T) {
		t.transactor()
		worker := t.idle()
		t.park(t.Store, worker).recall() // skips the clause before a transaction is open
		for round := range 3 {
			before, commit, _ := t.begin()
			if _, err := before.Enqueue(t.ctx(), []store.NewTask{newTask(), newTask()}); err != nil {
				t.Fatal(err)
			}
			want := 2
			for range round + 1 {
				p := t.park(t.Store, worker)
				t.addOne()
				if t.got(p) == nil {
					want++
				}
				p.recall()
			}
			after, commitLater, _ := t.begin()
			if _, err := after.Enqueue(t.ctx(), []store.NewTask{newTask()}); err != nil {
				t.Fatal(err)
			}
			commit()
			if n := len(t.take(worker, 10)); n != want {
				t.Errorf("round %d: claimed %d, want %d", round, n, want)
			}
			commitLater()
			if n := len(t.take(worker, 10)); n != 1 {
				t.Errorf("round %d: claimed %d of the last transaction", round, n)
			}
		}
	}},
	{"park/tasks that are leased as they are stored, claimed, and committed late are each leased once", func(t *T) {
		t.transactor()
		t.park(t.Store, t.worker()).recall()
		const each, parkers = 150, 3
		var mu sync.Mutex
		var atOnce atomic.Int64
		seen, stored := map[store.ID]int{}, 0
		saw := func(s store.Store, tasks []store.Task) {
			mu.Lock()
			defer mu.Unlock()
			var outcomes []store.Outcome
			for i := range tasks {
				seen[tasks[i].ID]++
				outcomes = append(outcomes, to(store.Completed, &tasks[i]))
			}
			if lost, err := finish(t.ctx(), s, outcomes); err != nil || len(lost) > 0 {
				t.Errorf("lost %d, %v", len(lost), err)
			}
		}
		var over atomic.Bool
		var adding, claiming sync.WaitGroup
		for range parkers {
			s, worker := t.another(), NewID()
			beat := store.Beat{TTL: time.Minute, Worker: store.Worker{ID: worker, Queues: []string{"q"}, Concurrency: 50}}
			if _, err := s.Extend(t.ctx(), beat); err != nil {
				t.Fatal(err)
			}
			adding.Go(func() { // a process that enqueues and works
				for range each {
					p := t.park(s, worker)
					n := newTask()
					if rand.N(3) == 0 {
						n.Key = n.ID.String()
					}
					results, err := s.Enqueue(t.ctx(), []store.NewTask{n})
					if err != nil || len(results) != 1 {
						t.Errorf("%v", err)
					}
					if task := t.got(p); task != nil {
						atOnce.Add(1)
						saw(s, []store.Task{*task})
					}
					p.recall()
					time.Sleep(rand.N(20 * time.Millisecond))
				}
			})
			claiming.Go(func() {
				for last := false; ; last = over.Load() {
					tasks := t.takeFrom(s, worker, 20)
					if saw(s, tasks); len(tasks) == 0 && last {
						return
					}
					time.Sleep(rand.N(3 * time.Millisecond))
				}
			})
		}
		for range each / 3 {
			tx, commit, rollback := t.begin()
			if _, err := tx.Enqueue(t.ctx(), []store.NewTask{newTask()}); err != nil {
				t.Errorf("%v", err)
			}
			time.Sleep(rand.N(5 * time.Millisecond))
			if rand.N(4) == 0 {
				rollback()
				continue
			}
			commit()
			stored++
		}
		adding.Wait()
		over.Store(true)
		claiming.Wait()
		for id, times := range seen {
			if times != 1 {
				t.Errorf("%v was leased %d times", id, times)
			}
		}
		t.Logf("%d of %d were leased as they were stored", atOnce.Load(), len(seen))
		if want := parkers*each + stored; len(seen) != want {
			t.Errorf("leased %d of %d", len(seen), want)
		}
		if n := t.counts()["q available"]; n != 0 {
			t.Errorf("%d are left", n)
		}
	}},
}
