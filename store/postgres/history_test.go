package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// history checks what many processes see in one database: that each committed task is finished exactly once, and
// that no task is lent to two workers at a time.
type history struct {
	t    *testing.T
	s    *postgres.Store
	pool *pgxpool.Pool // of users, directly to the server
	term int64

	engine *pgxpool.Pool // the pool of s
	length time.Duration
	turns  int // segments of the log that turn makes

	stop   atomic.Bool
	inside atomic.Bool // users' transactions finish tasks, too
	claims atomic.Int64
	again  atomic.Int64
	swaps  atomic.Int64 // claims by exchange
	rescue atomic.Int64
	inTx   atomic.Int64
	edits  atomic.Int64

	mu        sync.Mutex
	committed map[store.ID]bool
	never     map[store.ID]bool // rolled back
	lent      map[store.ID]store.Token
	over      map[lending]bool // the leader has handed the task back
	ended     map[store.ID]int
	asked     map[store.ID]bool // tasks that were asked to stop; one that was to run again was cancelled instead
}

var historyQueues = []string{"a", "b", "c"}

func TestNothingIsLostAndNothingRunsTwiceWhateverCommitsWhen(t *testing.T) {
	newHistory(t, 15*time.Second, func(dsn string) string { return dsn })
}

// The whole engine works through a pooler in transaction mode, including migration and maintenance. No client may
// find a setting or a lock of another.
func TestNothingIsLostAndNothingRunsTwiceBehindAPooler(t *testing.T) {
	const connections = 8
	var through string
	h := newHistory(t, 5*time.Second, func(dsn string) string {
		through = bouncerOf(t, dsn, connections)
		return through
	})
	h.checkPooler(through, connections)
}

// newHistory runs a history on a server of its own, which the engine reaches by another DSN.
func newHistory(t *testing.T, length time.Duration, through func(dsn string) string) *history {
	server, err := pgtest.Start("max_prepared_transactions=20")
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(server.Stop)
	if d, err := time.ParseDuration(os.Getenv("TUSK_TEST_HISTORY")); err == nil {
		length = d
	}
	dsn := server.Database(t, "pool_max_conns=40")
	s, engine := open(t, through(dsn), true)
	_, pool := open(t, dsn, false)
	h := &history{
		t: t, s: s, pool: pool, engine: engine, length: length, committed: map[store.ID]bool{}, never: map[store.ID]bool{},
		lent: map[store.ID]store.Token{}, over: map[lending]bool{}, ended: map[store.ID]int{}, asked: map[store.ID]bool{},
	}
	s.PackAll()
	tasks := slices.Concat(newPacks(50, "a"), newPacks(50, "a"), newPacks(50, "b"), newPacks(50, "b"))
	for i := range tasks { // in all lanes
		tasks[i].Priority = int16(i / 50 % 2)
	}
	_, err = s.Enqueue(context.Background(), tasks)
	h.keepCommitted(tasks, err == nil)
	shrink(t, pool) // the segments of these tasks end here
	h.run(length)
	return h
}

func (h *history) run(length time.Duration) {
	l, err := h.s.Lead(context.Background(), store.Candidate{ID: newID(), TTL: 24 * time.Hour})
	if err != nil {
		h.t.Fatal(err)
	}
	h.term = l.Term
	var producers, others sync.WaitGroup
	for range 8 {
		producers.Go(func() { h.loop(h.produce) })
	}
	for range 5 {
		others.Go(h.work)
	}
	others.Go(func() { h.loop(h.keep) })
	others.Go(func() { h.loop(h.cancel) })
	others.Go(func() { h.loop(h.turn) })
	if h.length >= 10*time.Second {
		others.Go(func() {
			if err := bounded(func(ctx context.Context) error { return h.large(ctx, 25000) }); err != nil {
				h.t.Error(err)
			}
		})
	}
	time.Sleep(length / 3)
	h.inside.Store(true)
	time.Sleep(length - length/3)
	for end := time.Now().Add(min(time.Minute, 4*length)); time.Now().Before(end) &&
		!h.t.Failed(); time.Sleep(100 * time.Millisecond) {
		if _, gone := h.segments(); gone > 0 {
			break
		}
	}
	h.stop.Store(true)
	producers.Wait()
	others.Wait()
	h.drain()
	h.check()
}

// historyCall limits the time of each step, so that one that hangs fails by its name.
const historyCall = 2 * time.Minute

func (h *history) loop(do func(ctx context.Context, r *rand.Rand) error) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for !h.stop.Load() && !h.t.Failed() {
		if err := bounded(func(ctx context.Context) error { return do(ctx, r) }); err != nil {
			h.t.Error(err)
		}
	}
}

func bounded(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), historyCall)
	defer cancel()
	return do(ctx)
}

// keep is the leader: it rescues tasks, and gives back what dead workers held.
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
		h.over[lending{tasks[i].ID, tasks[i].Lease}] = true
		if h.lent[tasks[i].ID] == tasks[i].Lease {
			delete(h.lent, tasks[i].ID)
		}
	}
	h.mu.Unlock()
	_, err = h.s.Finish(ctx, outcomes)
	return ignoreHeld(err)
}

// ignoreHeld ignores an error that only says that an open transaction is about to finish a task.
func ignoreHeld(err error) error {
	if errors.As(err, new(*store.HeldError)) {
		return nil
	}
	return err
}

// cancel cancels, moves and reprioritizes tasks wherever they are.
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
	if held := (*store.HeldError)(nil); err != nil && !errors.As(err, &held) {
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

// drain finishes all tasks that are left.
func (h *history) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), historyCall)
	defer cancel()
	w := startWorker(h.t, h.s)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !h.t.Failed(); {
		tasks, err := h.s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: historyQueues, Limit: 1000,
			Token: store.NewToken()})
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
	if twice, err := h.s.CompletedTwice(context.Background()); err != nil || twice > 0 {
		h.t.Errorf("%d tasks are completed more than once, %v", twice, err)
	}
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
	const twice = `select count(*) from (
		select i.id from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i
		group by 1 having count(*) > 1) x`
	if n := number(h.t, h.pool, twice); n > 0 {
		h.t.Errorf("%d tasks are recorded as ended twice", n)
	}
	if n, rows := number(h.t, h.pool, packs),
		number(h.t, h.pool, "select count(*) from tusk.log where packed is null and n & 255 <> 0"); n == 0 || rows == 0 {
		h.t.Errorf("%d packs, and %d tasks that were in one", n, rows)
	}
	made, gone := h.segments()
	if gone == 0 && h.length >= 10*time.Second {
		h.t.Errorf("no segment of %d was dropped", made)
	}
	h.t.Logf(
		"%d tasks, %d never committed, %d claims, %d of them by exchange, %d claimed again, %d rescued, %d transactions, "+
			"%d edits, %d segments, %d of them gone", len(h.committed), len(h.never), h.claims.Load(), h.swaps.Load(),
		h.again.Load(), h.rescue.Load(), h.inTx.Load(), h.edits.Load(), made, gone)
}
