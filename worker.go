package tusk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/claim"
	"github.com/tuskqueue/tusk/internal/finish"
	"github.com/tuskqueue/tusk/internal/lease"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// WorkerConfig configures a worker. The zero value is valid and means all defaults.
type WorkerConfig struct {
	// Queues names the queues that the worker claims tasks from. Default: only "default".
	Queues []string
	// Concurrency is the maximum number of tasks that run at once. Default: 50.
	Concurrency int
	// ReadAhead is the maximum number of tasks claimed in addition to those that run, so that short tasks need not
	// wait for the next claim. The longer tasks take, the fewer are read ahead: no task should wait longer than
	// about 20 ms. Default: 500. A negative value disables reading ahead.
	ReadAhead int

	// Lease is how long the worker keeps its tasks without a heartbeat, and therefore the longest time that the tasks
	// of a killed worker wait. On an engine that detects the end of a worker's connection, such as PostgreSQL or
	// MySQL, they wait only about five seconds. Default: 30 s.
	Lease time.Duration
	// Beat is the interval between heartbeats, at most a third of Lease. Default: 10 s (2 s on an engine that detects
	// the end of connections) or a third of Lease, whichever is less. Unless Beat is set, a worker that has found no
	// tasks for some seconds sends one every 15 s, with a lease of 30 s.
	Beat time.Duration
	// Poll is the longest pause between two checks of idle queues. Hints make most checks unnecessary, but
	// correctness never depends on hints. Default: 1 s. If the engine reports new tasks at once, workers with the
	// same queues share the checks: together they check once a second, and each one at least every ten seconds.
	Poll time.Duration
	// ClaimEvery is the shortest time between two claims while no tasks are left over. With the default, 0, the
	// worker claims as soon as it is notified of a task. Otherwise, tasks that arrive within that time share a claim:
	// they start half of it later on average, and cost the database less. It is at most Poll, and does not slow down
	// a backlog: a claim that returned as many tasks as the worker could take is followed by the next one at once.
	ClaimEvery time.Duration
	// ShutdownTimeout is how long running tasks may continue after Run's context has ended; after that, their
	// contexts end too. Default: 25 s.
	ShutdownTimeout time.Duration

	// Timeout limits the duration of each attempt if neither its task nor its handler has a timeout, and StallTimeout
	// its time without a sign of life if neither has a stall timeout; see Options. At most MaxTimeout. Default: no
	// limit.
	Timeout, StallTimeout time.Duration
	// HungGrace is how long a handler may keep running after its context has ended because of a timeout, a stall
	// timeout, a deadline or a cancellation. After that the handler counts as hung: the attempt ends without it, its
	// task runs again elsewhere, and its slot is free for another handler. Default: 10 s.
	HungGrace time.Duration
	// MaxHung is the maximum number of hung handlers. When it is reached, the worker stops claiming, lets the
	// other handlers finish as in a shutdown, and Run returns ErrTooManyHung. Default: Concurrency, but at least
	// 10. Negative means no maximum.
	MaxHung int

	// Middleware wraps every handler; the first element is outermost.
	Middleware []Middleware
	// Tracer traces attempts, outside all middleware. Optional; nil disables tracing.
	Tracer Tracer
	// Retention is how long finished tasks are kept. Zero fields take the default: one day for completed and
	// cancelled tasks, one week for discarded tasks, 30 days for statistics. It applies while this worker is the
	// leader; Client.SetRetention overrides it for a queue.
	Retention Retention
	// NeverLead keeps the worker from becoming the leader. The leader is the one process that admits due tasks,
	// rescues tasks, fires schedules and prunes for all.
	NeverLead bool
	// Logger receives the worker's log messages. Default: the client's logger.
	Logger *slog.Logger
}

// Retention is how long finished tasks are kept, by outcome and by queue: from a second to MaxAhead, 10 years. In a
// WorkerConfig a zero field means the default, and Forever means no end.
type Retention = store.Retention

// Worker claims tasks and runs their handlers. Create one with NewWorker.
type Worker struct {
	client *Client
	mux    *Mux
	config WorkerConfig
	log    *slog.Logger
	handle HandlerFunc // nil if there is no middleware
	follow HandlerFunc // nil if there is no tracer

	slots  *run.Slots
	finish *finish.Gatherer
	heart  *lease.Heart
	source *claim.Source
	leader *tend.Leader // nil if NeverLead
	queues *queueWatch
	events broadcast
	// Running tasks whose previous worker died.
	suspects suspects
	// Tasks that this worker has no handler for.
	strangers strangers
	started   atomic.Bool
	overrun   chan struct{} // receives a value when too many handlers hang
}

// NewWorker creates a worker that runs the handlers of m. config may be nil. If the configuration is invalid, the
// error is an *InvalidError that names every violated limit.
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

