package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

const (
	benchKind         = "bench"
	benchLeastPayload = 48              // bytes of args without padding
	benchAhead        = time.Second     // how far ahead a task's run time is
	benchEvery        = 10              // with latency, one task in this many has a run time
	benchPatience     = 2 * time.Minute // how long no task may end
)

// benchRun measures one scenario.
type benchRun struct {
	client *tusk.Client
	flags  *benchFlags
	base   time.Time // the time from which others are counted
	pad    string

	where    dsn
	embedded bool // the engine uses CPU time of this process

	tenants int          // number of tenants that the tasks belong to in turn; 0: no tenant
	heavy   atomic.Int64 // handled tasks that are not measured

	handled atomic.Int64
	first   atomic.Int64 // when the first handler started
	starts  waits        // from enqueue to start
	dues    waits        // from run time to start
}

// waits collects durations in nanoseconds without locks.
type waits struct {
	next atomic.Int64
	all  []int64
}

func (w *waits) add(d time.Duration) {
	if i := w.next.Add(1) - 1; i < int64(len(w.all)) {
		w.all[i] = int64(d)
	}
}

func (w *waits) reset(n int) {
	w.next.Store(0)
	w.all = make([]int64, n)
}

func (w *waits) list() []int64 { return w.all[:min(w.next.Load(), int64(len(w.all)))] }

func newBenchRun(c *tusk.Client, b *benchFlags) *benchRun {
	return &benchRun{client: c, flags: b, base: time.Now(), pad: strings.Repeat("x", b.payload-benchLeastPayload)}
}

// ready makes sure that the queue is empty.
func (r *benchRun) ready(ctx context.Context) error {
	left, err := countUnfinished(ctx, r.client.Store(), r.flags.queue)
	if err != nil || left == 0 {
		return err
	}
	if !r.flags.yes {
		return &Problem{Code: "queue_not_empty", Exit: exitConflict,
			Text: fmt.Sprintf("queue %s has %s", r.flags.queue, words.Count(left, "unfinished task")),
			Hint: "choose another queue with --queue, or pass --yes to delete them"}
	}
	return r.clear(ctx)
}

// clear deletes the tasks in the queue. A running task is deleted after its worker has handed it back, or after the
// worker has died and the task was rescued.
func (r *benchRun) clear(ctx context.Context) error {
	stop, err := r.work(ctx, 1, 1) // to lead, and so to rescue
	if err != nil {
		return err
	}
	waiting := tusk.Filter{Queues: []string{r.flags.queue}, Limit: store.MaxPage,
		States: []tusk.State{tusk.StateScheduled, tusk.StatePending, tusk.StateAvailable, tusk.StateRetryable}}
	for {
		tasks, err := r.client.List(ctx, waiting)
		if err != nil {
			return errors.Join(err, stop())
		}
		ids := make([]tusk.ID, len(tasks))
		for i, t := range tasks {
			ids[i] = t.ID
		}
		if _, err := r.client.Edit(ctx, ids, tusk.Change{Op: store.Delete}); err != nil {
			return errors.Join(err, stop())
		}
		left, err := countUnfinished(ctx, r.client.Store(), r.flags.queue)
		if err != nil || left == 0 {
			return errors.Join(err, stop())
		}
		if len(tasks) == 0 && !sleep(ctx, 20*time.Millisecond) {
			return errors.Join(context.Cause(ctx), stop())
		}
	}
}

// drain runs the tasks that the benchmark left in the queue.
func (r *benchRun) drain(ctx context.Context) error {
	stop, err := r.work(ctx, 1, 1000)
	if err != nil {
		return err
	}
	return errors.Join(r.awaitEmpty(ctx), stop())
}

func (r *benchRun) measure(ctx context.Context) (*benchReport, error) {
	b := r.flags
	report := &benchReport{Scenario: b.scenario, Tasks: b.tasks, Batch: b.batch, Workers: b.workers, CPU: unknown,
		WAL: unknown, DeadRows: unknown,
		RoundTrips: unknown, Queries: unknown, Conflicts: unknown, DueToStart: unknown, P50: unknown, P99: unknown}
	var took time.Duration
	var err error
	switch b.scenario {
	case benchEnqueue:
		took, err = r.enqueue(ctx, report)
	case benchConsume:
		took, err = r.consume(ctx, report)
	case benchWorkflow, benchFan:
		took, err = r.workflow(ctx, report)
	default:
		took, err = r.produceConsume(ctx, report)
		report.P50, report.P99 = quantile(r.starts.list(), 50), quantile(r.starts.list(), 99)
		report.DueToStart = quantile(r.dues.list(), 50)
	}
	if took > 0 {
		report.PerSecond = figure(float64(b.tasks) / took.Seconds())
	}
	return report, err
}

