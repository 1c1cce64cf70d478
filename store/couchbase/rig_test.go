package couchbase

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// rig is a fake cluster with two handles: a, which meets the faults, and b, which continues after them.
type rig struct {
	testing.TB
	f        *cbfake.Cluster
	a, b     *Store
	worker   store.ID // of a
	leader   store.ID // by b
	term     int64
	stored   int64 // the version of a record
	ids      map[string]store.ID
	held     map[string]store.Task // tasks that a has claimed
	ran      map[store.ID]int      // how often b has completed each task
	order    []store.ID            // the order in which b has completed tasks
	archived []store.Task          // archived and then deleted
}

func newRig(tb testing.TB, nodes int) *rig {
	r := &rig{TB: tb, f: newFake(tb, nodes), worker: storetest.NewID(), leader: storetest.NewID(),
		ids: map[string]store.ID{}, held: map[string]store.Task{}, ran: map[store.ID]int{}}
	r.a, r.b = openFake(tb, r.f), openFake(tb, r.f)
	r.b.patience = 2 * time.Millisecond
	r.beat(r.a, r.worker, time.Hour)
	r.lead()
	return r
}

func (r *rig) must(what string, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	r.Cleanup(cancel)
	return ctx
}

func (r *rig) lead() int64 {
	r.Helper()
	l, err := r.b.Lead(r.ctx(), store.Candidate{ID: r.leader, Term: r.term, TTL: time.Hour})
	r.must("lead", err)
	r.term = l.Term
	return l.Term
}

func (r *rig) beat(s *Store, id store.ID, ttl time.Duration) {
	r.Helper()
	_, err := s.Extend(r.ctx(), store.Beat{Worker: store.Worker{ID: id, Queues: []string{"q"}}, TTL: ttl})
	r.must("extend", err)
}

// task makes a task with a name.
func (r *rig) task(name string, change func(n *store.NewTask)) store.NewTask {
	n := store.NewTask{ID: storetest.NewID(), Kind: name, Queue: "q", Args: []byte(`"` + name + `"`)}
	if change != nil {
		change(&n)
	}
	r.ids[name] = n.ID
	return n
}

// add makes b enqueue tasks.
func (r *rig) add(tasks ...store.NewTask) {
	r.Helper()
	_, err := r.b.Enqueue(r.ctx(), tasks)
	r.must("enqueue", err)
}

// claim makes a claim everything.
func (r *rig) claim() {
	r.Helper()
	tasks, err := r.a.Claim(r.ctx(), store.ClaimRequest{Worker: r.worker, Queues: []string{"q"}, Limit: 100,
		Token: store.NewToken()})
	r.must("claim", err)
	for _, t := range tasks {
		r.held[t.Kind] = t
	}
}

// outcome ends a task that a holds.
func (r *rig) outcome(name string, state store.State) store.Outcome {
	t := r.held[name]
	return store.Outcome{Task: &t, State: state, Attempt: t.Attempt, Note: &store.Note{Output: []byte(`"a"`)}}
}

func keyed(k string, c store.OnConflict) func(n *store.NewTask) {
	return func(n *store.NewTask) { n.Key, n.OnConflict = k, c }
}

func needs(ids ...store.ID) func(n *store.NewTask) {
	return func(n *store.NewTask) {
		for _, id := range ids {
			n.Needs = append(n.Needs, store.Need{Task: id})
		}
	}
}

func inTurns(n *store.NewTask) { n.Turn = true }

// get makes b read a task. It returns nil if there is none.
func (r *rig) get(id store.ID) *store.Task {
	r.Helper()
	tasks, err := r.b.List(r.ctx(), store.Filter{IDs: []store.ID{id}, Detail: true})
	r.must("list", err)
	if len(tasks) == 0 {
		return nil
	}
	return &tasks[0]
}

// fault is how the n-th request of a verb fails.
type fault struct {
	name  string
	spoil cbfake.Spoil
	dead  bool // nothing from the process arrives after it
}

var faults = []fault{{"dies before", cbfake.LoseRequest, true}, {"loses the answer", cbfake.LoseAnswer, false}}

// likeThem are faults that add little. They run only if TUSK_TEST_LONG is set: dying after a request is the same as
// dying before the next one, except for what others do in between.
var likeThem = []fault{{"dies after", cbfake.LoseAnswer, true}, {"loses the request", cbfake.LoseRequest, false}}