// assemble connects the parts: a task goes from source to slots to finish.
func (w *Worker) assemble() {
	c, s := w.config, w.client.store
	w.suspects = newSuspects(w.client, w.ID)
	w.strangers.worker, w.strangers.client = w.ID, w.client
	wrapped := HandlerFunc(func(ctx context.Context, t *Task[json.RawMessage]) error {
		if t.attempt == nil {
			return fmt.Errorf("middleware passed on another task: %w", errMadeUp)
		}
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
	w.slots.Alone = hasLastChance
	w.slots.Grace, w.slots.Late = c.HungGrace, w.returned
	w.finish = finish.New(s, finish.Options{Largest: max(1000, c.Concurrency+c.ReadAhead), Linger: 2 * time.Millisecond,
		Soon: w.slots.Ending, Deadline: 30 * time.Second, Log: w.log, Done: w.written})
	host, _ := os.Hostname()
	w.heart = lease.New(s, lease.Options{
		Worker: func() store.Worker {
			return store.Worker{Host: host, PID: os.Getpid(), Queues: c.Queues, Concurrency: c.Concurrency,
				ClaimEvery: c.ClaimEvery, Version: Version(), Kinds: w.mux.Kinds(), Hung: w.Hung()}
		},
		NewID: NewID, TTL: c.Lease, Every: c.Beat,
		Rest: restFor(s, c), Idles: func() bool { return w.source.Idles() && len(w.holds()) == 0 },
		Holds: w.holds, Notes: w.notes, Noted: w.noted, Stop: w.stop, Lost: w.lost, Away: w.away, Log: w.log,
	})
	w.slots.Note = w.heart.Note
	w.queues = newQueueWatch(w.client, c.Queues, w.log)
	exchanger, _ := s.(store.Exchanger)
	parker, _ := s.(store.Parker)
	w.source = claim.New(s, claim.Options{Worker: w.heart.Worker, Dead: w.heart.Renew, Asks: w.asks,
		Room: w.room, Take: w.take, Running: w.slots.Running, Poll: c.Poll, Every: c.ClaimEvery, Prompt: prompt(s),
		Along: exchanger, Lender: w.finish, Parker: parker, Ready: w.ready, Log: w.log})
	w.queues.changed, w.queues.worker = func() { w.source.Hint() }, w.ID
	if c.Poll >= queueRefresh {
		w.queues.rests, w.queues.looked, w.queues.rarest = w.source.Rests, w.source.Looked, c.Lease/3
	}
	if !c.NeverLead {
		w.leader = w.newLeader()
		w.queues.leads = w.leader.Saw
	}
}

// Health returns, for each of the worker's loops, the time since it last succeeded.
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

// Leads reports whether the worker is currently the leader.
func (w *Worker) Leads() bool { return w.leader != nil && w.leader.Term() != 0 }

// ID returns the worker's current identity.
func (w *Worker) ID() ID { id, _ := w.heart.Worker(); return id }

// Version returns the version of Tusk that is running.
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

// beatEvery returns the default interval between heartbeats. An engine that detects the death of a process waits
// for an overdue heartbeat only to be sure.
func beatEvery(s store.Store) time.Duration {
	if witnesses(s) {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// restFor returns the interval between heartbeats of a worker that holds no tasks, unless Beat is set. With a
// lease of 15 s or more, the worker has five seconds to repeat a failed heartbeat before it gives up its identity.
func restFor(s store.Store, c WorkerConfig) time.Duration {
	if c.Beat != min(beatEvery(s), c.Lease/3) {
		return c.Beat
	}
	return min(15*time.Second, max(c.Lease/3, c.Lease*2/3-5*time.Second))
}

func complete(c WorkerConfig, client *Client) (WorkerConfig, error) {
	seen := map[string]bool{}
	c.Queues = slices.DeleteFunc(slices.Clone(c.Queues), func(q string) bool { // duplicates would be claimed twice
		twice := seen[q]
		seen[q] = true
		return twice
	})
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
		cmp.Or(within("Poll", c.Poll, time.Millisecond, time.Hour), within("ClaimEvery", c.ClaimEvery, 0, c.Poll)),
		within("ShutdownTimeout", c.ShutdownTimeout, 0, 24*time.Hour),
		within("Timeout", c.Timeout, 0, MaxTimeout), within("StallTimeout", c.StallTimeout, 0, MaxTimeout),
		within("HungGrace", c.HungGrace, 10*time.Millisecond, 24*time.Hour),
		within("MaxHung", c.MaxHung, -1, 100000),
		keeps("Retention.Stats", c.Retention.Stats))
	for _, r := range append(slices.Collect(maps.Values(c.Retention.Queues)), c.Retention) {
		problems = append(problems, keeps("Retention.Completed", r.Completed), keeps("Retention.Cancelled", r.Cancelled),
			keeps("Retention.Discarded", r.Discarded))
	}
	return c, errors.Join(problems...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