func (r *benchRun) enqueue(ctx context.Context, report *benchReport) (time.Duration, error) {
	if err := r.produce(ctx, r.warmUp(), false); err != nil {
		return 0, err
	}
	before := r.meter(ctx)
	began := time.Now()
	if err := r.produce(ctx, r.flags.tasks, true); err != nil {
		return 0, err
	}
	took := time.Since(began)
	report.spend(before, r.meter(ctx))
	return took, r.drain(ctx)
}

func (r *benchRun) consume(ctx context.Context, report *benchReport) (time.Duration, error) {
	stop, err := r.warm(ctx)
	if err != nil {
		return 0, err
	}
	if err := stop(); err != nil {
		return 0, err
	}
	if err := r.prefill(ctx); err != nil {
		return 0, err
	}
	r.reset()
	before := r.meter(ctx)
	stop, err = r.work(ctx, r.flags.workers, r.flags.batch)
	if err != nil {
		return 0, err
	}
	if err := r.awaitAll(ctx, r.flags.tasks); err != nil {
		return 0, errors.Join(err, stop())
	}
	took := time.Since(r.base) - time.Duration(r.first.Load())
	report.spend(before, r.meter(ctx))
	return took, stop()
}

func (r *benchRun) produceConsume(ctx context.Context, report *benchReport) (time.Duration, error) {
	return r.live(ctx, report, func() error { return r.produce(ctx, r.flags.tasks, true) })
}

// live measures tasks that are enqueued while workers wait for them, until all of them have run.
func (r *benchRun) live(ctx context.Context, report *benchReport, enqueue func() error) (time.Duration, error) {
	stop, err := r.warm(ctx)
	if err != nil {
		return 0, err
	}
	r.reset()
	before := r.meter(ctx)
	began := time.Now()
	if err := enqueue(); err != nil {
		return 0, errors.Join(err, stop())
	}
	if err := r.awaitAll(ctx, r.flags.tasks); err != nil {
		return 0, errors.Join(err, stop())
	}
	took := time.Since(began)
	report.spend(before, r.meter(ctx))
	return took, stop()
}

// warmUp is how many tasks run before the measured ones, so that connections are open and statements prepared.
func (r *benchRun) warmUp() int { return min(max(200, 4*r.flags.batch), 20_000) }

