package tusktest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Worker runs the tasks that a kit's client has enqueued, one at a time and only when told
// to. It is a real worker: retries, limits, workflows and schedules work as in production.
type Worker struct {
	kit      *Kit
	t        testing.TB
	worker   *tusk.Worker
	queues   []string
	events   <-chan tusk.Event
	patience time.Duration
	busy     sync.Mutex // held while tasks run
}

// Ran is the outcome of an attempt that the worker has run.
type Ran = tusk.Event

// patience is how long a handler may take before the test fails.
const patience = 30 * time.Second

// Work creates a worker that runs the mux's handlers. config may be nil; its Concurrency,
// ReadAhead and Poll are ignored. The worker stops at the end of the test.
func (k *Kit) Work(mux *tusk.Mux, config *tusk.WorkerConfig) *Worker {
	k.t.Helper()
	var c tusk.WorkerConfig
	if config != nil {
		c = *config
	}
	c.Concurrency, c.ReadAhead, c.Poll = 1, -1, 5*time.Millisecond
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = 5 * time.Second
	}
	inner, err := tusk.NewWorker(k.Client, mux, &c)
	if err != nil {
		k.t.Fatalf("tusktest: %v", err)
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{tusk.DefaultQueue}
	}
	w := &Worker{kit: k, t: k.t, worker: inner, queues: c.Queues, patience: patience}
	var unsubscribe func()
	w.events, unsubscribe = inner.Subscribe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- inner.Run(ctx) }()
	k.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Errorf("tusktest: stopping the worker: %v", err)
		}
		unsubscribe()
	})
	return w
}

// Inline creates a worker that runs every task as soon as it is enqueued outside a
// transaction, before Enqueue returns, and then the tasks that it enqueues. Tasks of a
// transaction run with the next Drain after its commit.
func (k *Kit) Inline(mux *tusk.Mux, config *tusk.WorkerConfig) *Worker {
	k.t.Helper()
	w := k.Work(mux, config)
	k.mu.Lock()
	k.inline = w
	k.mu.Unlock()
	return w
}

// Step runs the next available task and returns the outcome of the attempt, or nil if no task
// is available.
func (w *Worker) Step() *Ran {
	w.t.Helper()
	w.busy.Lock()
	defer w.busy.Unlock()
	return w.step()
}

// Drain runs tasks, including those that they enqueue, until none is available. It returns
// the outcomes in order. Scheduled tasks stay as they are: see Advance.
func (w *Worker) Drain() []Ran {
	w.t.Helper()
	w.busy.Lock()
	defer w.busy.Unlock()
	return w.drain()
}

// Advance moves the clock by a duration: every scheduled task is due that much sooner. Tasks
// run in the order in which they become due, including those that they schedule and those
// that are retried within that time. Expiry times, deadlines, rates and the ticks of
// schedules still follow the engine's own clock.
func (w *Worker) Advance(d time.Duration) []Ran {
	w.t.Helper()
	w.busy.Lock()
	defer w.busy.Unlock()
	ran := w.drain()
	for {
		waiting := w.waiting()
		if len(waiting) == 0 || d <= 0 {
			return ran
		}
		by := min(max(time.Until(waiting[0].RunAt), time.Millisecond), d)
		w.shift(waiting, by)
		d -= by
		ran = append(ran, w.drain()...)
	}
}

// DrainAll runs tasks until no scheduled task is left, however far in the future its time is.
// It fails the test if tasks are left after most attempts, for example a task that snoozes
// forever.
func (w *Worker) DrainAll(most int) []Ran {
	w.t.Helper()
	w.busy.Lock()
	defer w.busy.Unlock()
	ran := w.drain()
	for waiting := w.waiting(); len(waiting) > 0; waiting = w.waiting() {
		if len(ran) >= most {
			w.t.Fatalf("tusktest: %d attempts were made and %d tasks still wait; the next is %s %s", len(ran), len(waiting),
				waiting[0].Kind, waiting[0].ID)
		}
		w.shift(waiting, max(time.Until(waiting[0].RunAt), time.Millisecond))
		ran = append(ran, w.drain()...)
	}
	return ran
}

func (w *Worker) drain() (all []Ran) {
	w.t.Helper()
	for {
		ran := w.step()
		if ran == nil {
			return all
		}
		all = append(all, *ran)
	}
}

func (w *Worker) step() *Ran {
	w.t.Helper()
	task := w.claim()
	if task == nil {
		return nil
	}
	deadline := time.After(w.patience)
	for {
		select {
		case e := <-w.events:
			if e.Task.ID == task.ID && e.Task.Lease == task.Lease && e.Kind != tusk.EventStarted {
				return &e
			}
		case <-deadline:
			w.t.Fatalf("tusktest: task %s of kind %s has run for %v and has not ended", task.ID, task.Kind, w.patience)
		}
	}
}

// claim lets the worker claim a task. No task is available if every queue was asked without
// success after the leader did its chores.
func (w *Worker) claim() *store.Task {
	w.t.Helper()
	for chored := false; ; chored = true {
		for range len(w.queues) + 1 { // a worker claims separately from each queue with a per-worker limit
			select {
			case answer := <-w.kit.gate.let():
				if answer.err != nil {
					w.t.Fatalf("tusktest: %v", answer.err)
				}
				if answer.task != nil {
					return answer.task
				}
			case <-time.After(w.patience):
				w.t.Fatalf("tusktest: the worker has claimed nothing for %v: is the database there?", w.patience)
			}
		}
		if chored || !w.pending() {
			return nil
		}
		w.awaitChores()
	}
}

// pending reports whether tasks wait for others or for their turn, or did so until after the last claim.
func (w *Worker) pending() bool {
	w.t.Helper()
	counts, err := w.kit.gate.Count(context.Background())
	if err != nil {
		w.t.Fatalf("tusktest: %v", err)
	}
	return slices.ContainsFunc(counts, func(c store.Count) bool {
		return (c.State == store.Pending || c.State == store.Available) && slices.Contains(w.queues, c.Queue)
	})
}

// awaitChores waits until the leader has done a round of its chores.
func (w *Worker) awaitChores() {
	w.t.Helper()
	done := w.kit.gate.chores()
	for deadline := time.Now().Add(w.patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("tusktest: no leader has done its chores for %v", w.patience)
		}
	}
}

// waiting returns the tasks that wait for their time, soonest first.
func (w *Worker) waiting() []store.Task {
	w.t.Helper()
	var all []store.Task
	filter := store.Filter{Queues: w.queues, States: []store.State{store.Scheduled, store.Retryable}, Limit: store.MaxPage}
	for {
		page, err := w.kit.gate.List(context.Background(), filter)
		if err != nil {
			w.t.Fatalf("tusktest: %v", err)
		}
		all = append(all, page...)
		if len(page) < store.MaxPage {
			break
		}
		filter.Before = page[len(page)-1].ID
	}
	slices.SortStableFunc(all, func(a, b store.Task) int {
		return cmp.Or(a.RunAt.Compare(b.RunAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return all
}

// shift makes waiting tasks due sooner by a duration.
func (w *Worker) shift(waiting []store.Task, by time.Duration) {
	w.t.Helper()
	for _, task := range waiting {
		change := store.Change{Op: store.Reschedule, RunAt: task.RunAt.Add(-by)}
		if _, err := w.kit.gate.Edit(context.Background(), store.Edit{IDs: []store.ID{task.ID}, Change: change}); err != nil {
			w.t.Fatalf("tusktest: %v", err)
		}
	}
}
