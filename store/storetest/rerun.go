package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Reruns tests keys that are enqueued with Rerun in generated interleavings with claims, ends of every sort,
// cancels, deaths of workers and rescues. It checks that newer source times win, and stale ones change nothing.
// However many updates arrive while a task runs, exactly one more run follows, with the newest args. That run is
// never lost, however the running attempt ends.
//
// It generates n interleavings, or TUSK_TEST_RERUNS of them. TUSK_TEST_SEED selects others.
func Reruns(t *testing.T, e Engine, n int) {
	if text := os.Getenv("TUSK_TEST_RERUNS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TUSK_TEST_RERUNS: %v", err)
		}
	}
	seed, _ := strconv.ParseUint(os.Getenv("TUSK_TEST_SEED"), 10, 64)
	const together, perStore = 1000, 20_000
	var s store.Store
	var leader store.ID
	for from := 0; from < n && !t.Failed(); from += together {
		if from%perStore == 0 {
			s, leader = e.New(t)(), NewID()
		}
		r := &reruns{t: t, s: s, rand: rand.New(rand.NewPCG(seed, uint64(from))), seed: fmt.Sprint(seed, " from ", from),
			queue: fmt.Sprint("q", from), worker: NewID()}
		r.lead(leader)
		for range min(together, n-from) {
			r.keys = append(r.keys, &rerun{name: fmt.Sprint("k", len(r.keys))})
		}
		r.play()
	}
}

// rerun is the expected state of a key.
type rerun struct {
	name     string
	newest   int64 // newest source time; 0 if none yet
	waiting  int64 // source time of the task that waits to run; 0 if none does
	running  int64 // source time of the running task
	awaiting int64 // source time of the task that runs after it
	begun    int64 // source time of the latest run
	stop     bool  // the running task was asked to stop
	task     *store.Task
}

type reruns struct {
	t      *testing.T
	s      store.Store
	rand   *rand.Rand
	seed   string
	queue  string
	worker store.ID
	term   int64
	keys   []*rerun
}

// play plays a dozen rounds and then runs every task that waits.
func (r *reruns) play() {
	r.t.Helper()
	r.beat(time.Hour)
	for round := range 12 {
		r.enqueue(0.7)
		r.claim(r.rand.IntN(len(r.keys)) + 1)
		r.cancel()
		if round == 5 || round == 9 {
			r.die()
		}
		r.finish(0.6)
		r.admit()
	}
	for range 20 {
		r.admit()
		r.claim(len(r.keys))
		r.finish(1)
	}
	for _, k := range r.keys {
		if k.waiting != 0 || k.running != 0 || k.begun != k.newest {
			r.fail(k, "in the end: waiting %d, running %d, last begun %d, newest %d", k.waiting, k.running, k.begun, k.newest)
		}
	}
}

func (r *reruns) fail(k *rerun, format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("key %s (TUSK_TEST_SEED=%s): %s", k.name, r.seed, fmt.Sprintf(format, args...))
}

func (r *reruns) must(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s (TUSK_TEST_SEED=%s): %v", what, r.seed, err)
	}
}

// enqueue enqueues a task for some of the keys, and several for some of them.
func (r *reruns) enqueue(share float64) {
	r.t.Helper()
	var tasks []store.NewTask
	var of []*rerun
	var sources []int64
	for _, k := range r.keys {
		for r.rand.Float64() < share && len(tasks) < 2*len(r.keys) {
			source := max(k.newest-2+int64(r.rand.IntN(5)), 1)
			tasks = append(tasks, store.NewTask{ID: NewID(), Kind: "k", Queue: r.queue, Key: k.name, OnConflict: store.Rerun,
				SourceTime: time.Unix(source, 0), Args: fmt.Appendf(nil, `{"source":%d}`, source)})
			of, sources = append(of, k), append(sources, source)
			share /= 1.01
		}
	}
	results, err := r.s.Enqueue(context.Background(), tasks)
	r.must("enqueue", err)
	for i, got := range results {
		if want := of[i].update(sources[i]); got.Result != want {
			r.fail(of[i], "enqueued %d: %v, want %v: %+v", sources[i], got.Result, want, *of[i])
		}
	}
}

// update returns the expected result of an enqueue.
func (k *rerun) update(source int64) store.EnqueueResult {
	if source <= k.newest {
		return store.Stale
	}
	k.newest = source
	switch {
	case k.running != 0:
		k.awaiting = source
		return store.Awaiting
	case k.waiting != 0:
		k.waiting = source
		return store.Replaced
	}
	k.waiting = source
	return store.Added
}

