package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// history checks what many processes see of one database: that each committed
// task is finished exactly once, and that no task is lent twice at a time.
type history struct {
	t    *testing.T
	s    *postgres.Store
	pool *pgxpool.Pool
	term int64

	breath sync.RWMutex // held for reading while a transaction of a producer is open
	stop   atomic.Bool
	claims atomic.Int64
	again  atomic.Int64
	rescue atomic.Int64
	inTx   atomic.Int64
	edits  atomic.Int64

	mu        sync.Mutex
	committed map[store.ID]bool
	never     map[store.ID]bool // rolled back
	lent      map[store.ID]store.Token
	ended     map[store.ID]int
	asked     map[store.ID]bool // to stop: where it was to go on, it was cancelled instead
}

var historyQueues = []string{"a", "b", "c"}

func TestNothingIsLostAndNothingRunsTwiceWhateverCommitsWhen(t *testing.T) {
	server, err := pgtest.Start("max_prepared_transactions=20")
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(server.Stop)
	length := 15 * time.Second
	if d, err := time.ParseDuration(os.Getenv("TUSK_TEST_HISTORY")); err == nil {
		length = d
	}
	s, pool := open(t, server.Database(t, "pool_max_conns=40"), true)
	h := &history{
		t: t, s: s, pool: pool, committed: map[store.ID]bool{}, never: map[store.ID]bool{},
		lent: map[store.ID]store.Token{}, ended: map[store.ID]int{}, asked: map[store.ID]bool{},
	}
	h.run(length)
}

func (h *history) run(length time.Duration) {
	l, err := h.s.Lead(context.Background(), store.Candidate{ID: newID(), TTL: 24 * time.Hour})
	if err != nil {
		h.t.Fatal(err)
	}
	h.term = l.Term
	var producers, others sync.WaitGroup
	for range 8 {
		producers.Go(func() {
			h.loop(func(ctx context.Context, r *rand.Rand) error {
				h.breath.RLock()
				defer h.breath.RUnlock()
				return h.produce(ctx, r)
			})
		})
	}
	for range 5 {
		others.Go(h.work)
	}
	others.Go(func() { h.loop(h.keep) })
	others.Go(func() { h.loop(h.cancel) })
	others.Go(func() { h.loop(h.turn) })
	time.Sleep(length)
	h.stop.Store(true)
	producers.Wait()
	others.Wait()
	h.drain()
	h.check()
}

func (h *history) loop(do func(ctx context.Context, r *rand.Rand) error) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for !h.stop.Load() && !h.t.Failed() {
		if err := do(context.Background(), r); err != nil {
			h.t.Error(err)
		}
	}
}

// produce enqueues in a transaction that commits at once, late, in two phases,
// in parts, or not at all.
func (h *history) produce(ctx context.Context, r *rand.Rand) error {
	if r.IntN(3) == 0 {
		tasks := h.some(r)
		_, err := h.s.Enqueue(ctx, tasks)
		h.keepCommitted(tasks, err == nil)
		return err
	}
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	var stay []store.NewTask
	for range 1 + r.IntN(3) {
		kept, err := h.part(ctx, tx, r)
		if err != nil {
			return err
		}
		stay = append(stay, kept...)
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		}
	}
	switch r.IntN(6) {
	case 0:
		h.keepCommitted(stay, false)
		return tx.Rollback(ctx)
	case 1:
		return h.twoPhases(ctx, tx, r, stay)
	}
	err = tx.Commit(ctx)
	h.keepCommitted(stay, err == nil)
	return err
}

// part enqueues under a savepoint, which may be rolled back.
func (h *history) part(ctx context.Context, tx pgx.Tx, r *rand.Rand) (kept []store.NewTask, err error) {
	sub, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	u, err := h.s.Tx(sub)
	if err != nil {
		return nil, err
	}
	tasks := h.some(r)
	if _, err := u.Enqueue(ctx, tasks); err != nil {
		return nil, err
	}
	if r.IntN(4) == 0 {
		h.keepCommitted(tasks, false)
		return nil, sub.Rollback(ctx)
	}
	return tasks, sub.Commit(ctx)
}

func (h *history) twoPhases(ctx context.Context, tx pgx.Tx, r *rand.Rand, stay []store.NewTask) error {
	name := newID().String()
	if _, err := tx.Exec(ctx, "prepare transaction '"+name+"'"); err != nil {
		return err
	}
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	commit := r.IntN(4) > 0
	end := "rollback prepared '"
	if commit {
		end = "commit prepared '"
	}
	_, err := h.pool.Exec(ctx, end+name+"'")
	h.keepCommitted(stay, err == nil && commit)
	return err
}

