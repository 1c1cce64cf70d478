package tusk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/claim"
	"github.com/tuskqueue/tusk/internal/finish"
	"github.com/tuskqueue/tusk/internal/lease"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// WorkerConfig configures a worker. The zero value will do.
type WorkerConfig struct {
	// Queues that the worker takes tasks from. Default: "default" alone.
	Queues []string
	// Concurrency is how many tasks run at once. Default: 50.
	Concurrency int
	// ReadAhead is the most tasks that are claimed beyond those that run, so that
	// short tasks need not wait for the next claim. The longer tasks take, the
	// fewer are read ahead: none that would wait for more than about 20 ms.
	// Default: 500; negative: none.
	ReadAhead int

	// Lease is how long the worker's tasks stay its own without a heartbeat, and
	// so how long the tasks of a killed worker wait at the most. An engine that sees
	// its connection end, as PostgreSQL does, waits for some five seconds.
	// Default: 30 s.
	Lease time.Duration
	// Beat is the time between heartbeats, at most a third of Lease. Default: 10 s,
	// 2 s on an engine that sees connections end, or a third of Lease, whichever is
	// least. Unless it is set, a worker that has found nothing for some seconds beats
	// every 15 s with a lease of 30 s.
	Beat time.Duration
	// Poll is the longest pause between two looks at idle queues. Hints make most
	// looks unnecessary, but nothing depends on hints. Default: 1 s. Where the engine
	// hears of tasks at once, workers that take from the same queues share the looks:
	// together they look once a second, and each every ten seconds or more often.
	Poll time.Duration
	// ShutdownTimeout is how long running tasks may go on after Run's context has
	// ended; then their contexts end, too. Default: 25 s.
	ShutdownTimeout time.Duration

	// HungGrace is how long a handler may run on after its context has ended because of a
	// timeout, a stall timeout, a deadline or a cancel. Then it is hung: the attempt
	// ends without it, its task runs again elsewhere, and another handler takes its
	// slot. Default: 10 s.
	HungGrace time.Duration
	// MaxHung is how many handlers may hang: when as many do, the worker takes nothing
	// more, lets the others end as at a shutdown, and Run returns ErrTooManyHung.
	// Default: Concurrency, but at least 10; negative: the worker goes on whatever their number.
	MaxHung int

	// Middleware wraps every handler; the first is outermost.
	Middleware []Middleware
	// Tracer follows attempts, outside all middleware. Nil: none is followed.
	Tracer Tracer
	// Retention says how long finished tasks are kept. Zero fields take the
	// default: completed and cancelled ones a day, discarded ones a week,
	// statistics 30 days. It counts while this worker leads; what Client.SetRetention
	// has set for a queue comes before it.
	Retention Retention
	// NeverLead keeps the worker from doing the chores that one process at a time
	// does for all: admitting due tasks, rescue, schedules, pruning.
	NeverLead bool
	// Logger takes what the worker has to say. Default: the client's.
	Logger *slog.Logger
}

// Retention says how long finished tasks are kept, by outcome and by queue. In a
// WorkerConfig a zero field is the default, and Forever keeps for ever.
type Retention = store.Retention

const (
	stuckGrace = 2 * time.Second // for handlers to notice that their context has ended
	partingGap = 10 * time.Second
)

// Worker claims tasks and runs their handlers. Make it with NewWorker.
type Worker struct {
	client *Client
	mux    *Mux
	config WorkerConfig
	log    *slog.Logger
	handle HandlerFunc // nil: there is no middleware
	follow HandlerFunc // nil: there is no tracer

	slots  *run.Slots
	finish *finish.Gatherer
	heart  *lease.Heart
	source *claim.Source
	leader *tend.Leader // nil: never leads
	queues *queueWatch
	events broadcast
	// Tasks that run and whose last worker died.
	suspects suspects
	// Tasks that it cannot run.
	strangers strangers
	started   atomic.Bool
	overrun   chan struct{} // filled when too many handlers hang
}

// NewWorker makes a worker that runs the mux's handlers. Config may be nil. The
// error is an *InvalidError and names every bound that was broken.
func NewWorker(c *Client, m *Mux, config *WorkerConfig) (*Worker, error) {
	if c == nil || m == nil {
		return nil, invalid("worker", "missing", "needs a client and a mux")
	}
	var given WorkerConfig
	if config != nil {
		given = *config
	}
	full, err := complete(given, c)
	if err != nil {
		return nil, err
	}
	if m.err != nil {
		return nil, m.err
	}
	if len(m.handlers) == 0 {
		return nil, invalid("mux", "no_handlers", "has no handlers: register at least one with tusk.Handle")
	}
	w := &Worker{client: c, mux: m, config: full, log: full.Logger, overrun: make(chan struct{}, 1)}
	w.assemble()
	return w, nil
}