// warm starts workers that have run the warm-up tasks. stop ends the workers.
func (r *benchRun) warm(ctx context.Context) (stop func() error, err error) {
	if stop, err = r.work(ctx, r.flags.workers, r.flags.batch); err != nil {
		return nil, err
	}
	if err = r.produce(ctx, r.warmUp(), false); err == nil {
		err = r.awaitAll(ctx, r.warmUp())
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// prefill stores the tasks to consume, in large batches.
func (r *benchRun) prefill(ctx context.Context) error {
	filler := *r.flags
	filler.batch, filler.rate, filler.workers = max(filler.batch, 1000), 0, 1
	fill := &benchRun{client: r.client, flags: &filler, base: r.base, pad: r.pad}
	return fill.produce(ctx, filler.tasks, true)
}

func (r *benchRun) reset() {
	r.handled.Store(0)
	r.first.Store(0)
	r.starts.reset(r.flags.tasks)
	r.dues.reset(r.flags.tasks)
}

// work starts workers. stop ends them and returns their errors.
func (r *benchRun) work(ctx context.Context, workers, batch int) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	errs := make(chan error, workers)
	readAhead := batch
	if batch == 1 {
		readAhead = -1
	}
	for n := range workers {
		mux := tusk.NewMux()
		tusk.HandleKind(mux, benchKind, r.handle)
		tusk.HandleKind(mux, benchHeavyKind, func(context.Context, *tusk.Task[json.RawMessage]) error {
			r.heavy.Add(1)
			return nil
		})
		w, err := tusk.NewWorker(r.client, mux,
			&tusk.WorkerConfig{Queues: []string{r.flags.queue}, Concurrency: min(batch, 64), ReadAhead: readAhead,
				NeverLead: n > 0})
		if err != nil {
			cancel()
			return nil, err
		}
		go func() { errs <- w.Run(ctx) }()
	}
	return func() error {
		cancel()
		var all error
		for range workers {
			all = errors.Join(all, <-errs)
		}
		return all
	}, nil
}

func (r *benchRun) handle(_ context.Context, t *tusk.Task[json.RawMessage]) error {
	started := time.Since(r.base)
	r.first.CompareAndSwap(0, int64(started))
	var sent, due int64
	if _, err := fmt.Sscanf(string(t.Args[:min(len(t.Args), benchLeastPayload)]), benchForm, &sent, &due); err == nil {
		if due > 0 {
			r.dues.add(started - time.Duration(due))
		} else {
			r.starts.add(started - time.Duration(sent))
		}
	}
	r.handled.Add(1)
	return nil
}

// produce enqueues n tasks in batches, at the requested rate.
func (r *benchRun) produce(ctx context.Context, n int, paced bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	began := time.Now()
	var group sync.WaitGroup
	for range r.flags.workers {
		group.Go(func() {
			for ctx.Err() == nil {
				from := int(next.Add(int64(r.flags.batch))) - r.flags.batch
				if from >= n {
					return
				}
				if paced && r.flags.rate > 0 {
					slot := time.Duration(float64(from) / float64(r.flags.rate) * float64(time.Second))
					if !sleep(ctx, slot-time.Since(began)) {
						return
					}
				}
				if err := r.enqueueBatch(ctx, from, min(r.flags.batch, n-from), paced); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// benchForm is the beginning of the args: when the task was sent and when it is due, in nanoseconds since the run's
// base.
const benchForm = `{"sent":%d,"due":%d`

func (r *benchRun) enqueueBatch(ctx context.Context, from, n int, measured bool) error {
	tasks := make([]tusk.NewTask, n)
	sent := time.Since(r.base)
	for i := range tasks {
		o := &tusk.Options{Queue: r.flags.queue}
		if r.tenants > 0 {
			o.Tenant = fmt.Sprint("t", (from+i)%r.tenants)
		}
		due := time.Duration(0)
		if r.flags.scenario == benchLatency && measured && (from+i)%benchEvery == benchEvery-1 {
			due, o.Delay = sent+benchAhead, benchAhead
		}
		args := fmt.Appendf(nil, benchForm, sent, due)
		args = append(append(append(args, `,"pad":"`...), r.pad...), `"}`...)
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: benchKind, JSON: args}, Options: o}
	}
	_, err := r.client.EnqueueMany(ctx, tasks)
	return err
}

// awaitAll waits until n tasks were handled and the database has recorded that.
func (r *benchRun) awaitAll(ctx context.Context, n int) error {
	progress, since := int64(-1), time.Now()
	for done := r.handled.Load(); done < int64(n); done = r.handled.Load() {
		if done != progress {
			progress, since = done, time.Now()
		}
		if time.Since(since) > benchPatience {
			return fmt.Errorf("bench: no task has ended for %v, %d of %d are done", benchPatience, done, n)
		}
		if !sleep(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return r.awaitEmpty(ctx)
}

// awaitEmpty waits until the queue has no unfinished task. It counts them only after none is running, because
// counting costs an engine as much as thousands of tasks.
func (r *benchRun) awaitEmpty(ctx context.Context) error {
	running := tusk.Filter{Queues: []string{r.flags.queue}, States: []tusk.State{tusk.StateRunning}, Limit: 1}
	for {
		some, err := r.client.List(ctx, running)
		if err != nil {
			return err
		}
		if len(some) == 0 {
			left, err := countUnfinished(ctx, r.client.Store(), r.flags.queue)
			if err != nil || left == 0 {
				return err
			}
		}
		if !sleep(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// meter reads the engine's counters, or returns nil if it has none.
func (r *benchRun) meter(ctx context.Context) *store.Measures {
	m, ok := store.As[store.Meter](r.client.Store())
	if !ok {
		return nil
	}
	measures, err := m.Measure(ctx)
	if err != nil {
		return nil
	}
	return &measures
}