func (h *history) some(r *rand.Rand) []store.NewTask {
	n := 1 + r.IntN(20)
	if r.IntN(10) == 0 {
		n = 200
	}
	tasks := newTasks(n, historyQueues[r.IntN(2)]) // the last queue stays idle but for edits
	for i := range tasks {
		tasks[i].Priority = int16(r.IntN(2))
	}
	return tasks
}

func (h *history) keepCommitted(tasks []store.NewTask, yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range tasks {
		if yes {
			h.committed[tasks[i].ID] = true
		} else {
			h.never[tasks[i].ID] = true
		}
	}
}

// work is a worker's life; at its end it dies with what it holds, and another
// one follows.
func (h *history) work() {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	ctx := context.Background()
	for !h.stop.Load() && !h.t.Failed() {
		id := newID()
		if _, err := h.s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}, TTL: 2 * time.Second}); err != nil {
			h.t.Error(err)
			return
		}
		for range 100 {
			err := h.attempt(ctx, r, id)
			if errors.Is(err, store.ErrWorkerDead) {
				break
			}
			if err != nil {
				h.t.Error(err)
				return
			}
			if _, err := h.s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}, TTL: 2 * time.Second}); errors.Is(err, store.ErrWorkerDead) {
				break
			}
		}
	}
}

// attempt claims and finishes, whole or in parts, in any order; some answers
// get lost and some tasks stay behind.
func (h *history) attempt(ctx context.Context, r *rand.Rand, worker store.ID) error {
	queues := []string{"a", "b", "c"}
	r.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	c := store.ClaimRequest{Worker: worker, Queues: queues, Limit: 1 + r.IntN(60), Token: store.NewToken()}
	tasks, err := h.s.Claim(ctx, c)
	if err == nil && r.IntN(5) == 0 { // the answer was lost
		h.again.Add(1)
		c.Again = true
		before := len(tasks)
		if tasks, err = h.s.Claim(ctx, c); before > len(tasks) && err == nil {
			h.t.Errorf("a claim returned %d tasks, its repetition %d", before, len(tasks))
		}
	}
	if err != nil {
		return err
	}
	h.claims.Add(int64(len(tasks)))
	h.lend(tasks)
	r.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	for len(tasks) > 0 {
		n := 1 + r.IntN(len(tasks))
		if r.IntN(20) == 0 {
			return nil // these are never finished by this worker
		}
		if err := h.end(ctx, r, tasks[:n]); err != nil {
			return err
		}
		tasks = tasks[n:]
	}
	return nil
}

func (h *history) lend(tasks []store.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range tasks {
		id := tasks[i].ID
		switch {
		case h.never[id]:
			h.t.Errorf("task %v was claimed and had never been committed", id)
		case h.ended[id] > 0:
			h.t.Errorf("task %v was claimed after its end", id)
		case !h.lent[id].IsZero():
			h.t.Errorf("task %v is lent twice at a time", id)
		}
		h.lent[id] = tasks[i].Lease
	}
}

// end finishes attempts, in the worker's own transaction or in a user's.
func (h *history) end(ctx context.Context, r *rand.Rand, tasks []store.Task) error {
	back := r.IntN(6) == 0
	outcomes := completed(tasks)
	h.mu.Lock()
	for i := range outcomes {
		if back {
			outcomes[i].State = store.Available
			outcomes[i].Attempt--
			if h.lent[tasks[i].ID] == tasks[i].Lease {
				delete(h.lent, tasks[i].ID)
			}
		}
	}
	h.mu.Unlock()
	if r.IntN(5) == 0 {
		return h.endInside(ctx, r, outcomes)
	}
	lost, err := h.s.Finish(ctx, outcomes)
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	h.accept(outcomes, lost)
	if r.IntN(4) == 0 { // the answer was lost
		lost, err := h.s.Finish(ctx, outcomes)
		if err == nil && len(lost) != len(outcomes) {
			h.t.Errorf("%d of %d finishes were accepted a second time", len(outcomes)-len(lost), len(outcomes))
		}
		return err
	}
	return nil
}

