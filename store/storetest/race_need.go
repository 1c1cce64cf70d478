package storetest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ending is a way in which a needed task may end.
type ending struct {
	name  string
	state store.State // in which the task ends; 0 if it is deleted
	begin func(t *T, worker store.ID) store.ID
	end   func(t *T, s store.Store, worker, id store.ID)
}

func claimedBefore(t *T, worker store.ID) store.ID {
	t.addOne()
	return t.takeOne(worker).ID
}

func (t *T) finishAs(s store.Store, worker, id store.ID, state store.State) {
	list, err := s.List(t.ctx(), store.Filter{IDs: []store.ID{id}})
	if err != nil || len(list) != 1 {
		t.Errorf("list: %d, %v", len(list), err)
		return
	}
	if lost, err := finish(t.ctx(), s, []store.Outcome{to(state, &list[0])}); err != nil || len(lost) > 0 {
		t.Errorf("finish: lost %d, %v", len(lost), err)
	}
}

func (t *T) editAs(s store.Store, id store.ID, op store.Op) {
	edited, err := s.Edit(t.ctx(), store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: op}})
	if err != nil || edited[0].Result != store.Changed {
		t.Errorf("%v: %+v, %v", op, edited, err)
	}
}

var endings = []ending{
	{"completed", store.Completed, claimedBefore, func(t *T, s store.Store, w, id store.ID) {
		t.finishAs(s, w, id, store.Completed)
	}},
	{"discarded", store.Discarded, claimedBefore, func(t *T, s store.Store, w, id store.ID) {
		t.finishAs(s, w, id, store.Discarded)
	}},
	{"cancelled in the lane", store.Cancelled, func(t *T, _ store.ID) store.ID { return t.addOne(queue("idle")) },
		func(t *T, s store.Store, _, id store.ID) { t.editAs(s, id, store.Cancel) }},
	{"cancelled before it was due", store.Cancelled, func(t *T, _ store.ID) store.ID { return t.addOne(delay(time.Hour)) },
		func(t *T, s store.Store, _, id store.ID) { t.editAs(s, id, store.Cancel) }},
	{"deleted", 0, func(t *T, _ store.ID) store.ID { return t.addOne(queue("idle")) },
		func(t *T, s store.Store, _, id store.ID) { t.editAs(s, id, store.Delete) }},
}

// outcomeOf returns the state of a task after a task that it needs has ended.
func outcomeOf(policy store.OnFailure, parent store.State) store.State {
	switch {
	case parent == store.Completed || policy == store.ContinueOnFailure:
		return store.Available
	case policy == store.CancelOnFailure || parent == 0: // nobody can retry what is deleted
		return store.Cancelled
	}
	return store.Pending
}

var needRaceClauses = []clause{
	{"race/a parent that ends while its children are enqueued is missed by none", func(t *T) {
		const rounds = 8
		worker := t.worker()
		a, b := t.another(), t.another()
		want := map[store.ID]store.State{}
		how := map[store.ID]string{}
		for range rounds {
			for _, e := range endings {
				parent := e.begin(t, worker)
				var early, late []store.NewTask
				for policy := store.CancelOnFailure; policy <= store.WaitOnFailure; policy++ {
					for _, batch := range []*[]store.NewTask{&early, &late} {
						n := newTask(needs(policy, parent), queue("children"))
						want[n.ID], how[n.ID] = outcomeOf(policy, e.state), e.name
						*batch = append(*batch, n)
					}
				}
				var all sync.WaitGroup
				all.Go(func() { e.end(t, t.Store, worker, parent) })
				for i, s := range []store.Store{a, b} {
					batch := [][]store.NewTask{early, late}[i]
					all.Go(func() {
						if _, err := s.Enqueue(t.ctx(), batch); err != nil {
							t.Errorf("enqueue: %v", err)
						}
					})
				}
				all.Wait()
			}
		}
		t.admit(1000)
		for id, state := range want {
			if got := t.get(id).State; got != state {
				t.Errorf("the parent was %s: the child is %v, want %v", how[id], got, state)
			}
		}
	}},
	{"race/no child is forgotten, and none runs too early", func(t *T) {
		g := &graph{T: t, needs: map[store.ID][]store.Need{}, ended: map[store.ID]store.State{}}
		var producers, others sync.WaitGroup
		for range 3 {
			s := t.another()
			producers.Go(func() { g.loop(func(r *rand.Rand) { g.enqueue(s, r) }) })
		}
		for range 3 {
			s, worker := t.another(), t.worker()
			others.Go(func() { g.loop(func(r *rand.Rand) { g.work(s, worker, r) }) })
		}
		term, s, editor := t.lead(), t.another(), t.another()
		others.Go(func() {
			g.loop(func(*rand.Rand) {
				time.Sleep(10 * time.Millisecond)
				if _, err := s.Admit(t.ctx(), term, 1000); err != nil {
					t.Errorf("admit: %v", err)
				}
			})
		})
		others.Go(func() { g.loop(func(r *rand.Rand) { g.cancel(editor, r) }) })
		time.Sleep(1500 * time.Millisecond)
		g.stop.Store(true)
		producers.Wait()
		others.Wait()
		g.drain()
	}},
}

// graph grows while it runs: several goroutines enqueue, end and cancel at once. At the end no task may be left that
// waits for an ended one.
type graph struct {
	*T
	stop  atomic.Bool
	mu    sync.Mutex
	ids   []store.ID
	needs map[store.ID][]store.Need
	ended map[store.ID]store.State
}

func (g *graph) loop(do func(r *rand.Rand)) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for !g.stop.Load() && !g.Failed() {
		do(r)
	}
}