// assemble wires the rooms: a task goes from source to slots to finish.
func (w *Worker) assemble() {
	c, s := w.config, w.client.store
	w.suspects.worker, w.suspects.client = w.ID, w.client
	w.strangers.worker, w.strangers.client = w.ID, w.client
	wrapped := HandlerFunc(func(ctx context.Context, t *Task[json.RawMessage]) error {
		return w.dispatch(ctx, delivery{task: &t.Task, info: &t.TaskInfo, args: t.Args, attempt: t.attempt, client: t.client})
	})
	for _, middleware := range slices.Backward(c.Middleware) {
		wrapped = middleware(wrapped)
		w.handle = wrapped
	}
	w.slots = run.NewSlots(c.Concurrency + c.ReadAhead)
	if c.Tracer != nil {
		w.follow, w.slots.Claimed = c.Tracer.Follow(wrapped), c.Tracer.Claimed
	}
	w.slots.Handle, w.slots.Limits, w.slots.Done = w.runAttempt, w.limits, w.ended
	w.slots.Grace, w.slots.Late = c.HungGrace, w.returned
	w.finish = finish.New(s, finish.Options{Largest: max(1000, c.Concurrency+c.ReadAhead), Linger: 2 * time.Millisecond,
		Soon: w.slots.Ending, Deadline: 30 * time.Second, Log: w.log, Done: w.written})
	host, _ := os.Hostname()
	w.heart = lease.New(s, lease.Options{
		Worker: func() store.Worker {
			return store.Worker{Host: host, PID: os.Getpid(), Queues: c.Queues, Concurrency: c.Concurrency, Version: Version(),
				Kinds: w.mux.Kinds(), Hung: w.Hung()}
		},
		NewID: NewID, TTL: c.Lease, Every: c.Beat,
		Rest: restFor(s, c), Idles: func() bool { return w.source.Idles() && len(w.holds()) == 0 },
		Holds: w.holds, Notes: w.notes, Noted: w.noted, Stop: w.stop, Lost: w.lost, Away: w.away, Log: w.log,
	})
	w.queues = newQueueWatch(w.client, c.Queues, w.log)
	exchanger, _ := s.(store.Exchanger)
	w.source = claim.New(s, claim.Options{Worker: w.heart.Worker, Dead: w.heart.Renew, Asks: w.asks,
		Room: w.room, Take: w.take, Poll: c.Poll, Prompt: prompt(s), Along: exchanger, Lender: w.finish, Log: w.log})
	w.queues.changed, w.queues.worker = func() { w.source.Hint() }, w.ID
	if c.Poll >= queueRefresh {
		w.queues.rests, w.queues.looked, w.queues.rarest = w.source.Rests, w.source.Looked, c.Lease/3
	}
	if !c.NeverLead {
		w.leader = w.newLeader()
		w.queues.leads = w.leader.Saw
	}
}

// Run works until ctx ends and then stops gracefully: it claims nothing more,
// hands back what it has not begun, lets handlers end for ShutdownTimeout, then
// ends their contexts, writes all outcomes and signs off. It returns nil after
// that, or an error that says which tasks would not stop; those are run again
// elsewhere when the lease is over. It stops by itself, with ErrTooManyHung, when
// MaxHung handlers hang.
//
// A worker runs once: a second call is an error.
func (w *Worker) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return invalid("worker", "already_run", "runs already or has run: make a new one")
	}
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	keep, work := newCrew(hard), newCrew(hard)
	keep.loops(w.heart.Loops()...)
	keep.run(func() { w.finish.Run(hard) })
	w.slots.Start(hard, w.config.Concurrency)
	work.loops(w.source.Loop(), w.queues.loop)
	if w.leader != nil {
		work.loops(w.leader.Loops()...)
	}
	if len(w.mux.pipelines) > 0 {
		work.loops(loop.New("pipelines", 15*time.Second, w.log, w.tellPipelines))
	}
	work.run(func() { listen(work.soft, w.client.store, w.log, w.hear) })
	var problem error
	select {
	case <-ctx.Done():
	case <-w.overrun:
		problem = fmt.Errorf("%w: %d of them ignore the end of their contexts", ErrTooManyHung, w.Hung())
		w.log.Error("run: stopping", "error", problem)
	}
	return errors.Join(problem, w.shutDown(hard, cancel, work, keep))
}

func (w *Worker) shutDown(hard context.Context, cancel func(), work, keep *crew) error {
	work.stop()
	parting, done := context.WithTimeout(hard, w.config.ShutdownTimeout+partingGap)
	defer done()
	err := w.source.Settle(parting)
	for _, a := range w.slots.All() {
		a.StopWaiting(ErrShutdown)
	}
	w.slots.Close()
	stuck := w.drain()
	w.finish.Close()
	w.suspects.forget(parting)
	if w.leader != nil {
		err = errors.Join(err, w.leader.Resign(parting))
	}
	keep.stopWithin(partingGap, cancel)
	if stuck != nil {
		return errors.Join(stuck, err)
	}
	return errors.Join(err, w.heart.SignOff(parting))
}

