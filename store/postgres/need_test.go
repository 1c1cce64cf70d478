package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// child makes a task of a queue of its own that needs others.
func child(parents ...store.ID) store.NewTask {
	n := newTasks(1, "children")[0]
	for _, id := range parents {
		n.Needs = append(n.Needs, store.Need{Task: id})
	}
	return n
}

func stateOf(t testing.TB, s *postgres.Store, id store.ID) store.State {
	t.Helper()
	list, err := s.List(context.Background(), store.Filter{IDs: []store.ID{id}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0].State
}

// started enqueues tasks and claims them.
func started(t testing.TB, s *postgres.Store, worker store.ID, n int) []store.Task {
	t.Helper()
	if _, err := s.Enqueue(context.Background(), newTasks(n, "q")); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(context.Background(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: n, Token: store.NewToken()})
	if err != nil || len(tasks) != n {
		t.Fatal(len(tasks), err)
	}
	return tasks
}

func leader(t testing.TB, s *postgres.Store) (admit func()) {
	t.Helper()
	l, err := s.Lead(context.Background(), store.Candidate{ID: newID(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := s.Admit(context.Background(), l.Term, 1000); err != nil {
			t.Error(err)
		}
	}
}

func TestAParentThatEndsWhileItsChildIsEnqueuedIsNotMissed(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	admit := leader(t, s)
	var ids []store.ID
	for range 150 {
		parents := started(t, s, w, 2)
		inside, outside := child(parents[0].ID), child(parents[0].ID, parents[1].ID)
		ids = append(ids, inside.ID, outside.ID)
		var g sync.WaitGroup
		g.Go(func() {
			if lost, err := s.Finish(ctx, completed(parents[:1])); err != nil || len(lost) > 0 {
				t.Error(lost, err)
			}
		})
		g.Go(func() {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback(ctx)
			if lost, err := finishIn(ctx, s, tx, parents[1:]); err != nil || len(lost) > 0 {
				t.Error(lost, err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		})
		g.Go(func() {
			if _, err := s.Enqueue(ctx, []store.NewTask{outside}); err != nil {
				t.Error(err)
			}
		})
		g.Go(func() {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback(ctx)
			u, _ := s.Tx(tx)
			if _, err := u.Enqueue(ctx, []store.NewTask{inside}); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		})
		g.Wait()
		if t.Failed() {
			return
		}
	}
	admit()
	for _, id := range ids {
		if state := stateOf(t, s, id); state != store.Available {
			t.Fatalf("child is %v", state)
		}
	}
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 0 {
		t.Errorf("%d doubts are left", n)
	}
}

func finishIn(ctx context.Context, s *postgres.Store, tx any, tasks []store.Task) ([]store.ID, error) {
	u, err := s.Tx(tx)
	if err != nil {
		return nil, err
	}
	return u.Finish(ctx, completed(tasks))
}

func TestAnOpenTransactionTellsChildrenAtItsCommitAndHoldsNobodyUp(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	for _, commit := range []bool{true, false} {
		parents := started(t, s, w, 2)
		both := child(parents[0].ID, parents[1].ID)
		if _, err := s.Enqueue(ctx, []store.NewTask{both}); err != nil {
			t.Fatal(err)
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if lost, err := finishIn(ctx, s, tx, parents[:1]); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
		brief, cancel := context.WithTimeout(ctx, 20*time.Second)
		if lost, err := s.Finish(brief, completed(parents[1:])); err != nil || len(lost) > 0 {
			t.Fatal("a sibling waited for the open transaction:", lost, err)
		}
		cancel()
		if state := stateOf(t, s, both.ID); state != store.Pending {
			t.Fatal(state)
		}
		end, want := tx.Rollback, store.Pending
		if commit {
			end, want = tx.Commit, store.Available
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		if state := stateOf(t, s, both.ID); state != want {
			t.Fatalf("child is %v, want %v", state, want)
		}
	}
}

func TestADoubtLastsAsLongAsSomebodyMayBeEndingTheParent(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	admit := leader(t, s)
	parents := started(t, s, w, 1)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := finishIn(ctx, s, tx, parents); err != nil {
		t.Fatal(err)
	}
	late := child(parents[0].ID)
	if _, err := s.Enqueue(ctx, []store.NewTask{late}); err != nil {
		t.Fatal(err)
	}
	admit()
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 1 || stateOf(t, s, late.ID) != store.Pending {
		t.Fatalf("%d doubts", n)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	admit()
	if n := number(t, pool, "select count(*) from tusk.doubt"); n != 0 || stateOf(t, s, late.ID) != store.Available {
		t.Fatalf("%d doubts", n)
	}
}

func TestAdmitWaitsForNoTransactionThatHoldsAChild(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	admit := leader(t, s)
	parents := newTasks(2, "q")
	held, free := child(parents[0].ID), child(parents[0].ID)
	held.Key = "k"
	waits := child(parents[1].ID)
	if _, err := s.Enqueue(ctx, append(parents, held, free, waits)); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := s.Tx(tx)
	again := child()
	again.Key, again.OnConflict = "k", store.Replace
	if results, err := u.Enqueue(ctx, []store.NewTask{again}); err != nil || results[0].Result != store.Replaced {
		t.Fatal(results, err)
	}
	if _, err := tx.Exec(ctx, "select from tusk.waiting where id = $1 for update", [16]byte(waits.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{parents[0].ID}, Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, s)
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 1 {
		t.Fatal(len(claimed), err)
	}
	if lost, err := s.Finish(ctx, completed(claimed)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	admit()
	for id, want := range map[store.ID]store.State{held.ID: store.Pending, free.ID: store.Cancelled, waits.ID: store.Pending} {
		if state := stateOf(t, s, id); state != want {
			t.Errorf("%v is %v, want %v", id, state, want)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	admit()
	for id, want := range map[store.ID]store.State{held.ID: store.Cancelled, waits.ID: store.Available} {
		if state := stateOf(t, s, id); state != want {
			t.Errorf("%v is %v, want %v", id, state, want)
		}
	}
}

func TestOutcomesInsideATransactionBringTasks(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	tasks := started(t, s, w, 2)
	next, spawned := newTasks(1, "q")[0], newTasks(1, "q")[0]
	outcomes := completed(tasks)
	outcomes[0].Then = []store.NewTask{next}
	outcomes[1].State, outcomes[1].Then = store.Pending, []store.NewTask{spawned}
	outcomes[1].Needs = []store.Need{{Task: spawned.ID}}
	for _, commit := range []bool{false, true, false} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		u, _ := s.Tx(tx)
		if _, err := u.Finish(ctx, outcomes); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.List(ctx, store.Filter{})
	if err != nil || len(list) != 4 || stateOf(t, s, tasks[1].ID) != store.Pending {
		t.Fatalf("%d tasks, %v", len(list), err)
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 2 {
		t.Fatal(len(claimed), err)
	}
	if lost, err := s.Finish(ctx, completed(claimed)); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if state := stateOf(t, s, tasks[1].ID); state != store.Available {
		t.Fatal(state)
	}
}

// graph grows while it runs: everybody enqueues, ends and cancels at once, and at
// the end nothing may be left that waits for what has ended.
type graph struct {
	t     *testing.T
	s     *postgres.Store
	pool  *pgxpool.Pool
	admit func()
	stop  atomic.Bool
	mu    sync.Mutex
	ids   []store.ID
	needs map[store.ID][]store.Need
	ended map[store.ID]store.State
	runs  int
}

func TestNoChildIsForgottenAndNoneRunsTooEarly(t *testing.T) {
	s, pool := open(t, pgtest.DSN(t, "pool_max_conns=20"), true)
	g := &graph{t: t, s: s, pool: pool, admit: leader(t, s), needs: map[store.ID][]store.Need{}, ended: map[store.ID]store.State{}}
	var producers, others sync.WaitGroup
	for i := range 4 {
		producers.Go(func() { g.loop(func(r *rand.Rand) error { return g.enqueue(r, i%2 == 0) }) })
	}
	for range 4 {
		others.Go(g.work)
	}
	others.Go(func() { g.loop(func(*rand.Rand) error { time.Sleep(20 * time.Millisecond); g.admit(); return nil }) })
	others.Go(func() { g.loop(g.cancel) })
	time.Sleep(5 * time.Second)
	g.stop.Store(true)
	producers.Wait()
	others.Wait()
	g.drain()
}

func (g *graph) loop(do func(r *rand.Rand) error) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for !g.stop.Load() && !g.t.Failed() {
		if err := do(r); err != nil {
			g.t.Error(err)
		}
	}
}

// enqueue adds tasks that need some of the latest.
func (g *graph) enqueue(r *rand.Rand, inTx bool) error {
	ctx := context.Background()
	tasks := newTasks(1+r.IntN(3), "q")
	g.mu.Lock()
	for i := range tasks {
		for range r.IntN(3) {
			if n := len(g.ids); n > 0 {
				need := store.Need{Task: g.ids[n-1-r.IntN(min(n, 20))], OnFailure: store.OnFailure(r.IntN(2))}
				if !slices.ContainsFunc(tasks[i].Needs, func(n store.Need) bool { return n.Task == need.Task }) {
					tasks[i].Needs = append(tasks[i].Needs, need)
				}
			}
		}
		if i > 0 {
			tasks[i].Needs = append(tasks[i].Needs, store.Need{Task: tasks[i-1].ID, OnFailure: store.ContinueOnFailure})
		}
		g.needs[tasks[i].ID] = tasks[i].Needs
	}
	g.mu.Unlock()
	if !inTx {
		if _, err := g.s.Enqueue(ctx, tasks); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	} else {
		tx, err := g.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		u, _ := g.s.Tx(tx)
		if _, err := u.Enqueue(ctx, tasks); err != nil {
			return fmt.Errorf("enqueue inside: %w", err)
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		if err := tx.Commit(ctx); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range tasks {
		g.ids = append(g.ids, tasks[i].ID)
	}
	return nil
}

func (g *graph) work() {
	w := startWorker(g.t, g.s)
	g.loop(func(r *rand.Rand) error { return g.round(r, w, r.IntN(4) == 0) })
}

// round claims and ends tasks; some fail, some end inside a transaction.
func (g *graph) round(r *rand.Rand, worker store.ID, inTx bool) error {
	ctx := context.Background()
	tasks, err := g.s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1 + r.IntN(10), Token: store.NewToken()})
	if err != nil || len(tasks) == 0 {
		time.Sleep(time.Millisecond)
		return err
	}
	g.check(tasks)
	outcomes := completed(tasks)
	for i := range outcomes {
		if r.IntN(20) == 0 {
			outcomes[i].State, outcomes[i].Error, outcomes[i].Fingerprint = store.Discarded, "x", "x"
		}
	}
	g.mu.Lock() // before it is visible: a child may start at once
	for i := range outcomes {
		g.ended[tasks[i].ID] = outcomes[i].State
	}
	g.runs += len(tasks)
	g.mu.Unlock()
	var lost []store.ID
	if !inTx {
		lost, err = g.s.Finish(ctx, outcomes)
	} else {
		lost, err = g.finishInside(ctx, outcomes, time.Duration(r.IntN(20))*time.Millisecond)
	}
	if len(lost) > 0 {
		g.t.Errorf("%d lost", len(lost))
	}
	return err
}

func (g *graph) finishInside(ctx context.Context, outcomes []store.Outcome, wait time.Duration) ([]store.ID, error) {
	tx, err := g.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	u, _ := g.s.Tx(tx)
	lost, err := u.Finish(ctx, outcomes)
	if err != nil {
		return nil, fmt.Errorf("finish inside: %w", err)
	}
	time.Sleep(wait)
	return lost, tx.Commit(ctx)
}

// check fails when a task runs before something that it needs has ended well enough.
func (g *graph) check(tasks []store.Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range tasks {
		if g.ended[tasks[i].ID] != 0 {
			g.t.Errorf("task %v runs twice", tasks[i].ID)
		}
		for _, n := range g.needs[tasks[i].ID] {
			state := g.ended[n.Task]
			if state == 0 && stateOf(g.t, g.s, n.Task) == store.Cancelled {
				state = store.Cancelled // by Admit
			}
			if state == 0 || state != store.Completed && n.OnFailure == store.CancelOnFailure {
				g.t.Errorf("task %v runs, and %v, which it needs, is %v", tasks[i].ID, n.Task, state)
			}
		}
	}
}

// cancel calls off a task, whatever its state.
func (g *graph) cancel(r *rand.Rand) error {
	time.Sleep(5 * time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock() // nobody claims what it frees before that is known
	if len(g.ids) == 0 {
		return nil
	}
	id := g.ids[len(g.ids)-1-r.IntN(min(len(g.ids), 30))]
	done, err := g.s.Edit(context.Background(), store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: store.Cancel}})
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if done[0].Result == store.Changed {
		g.ended[id] = store.Cancelled
	}
	return nil
}

func (g *graph) drain() {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, 2))
	w := startWorker(g.t, g.s)
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && !g.t.Failed(); {
		g.admit()
		if err := g.round(r, w, false); err != nil {
			g.t.Fatal(err)
		}
		counts, err := g.s.Count(ctx)
		if err != nil {
			g.t.Fatal(err)
		}
		if len(counts) == 0 {
			for _, table := range []string{"open_need", "doubt"} {
				if n := number(g.t, g.pool, "select count(*) from tusk."+table); n != 0 {
					g.t.Errorf("%d rows are left in %s", n, table)
				}
			}
			g.t.Logf("%d tasks, %d ran", len(g.ids), g.runs)
			return
		}
	}
	counts, _ := g.s.Count(ctx)
	g.t.Errorf("not drained: %+v", counts)
}