// enqueue adds tasks that need some of the latest tasks.
func (g *graph) enqueue(s store.Store, r *rand.Rand) {
	tasks := make([]store.NewTask, 1+r.IntN(3))
	g.mu.Lock()
	for i := range tasks {
		tasks[i] = newTask()
		n := &tasks[i]
		for range r.IntN(3) {
			if known := len(g.ids); known > 0 {
				need := store.Need{Task: g.ids[known-1-r.IntN(min(known, 20))], OnFailure: store.OnFailure(r.IntN(2))}
				if !slices.ContainsFunc(n.Needs, func(other store.Need) bool { return other.Task == need.Task }) {
					n.Needs = append(n.Needs, need)
				}
			}
		}
		if i > 0 {
			n.Needs = append(n.Needs, store.Need{Task: tasks[i-1].ID, OnFailure: store.ContinueOnFailure})
		}
		g.needs[n.ID] = n.Needs
	}
	g.mu.Unlock()
	var err error
	if g.engine.Begin == nil || !g.engine.Shared || r.IntN(4) > 0 {
		_, err = s.Enqueue(g.ctx(), tasks)
	} else {
		err = g.inside(s, func(tx store.Tx) error {
			_, err := tx.Enqueue(g.ctx(), tasks)
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			return err
		})
	}
	if err != nil {
		g.Errorf("enqueue: %v", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range tasks {
		g.ids = append(g.ids, tasks[i].ID)
	}
	if len(g.ids) >= 2000 {
		g.stop.Store(true)
	}
}

// inside does something in a user's transaction. It retries if the database rolled the transaction back, as a user
// of such a database would.
func (g *graph) inside(s store.Store, do func(tx store.Tx) error) error {
	for {
		err := g.insideOnce(s, do)
		if err == nil || g.engine.TakenBack == nil || !g.engine.TakenBack(err) {
			return err
		}
	}
}

func (g *graph) insideOnce(s store.Store, do func(tx store.Tx) error) error {
	engine, _ := store.As[store.Transactor](s)
	raw, commit, rollback := g.engine.Begin(g.TB, s)
	tx, err := engine.Tx(raw)
	if err == nil {
		err = do(tx)
	}
	if err != nil {
		_ = rollback() // return the first error
		return err
	}
	return commit()
}

// work claims and ends tasks. Some fail, and some end inside a transaction.
func (g *graph) work(s store.Store, worker store.ID, r *rand.Rand) {
	tasks, err := s.Claim(g.ctx(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1 + r.IntN(10),
		Token: store.NewToken()})
	if err != nil {
		g.Errorf("claim: %v", err)
		return
	}
	if len(tasks) == 0 {
		time.Sleep(time.Millisecond)
		return
	}
	outcomes := g.judge(s, tasks, r)
	var lost []store.ID
	if g.engine.Begin == nil || !g.engine.Shared || r.IntN(4) > 0 {
		lost, err = finish(g.ctx(), s, outcomes)
	} else {
		err = g.inside(s, func(tx store.Tx) (err error) {
			lost, err = tx.Finish(g.ctx(), outcomes)
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			return err
		})
	}
	if err != nil || len(lost) > 0 {
		g.Errorf("finish: %d lost, %v", len(lost), err)
	}
}

// judge fails if a task runs although one of its needs is not met. It decides how the tasks end, and records that
// before the end is visible, because a child may start at once.
func (g *graph) judge(s store.Store, tasks []store.Task, r *rand.Rand) (outcomes []store.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range tasks {
		if g.ended[tasks[i].ID] != 0 {
			g.Errorf("task %v runs twice", tasks[i].ID)
		}
		for _, n := range g.needs[tasks[i].ID] {
			state := g.ended[n.Task]
			if state == 0 { // Admit has cancelled it
				if list, err := s.List(g.ctx(), store.Filter{IDs: []store.ID{n.Task}}); err == nil && len(list) == 1 &&
					list[0].State == store.Cancelled {
					state = store.Cancelled
				}
			}
			if state == 0 || state != store.Completed && n.OnFailure == store.CancelOnFailure {
				g.Errorf("task %v runs, and %v, which it needs, is %v", tasks[i].ID, n.Task, state)
			}
		}
	}
	for i := range tasks {
		o := to(store.Completed, &tasks[i])
		if r.IntN(20) == 0 {
			o = failed(&tasks[i], store.Discarded, "x")
		}
		g.ended[tasks[i].ID] = o.State
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// cancel cancels one of the latest tasks, whatever its state.
func (g *graph) cancel(s store.Store, r *rand.Rand) {
	time.Sleep(5 * time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock() // nobody may judge the tasks that it frees before this is recorded
	if len(g.ids) == 0 {
		return
	}
	id := g.ids[len(g.ids)-1-r.IntN(min(len(g.ids), 30))]
	edited, err := s.Edit(g.ctx(), store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: store.Cancel}})
	if errors.As(err, new(*store.HeldError)) {
		return // by transactions that run at the same time
	}
	if err != nil {
		g.Errorf("cancel: %v", err)
	} else if edited[0].Result == store.Changed {
		g.ended[id] = store.Cancelled
	}
}

// drain works until nothing is left, and fails if a task never starts.
func (g *graph) drain() {
	r := rand.New(rand.NewPCG(1, 2))
	worker := g.worker()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !g.Failed(); {
		g.admit(1000)
		g.work(g.Store, worker, r)
		if len(g.counts()) == 0 {
			return
		}
	}
	g.Errorf("not drained: %v", g.counts())
}