func (r *reruns) claim(limit int) {
	r.t.Helper()
	tasks, err := r.s.Claim(context.Background(), store.ClaimRequest{Worker: r.worker, Queues: []string{r.queue},
		Limit: limit, Token: store.NewToken()})
	r.must("claim", err)
	for i := range tasks {
		k := r.key(&tasks[i])
		var source int64
		if _, err := fmt.Sscanf(string(tasks[i].Args), `{"source":%d}`, &source); err != nil || source != k.waiting ||
			k.running != 0 {
			r.fail(k, "claimed %s: %+v", tasks[i].Args, *k)
		}
		k.running, k.waiting, k.begun, k.task = source, 0, source, &tasks[i]
	}
}

func (r *reruns) key(t *store.Task) *rerun {
	var n int
	fmt.Sscanf(t.Key, "k%d", &n)
	return r.keys[n]
}

// finish ends some of the running attempts in various ways, and sometimes sends an outcome twice.
func (r *reruns) finish(share float64) {
	r.t.Helper()
	states := []store.State{store.Completed, store.Completed, store.Discarded, store.Cancelled, store.Retryable,
		store.Scheduled, store.Available}
	if share == 1 {
		states = states[:1]
	}
	var ends []store.Outcome
	for _, k := range r.keys {
		if k.running != 0 && r.rand.Float64() < share {
			o := store.Outcome{Task: k.task, State: states[r.rand.IntN(len(states))], Attempt: k.task.Attempt, Reason: "x"}
			if o.State == store.Retryable {
				o.Error, o.Fingerprint = "x", "x"
			}
			ends = append(ends, o)
		}
	}
	r.end(ends)
	if r.rand.IntN(4) == 0 {
		lost, err := finish(context.Background(), r.s, ends)
		r.must("finish again", err)
		if len(lost) != len(ends) {
			r.t.Fatalf("TUSK_TEST_SEED=%s: of %d ends that were repeated %d were lost", r.seed, len(ends), len(lost))
		}
	}
}

func (r *reruns) end(ends []store.Outcome) {
	r.t.Helper()
	lost, err := finish(context.Background(), r.s, ends)
	r.must("finish", err)
	if len(lost) > 0 {
		r.t.Fatalf("TUSK_TEST_SEED=%s: %d ends of %d were lost", r.seed, len(lost), len(ends))
	}
	for _, o := range ends {
		k := r.key(o.Task)
		if k.waiting = k.awaiting; k.awaiting == 0 && !o.State.Finished() && !k.stop {
			k.waiting = k.running
		}
		k.running, k.awaiting, k.stop, k.task = 0, 0, false, nil
	}
}

// cancel cancels a few running tasks.
func (r *reruns) cancel() {
	r.t.Helper()
	var ids []store.ID
	for _, k := range r.keys {
		if k.running != 0 && r.rand.IntN(20) == 0 {
			ids, k.stop = append(ids, k.task.ID), true
		}
	}
	_, err := r.s.Edit(context.Background(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel, Reason: "c"}})
	r.must("edit", err)
}

// die lets the worker die and rescues its tasks. A late outcome from it changes nothing.
func (r *reruns) die() {
	r.t.Helper()
	r.beat(time.Millisecond)
	time.Sleep(3 * time.Millisecond)
	held := 0
	for _, k := range r.keys {
		if k.running != 0 {
			held++
		}
	}
	for held > 0 {
		dead, err := r.s.Rescue(context.Background(), r.term, 1000)
		r.must("rescue", err)
		var ends []store.Outcome
		for i := range dead {
			if dead[i].Queue != r.queue {
				continue
			}
			o := store.Outcome{Task: &dead[i], State: store.Retryable, Attempt: dead[i].Attempt - 1,
				Crashes: dead[i].Crashes + 1, Error: "died", Fingerprint: "d"}
			if r.rand.IntN(5) == 0 {
				o.State, o.Reason = store.Discarded, "quarantined"
			}
			ends = append(ends, o)
		}
		r.end(ends)
		if held -= len(ends); len(ends) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	r.worker = NewID()
	r.beat(time.Hour)
}

func (r *reruns) beat(ttl time.Duration) {
	r.t.Helper()
	_, err := r.s.Extend(context.Background(),
		store.Beat{Worker: store.Worker{ID: r.worker, Queues: []string{r.queue}}, TTL: ttl})
	r.must("beat", err)
}

func (r *reruns) lead(id store.ID) {
	r.t.Helper()
	l, err := r.s.Lead(context.Background(), store.Candidate{ID: id, TTL: time.Hour})
	r.must("lead", err)
	r.term = l.Term
}

func (r *reruns) admit() {
	r.t.Helper()
	for {
		did, err := r.s.Admit(context.Background(), r.term, 1000)
		r.must("admit", err)
		if did.Count < 1000 {
			return
		}
	}
}
