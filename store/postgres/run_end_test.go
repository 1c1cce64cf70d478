package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Parts of several leases, of packs and of single tasks, are finished at once, with failures among them. Single
// tasks are deleted from what was completed, and the rest is pruned in parts. After each step, every task is in the
// right state and has the right end.
func TestRunsKeepEachTasksOwnEnd(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, pool := fresh(t)
	s.PackAll()
	h := &ends{T: t, s: s, pool: pool, worker: startWorker(t, s), r: rand.New(rand.NewPCG(seed, 1)),
		want: map[store.ID]end{}}
	for range 14 {
		for range 1 + h.r.IntN(3) {
			h.enqueue()
		}
		if h.r.IntN(3) == 0 {
			h.delete(store.Available, 1)
		}
		for range 1 + h.r.IntN(3) {
			h.claim()
		}
		h.finish()
		h.delete(store.Completed, 5)
		h.check()
	}
	if n := number(t, pool, "select count(*) from tusk.outcome where counts is not null"); n == 0 {
		t.Error("no runs")
	}
	h.prune()
	if n := number(t, pool, "select count(*) from tusk.outcome"); n != 0 {
		t.Error(n, "outcomes are left")
	}
}

// ends is a made-up history, and what should have become of each task.
type ends struct {
	*testing.T
	s       *postgres.Store
	pool    *pgxpool.Pool
	worker  store.ID
	r       *rand.Rand
	all     []store.ID
	want    map[store.ID]end
	open    []store.Task
	flushes int
}

type end struct {
	state store.State
	ago   time.Duration
	flush int
}

func (h *ends) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// enqueue stores packs, some of which reach the end of a block of ids.
func (h *ends) enqueue() {
	n := 1 + h.r.IntN(300)
	tasks := newPacks(n, fmt.Sprint("q", h.r.IntN(2)))
	if n <= 256 && h.r.IntN(2) == 0 {
		for i := range tasks {
			tasks[i].ID[15] = byte(256 - n + i)
		}
	}
	if h.r.IntN(4) == 0 {
		for i := range tasks {
			tasks[i].Kind = fmt.Sprint("k", i/37%3)
		}
	}
	_, err := h.s.Enqueue(h.Context(), tasks)
	h.must(err)
	for i := range tasks {
		h.all = append(h.all, tasks[i].ID)
		h.want[tasks[i].ID] = end{state: store.Available}
	}
}

func (h *ends) claim() {
	got, err := h.s.Claim(h.Context(), store.ClaimRequest{Worker: h.worker, Token: store.NewToken(),
		Queues: []string{"q0", "q1"}, Limit: 1 + h.r.IntN(260)})
	h.must(err)
	for _, task := range got {
		if e := h.want[task.ID]; e.state != store.Available {
			h.Fatalf("claimed %v, which is %v", task.ID, e.state)
		}
		h.want[task.ID] = end{state: store.Running}
	}
	h.open = append(h.open, got...)
	_, err = h.pool.Exec(h.Context(),
		"update tusk.lease set claimed_at = claimed_at - interval '1 hour' where claimed_at > now() - interval '30 minutes'")
	h.must(err)
}

// finish ends some attempts of each lease, in random order, and tries to do so again.
func (h *ends) finish() {
	h.flushes++
	share, failing := h.r.IntN(5), h.r.IntN(2) == 0
	var outcomes []store.Outcome
	var rest []store.Task
	for _, task := range h.open {
		if share > 0 && h.r.IntN(60) < 30-share*7 || share == 1 && task.ID[15] < 100 {
			rest = append(rest, task)
			continue
		}
		if h.r.IntN(200) == 0 {
			task.Piece = 0
		}
		o := store.Outcome{Task: &task, State: store.Completed, Attempt: task.Attempt,
			Ago: time.Duration(h.r.IntN(100000)) * time.Millisecond}
		if failing && h.r.IntN(10) == 0 {
			o.State, o.Error, o.Fingerprint = store.Discarded, "no", "f"
		}
		outcomes = append(outcomes, o)
		h.want[task.ID] = end{o.State, o.Ago, h.flushes}
	}
	h.open = rest
	h.r.Shuffle(len(outcomes), func(i, j int) { outcomes[i], outcomes[j] = outcomes[j], outcomes[i] })
	for _, lost := range []int{0, len(outcomes)} {
		if ids, err := h.s.Finish(h.Context(), outcomes); err != nil || len(ids) != lost {
			h.Fatalf("lost %d of %d, %v; want %d", len(ids), len(outcomes), err, lost)
		}
	}
}

// delete deletes some tasks of a state.
func (h *ends) delete(state store.State, most int) {
	for id, e := range h.want { // in random order
		if most == 0 {
			return
		}
		if e.state == state {
			_, err := h.s.Edit(h.Context(), store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: store.Delete}})
			h.must(err)
			delete(h.want, id)
			most--
		}
	}
}

// prune deletes completed tasks in parts. Any transaction that is open on the server, such as one of autovacuum,
// may delay it.
func (h *ends) prune() {
	term := lead(h.T, h.s)
	for tries := 0; h.completed() && tries < 1000; tries++ {
		n, err := h.s.Prune(h.Context(), term, store.Retention{Completed: time.Microsecond}, 333)
		h.must(err)
		if n == 0 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		gone := 0
		for i, state := range states(h.T, h.s, h.all) {
			if e, known := h.want[h.all[i]]; known && state == 0 && e.state == store.Completed {
				gone++
				delete(h.want, h.all[i])
			}
		}
		if gone != n || n > 333 {
			h.Fatalf("%d are gone, and %d were pruned", gone, n)
		}
		h.check()
	}
	if h.completed() {
		h.Fatal("not all that was completed was pruned")
	}
}

// completed reports whether a completed task is left.
func (h *ends) completed() bool {
	for _, e := range h.want {
		if e.state == store.Completed {
			return true
		}
	}
	return false
}

// check compares all tasks with what they should be. Tasks of one flush ended at the given times before the same
// instant.
func (h *ends) check() {
	h.Helper()
	at, found := map[int]time.Time{}, 0
	for i := 0; i < len(h.all); i += store.MaxPage {
		list, err := h.s.List(h.Context(), store.Filter{IDs: h.all[i:min(i+store.MaxPage, len(h.all))], Limit: store.MaxPage})
		h.must(err)
		found += len(list)
		for _, task := range list {
			e := h.want[task.ID]
			if e.state != task.State {
				h.Fatalf("%v is %v, want %v", task.ID, task.State, e.state)
			}
			if e.flush == 0 {
				continue
			}
			flushed := task.FinishedAt.Add(e.ago)
			if _, known := at[e.flush]; !known {
				at[e.flush] = flushed
			}
			if off := flushed.Sub(at[e.flush]).Abs(); off > 2*time.Millisecond {
				h.Fatalf("%v ended %v off", task.ID, off)
			}
		}
	}
	if found != len(h.want) {
		h.Fatalf("%d tasks, want %d", found, len(h.want))
	}
}