// spoil runs a verb on a, makes its n-th request fail, and returns whether there was one.
func (r *rig) spoil(n int64, f fault, verb func(ctx context.Context) error) (met bool, err error) {
	ctx, die := context.WithCancel(r.ctx())
	defer die()
	var count atomic.Int64
	r.f.Set(cbfake.Faults{Request: func(memd.CmdCode, string) cbfake.Spoil {
		switch at := count.Add(1); {
		case at == n:
			if f.dead {
				die()
			}
			return f.spoil
		case at > n && f.dead:
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	err = verb(ctx)
	if f.dead && count.Load() >= n {
		r.f.ForgetLocks() // instead of waiting until they expire
		r.a.Close()
		r.f.HangUp() // requests on their way must not arrive
	}
	r.f.Set(cbfake.Faults{})
	return count.Load() >= n, err
}

// drain makes b do everything that is left: it sweeps, does the chores, and runs tasks until none is unfinished. It
// fails if a task waits forever.
func (r *rig) drain() {
	r.Helper()
	ctx := r.ctx()
	leaving := store.Beat{Worker: store.Worker{ID: r.worker}} // a's worker has died
	if _, err := r.b.Extend(ctx, leaving); !errors.Is(err, store.ErrWorkerDead) {
		r.must("extend", err)
	}
	me := storetest.NewID()
	r.beat(r.b, me, time.Hour)
	var left []store.Task
	for round := 0; round < 12; round++ {
		time.Sleep(r.b.patience + time.Millisecond)
		_, err := r.b.sweep(ctx, 0)
		r.must("sweep", err)
		_, err = r.b.Admit(ctx, r.term, 100)
		r.must("admit", err)
		dead, err := r.b.Rescue(ctx, r.term, 100)
		r.must("rescue", err)
		for i := range dead {
			r.end(&dead[i], store.Available)
		}
		r.grantAll()
		claimed := map[store.ID]bool{}
		tasks, err := r.b.Claim(ctx, store.ClaimRequest{Worker: me, Queues: []string{"q", "q2"}, Limit: 100,
			Token: store.NewToken()})
		r.must("claim", err)
		for i := range tasks {
			if claimed[tasks[i].ID] {
				r.Fatalf("%s is leased twice", tasks[i].Kind)
			}
			claimed[tasks[i].ID] = true
		}
		r.oneOfAKey()
		for i := range tasks {
			r.end(&tasks[i], store.Completed)
			r.ran[tasks[i].ID]++
			r.order = append(r.order, tasks[i].ID)
		}
		left, err = r.b.List(ctx, store.Filter{States: []store.State{store.Scheduled, store.Pending, store.Available,
			store.Running, store.Retryable}})
		r.must("list", err)
		if len(left) == 0 && len(tasks)+len(dead) == 0 {
			r.settled()
			return
		}
	}
	for _, t := range left {
		r.Errorf("%s is left %v", t.Kind, t.State)
	}
	r.FailNow()
}

func (r *rig) end(t *store.Task, state store.State) {
	r.Helper()
	lost, err := r.b.Finish(r.ctx(), []store.Outcome{{Task: t, State: state, Attempt: t.Attempt}})
	r.must("finish", err)
	if len(lost) > 0 {
		r.Fatalf("the outcome of %s is refused", t.Kind)
	}
}

func (r *rig) grantAll() {
	r.Helper()
	turns, err := r.b.Turns(r.ctx(), r.term, 10, 10)
	r.must("turns", err)
	for _, t := range turns {
		if t.Held > 0 { // one at a time
			continue
		}
		_, err := r.b.Grant(r.ctx(), r.term, t.Waiting[:min(1, len(t.Waiting))])
		r.must("grant", err)
	}
}

// oneOfAKey fails if two tasks of a key are running or could run.
func (r *rig) oneOfAKey() {
	r.Helper()
	tasks, err := r.b.List(r.ctx(), store.Filter{States: []store.State{store.Scheduled, store.Available, store.Running,
		store.Retryable}})
	r.must("list", err)
	of := map[string]string{}
	for _, t := range tasks {
		at := t.Queue + "|" + t.Key
		if other, known := of[at]; t.Key != "" && known {
			r.Fatalf("the key %s is held by %s and %s", t.Key, other, t.Kind)
		}
		of[at] = t.Kind
	}
}

// settled fails if any work is left over, or if a task has two accepted completions.
func (r *rig) settled() {
	r.Helper()
	for statement, c := range map[string]string{queryTodo: inTask, queryTodoKeys: inKey, queryTodoMeta: inMeta} {
		far := r.b.now(r.ctx()) + time.Hour.Microseconds()
		ids, err := query[string](r.ctx(), r.b, statement, args{"before": far, "n": 10})
		r.must("query", err)
		for _, id := range ids {
			d, _ := r.b.read(r.ctx(), ref{c, id})
			r.Errorf("%s of %s is left with something to do: %+v", id, c, d)
		}
	}
	all, err := r.b.List(r.ctx(), store.Filter{Limit: 1000, Detail: true})
	r.must("list", err)
	keys := map[string]store.NewTask{}
	for _, t := range all {
		done := 0
		for _, a := range t.Detail.Attempts {
			if a.Outcome == store.Completed {
				done++
			}
		}
		if done > 1 || r.ran[t.ID] > 1 {
			r.Errorf("%s has %d accepted completions", t.Kind, max(done, r.ran[t.ID]))
		}
		for _, n := range t.Detail.Needs {
			if n.State == store.Completed && t.State == store.Completed {
				at := slices.Index(r.order, n.Task)
				if own := slices.Index(r.order, t.ID); own >= 0 && at > own {
					r.Errorf("%s ran before what it needs", t.Kind)
				}
			}
		}
		if t.Key != "" {
			keys[t.Queue+"|"+t.Key] = store.NewTask{ID: storetest.NewID(), Kind: "probe", Queue: t.Queue, Key: t.Key,
				Args: []byte("1")}
		}
	}
	for _, probe := range keys {
		did, err := r.b.Enqueue(r.ctx(), []store.NewTask{probe})
		r.must("enqueue", err)
		if did[0].Result != store.Added {
			r.Errorf("the key %s is not free: %v", probe.Key, did[0].Result)
		}
	}
	if r.Failed() {
		r.FailNow()
	}
}