// drain waits for the handlers, and ends their contexts when they take too long.
func (w *Worker) drain() error {
	empty := make(chan struct{})
	go func() { w.slots.Wait(); close(empty) }()
	select {
	case <-empty:
		return nil
	case <-time.After(w.config.ShutdownTimeout):
	}
	for _, a := range w.slots.All() {
		a.Stop(ErrShutdown)
	}
	select {
	case <-empty:
		return nil
	case <-time.After(stuckGrace):
	}
	var ids []string
	for _, a := range w.slots.All() {
		ids = append(ids, a.Task.Kind+" "+a.Task.ID.String())
	}
	return fmt.Errorf("shutdown: %d handlers ignore the end of their context: %v", len(ids), ids)
}

// Health returns, for each of the worker's loops, how long ago it last succeeded.
func (w *Worker) Health() map[string]time.Duration {
	ages := map[string]time.Duration{"finish": w.finish.Age()}
	loops := append(w.heart.Loops(), w.source.Loop(), w.queues.loop)
	if w.leader != nil {
		loops = append(loops, w.leader.Loops()...)
	}
	for _, l := range loops {
		ages[l.Name] = l.Age()
	}
	return ages
}

// Leads reports whether the worker is the leader now.
func (w *Worker) Leads() bool { return w.leader != nil && w.leader.Term() != 0 }

// ID is the worker's present identity.
func (w *Worker) ID() ID { id, _ := w.heart.Worker(); return id }

// Version is the version of Tusk that is running.
func Version() string { return version() }

var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const module = "github.com/tuskqueue/tusk"
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
})

// beatEvery is the usual time between heartbeats. Where the engine sees a process
// die it waits for an overdue beat only to be sure.
func beatEvery(s store.Store) time.Duration {
	if witnesses(s) {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// restFor is the time between heartbeats of a worker that has nothing to lose, unless it was said how
// often it is to beat. With a lease of 15 s or more it has five seconds to repeat one that fails before it gives its
// identity up.
func restFor(s store.Store, c WorkerConfig) time.Duration {
	if c.Beat != min(beatEvery(s), c.Lease/3) {
		return c.Beat
	}
	return min(15*time.Second, max(c.Lease/3, c.Lease*2/3-5*time.Second))
}

func complete(c WorkerConfig, client *Client) (WorkerConfig, error) {
	c.Queues = slices.Clone(c.Queues)
	if len(c.Queues) == 0 {
		c.Queues = []string{DefaultQueue}
	}
	setDefault(&c.Concurrency, 50)
	setDefault(&c.ReadAhead, 500)
	c.ReadAhead = max(c.ReadAhead, 0)
	setDefault(&c.Lease, 30*time.Second)
	setDefault(&c.Beat, min(beatEvery(client.store), c.Lease/3))
	setDefault(&c.Poll, time.Second)
	setDefault(&c.ShutdownTimeout, 25*time.Second)
	setDefault(&c.HungGrace, 10*time.Second)
	setDefault(&c.MaxHung, max(c.Concurrency, 10))
	setDefault(&c.Retention.Completed, 24*time.Hour)
	setDefault(&c.Retention.Cancelled, 24*time.Hour)
	setDefault(&c.Retention.Discarded, 7*24*time.Hour)
	setDefault(&c.Retention.Stats, 30*24*time.Hour)
	if c.Logger == nil {
		c.Logger = client.config.Logger
	}
	var problems []error
	for _, q := range c.Queues {
		problems = append(problems, ValidateName("queue", q))
	}
	problems = append(problems,
		within("Concurrency", c.Concurrency, 1, 100000),
		within("ReadAhead", c.ReadAhead, 0, 100000),
		cmp.Or(within("Lease", c.Lease, 100*time.Millisecond, 24*time.Hour),
			within("Beat", c.Beat, 10*time.Millisecond, c.Lease/3)),
		within("Poll", c.Poll, time.Millisecond, time.Hour),
		within("ShutdownTimeout", c.ShutdownTimeout, 0, 24*time.Hour),
		within("HungGrace", c.HungGrace, 10*time.Millisecond, 24*time.Hour),
		within("MaxHung", c.MaxHung, -1, 100000))
	return c, errors.Join(problems...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// crew is a set of loops that start and stop together.
type crew struct {
	hard  context.Context // cuts steps short
	soft  context.Context // ends when the crew is told to stop
	halt  context.CancelFunc
	alive chan struct{}
	count int
}

func newCrew(hard context.Context) *crew {
	soft, halt := context.WithCancel(hard)
	return &crew{hard: hard, soft: soft, halt: halt, alive: make(chan struct{})}
}

func (c *crew) run(f func()) {
	c.count++
	go func() { f(); c.alive <- struct{}{} }()
}

func (c *crew) loops(loops ...*loop.Loop) {
	for _, l := range loops {
		c.run(func() { l.Run(c.hard, c.soft.Done()) })
	}
}

// stop waits until every member has ended its step.
func (c *crew) stop() {
	c.halt()
	for range c.count {
		<-c.alive
	}
}

// stopWithin is stop, but cuts the steps short after a while.
func (c *crew) stopWithin(d time.Duration, cut func()) {
	timer := time.AfterFunc(d, cut)
	defer timer.Stop()
	c.stop()
}