func (h *history) endInside(ctx context.Context, r *rand.Rand, outcomes []store.Outcome) error {
	h.inTx.Add(1)
	outcomes = outcomes[:min(len(outcomes), 5)]
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	u, err := h.s.Tx(tx)
	if err != nil {
		return err
	}
	lost, err := u.Finish(ctx, outcomes)
	if err != nil {
		return fmt.Errorf("finish inside: %w", err)
	}
	time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
	if r.IntN(3) == 0 {
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		lost, err := h.s.Finish(ctx, outcomes)
		if err == nil {
			h.accept(outcomes, lost)
		}
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	h.accept(outcomes, lost)
	return nil
}

func (h *history) accept(outcomes []store.Outcome, lost []store.ID) {
	gone := map[store.ID]bool{}
	for _, id := range lost {
		gone[id] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range outcomes {
		id := outcomes[i].Task.ID
		if gone[id] || !outcomes[i].State.Finished() {
			continue
		}
		h.ended[id]++
		delete(h.lent, id)
	}
}

// keep is the leader: it rescues, and hands back what the dead held.
func (h *history) keep(ctx context.Context, r *rand.Rand) error {
	if !h.stop.Load() {
		time.Sleep(200 * time.Millisecond)
	}
	if _, err := h.s.Admit(ctx, h.term, 1000); err != nil {
		return err
	}
	return h.handBack(ctx)
}

func (h *history) handBack(ctx context.Context) error {
	tasks, err := h.s.Rescue(ctx, h.term, 1000)
	if err != nil || len(tasks) == 0 {
		return err
	}
	h.rescue.Add(int64(len(tasks)))
	outcomes := completed(tasks)
	h.mu.Lock()
	for i := range outcomes {
		outcomes[i].State, outcomes[i].Attempt = store.Available, tasks[i].Attempt
		if h.lent[tasks[i].ID] == tasks[i].Lease {
			delete(h.lent, tasks[i].ID)
		}
	}
	h.mu.Unlock()
	_, err = h.s.Finish(ctx, outcomes)
	return ignoreHeld(err)
}

// ignoreHeld forgives what only says that an open transaction is about to
// finish a task.
func ignoreHeld(err error) error {
	if postgres.IsHeld(err) {
		return nil
	}
	return err
}

// cancel calls off, moves and reprioritizes tasks wherever they are.
func (h *history) cancel(ctx context.Context, r *rand.Rand) error {
	time.Sleep(2 * time.Millisecond)
	e := store.Edit{Change: store.Change{Op: store.Cancel}}
	h.mu.Lock()
	for id := range h.committed {
		if h.ended[id] == 0 {
			if e.IDs = append(e.IDs, id); len(e.IDs) == 3 {
				break
			}
		}
	}
	h.mu.Unlock()
	switch r.IntN(3) {
	case 0:
		e.Change = store.Change{Op: store.Move, Queue: historyQueues[r.IntN(3)]}
	case 1:
		e.Change = store.Change{Op: store.Reprioritize, Priority: int16(r.IntN(2))}
	}
	done, err := h.s.Edit(ctx, e)
	if err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range done {
		if d.Result == store.Missing {
			h.t.Errorf("task %v is nowhere", d.ID)
		}
		if d.Result == store.Requested {
			h.asked[d.ID] = true
		}
		if d.Result == store.Changed {
			h.edits.Add(1)
			if e.Change.Op == store.Cancel {
				h.ended[d.ID]++
			}
		}
	}
	return nil
}

// drain finishes all that is left.
func (h *history) drain() {
	ctx := context.Background()
	w := startWorker(h.t, h.s)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !h.t.Failed(); {
		tasks, err := h.s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: historyQueues, Limit: 1000, Token: store.NewToken()})
		if err != nil {
			h.t.Fatal(err)
		}
		h.lend(tasks)
		outcomes := completed(tasks)
		lost, err := h.s.Finish(ctx, outcomes)
		if err != nil {
			h.t.Fatal(err)
		}
		h.accept(outcomes, lost)
		if len(tasks) > 0 {
			continue
		}
		if err := h.keep(ctx, nil); err != nil {
			h.t.Fatal(err)
		}
		counts, err := h.s.Count(ctx)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(counts) == 0 {
			return
		}
	}
	counts, _ := h.s.Count(ctx)
	h.t.Errorf("not drained: %v", counts)
}

func (h *history) cancelled(id store.ID) bool {
	tasks, err := h.s.List(context.Background(), store.Filter{IDs: []store.ID{id}})
	return err == nil && len(tasks) == 1 && tasks[0].State == store.Cancelled
}

func (h *history) check() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var bad []store.ID
	for id := range h.committed {
		if n := h.ended[id]; n != 1 && !(n == 0 && h.asked[id] && h.cancelled(id)) {
			if bad = append(bad, id); len(bad) <= 10 {
				h.t.Errorf("task %v ended %d times", id, n)
			}
		}
	}
	for id, n := range h.ended {
		if !h.committed[id] {
			h.t.Errorf("task %v ended %d times and was never committed", id, n)
		}
	}
	if len(bad) > 0 {
		h.t.Errorf("%d tasks in all", len(bad))
		list, err := h.s.List(context.Background(), store.Filter{IDs: bad[:1], Detail: true})
		h.t.Logf("%+v %v", list, err)
	}
	made, gone := h.segments()
	h.t.Logf("%d tasks, %d never committed, %d claims, %d claimed again, %d rescued, %d transactions, %d edits, %d segments, %d of them gone",
		len(h.committed), len(h.never), h.claims.Load(), h.again.Load(), h.rescue.Load(), h.inTx.Load(), h.edits.Load(), made, gone)
}
