package tusk

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lease"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Limits of a Puller.
const (
	MaxPull      = 1000 // tasks in one Pull
	MaxPullWait  = 20 * time.Second
	MaxPullLease = 12 * time.Hour
	MaxLent      = 100000 // tasks that one Puller may have lent at a time

	defaultPullLease = 30 * time.Second
)

// Puller lends tasks to workers that are not Go programs or that cannot reach the database. It claims tasks for
// them, sends heartbeats for them, and takes a task back from a worker that neither finishes nor extends it in
// time. Create one with NewPuller, then run it. It is safe for concurrent use.
type Puller struct {
	client *Client
	heart  *lease.Heart
	queues *queueWatch
	sweep  *loop.Loop
	closed chan struct{} // closed when Run's context has ended

	watches *watches // for tasks that calls of Claim wait for
	guests  *guests

	mu    sync.Mutex
	lent  map[Receipt]*loan
	ended map[Receipt]given // recent verdicts, so that repeating one is not an error
	order []Receipt         // keys of ended, oldest first
	// ending are the leases that calls of Finish are ending. Each channel closes when its call has ended.
	ending map[Receipt]chan struct{}
	asked  map[store.Token]bool // claims in progress, until their tasks are in lent
	lost   []store.ClaimRequest // claims whose answer was lost
	wants  appetite             // what was recently requested
	names  map[ID]bool          // all identities that this puller has had
}

// Receipt names a loan: a task and the lease it was lent under. It is all that a worker needs to finish the task,
// so keep it secret like a password.
type Receipt struct {
	ID    ID
	Lease store.Token
}

func (r Receipt) String() string { return r.ID.String() + "." + r.Lease.String() }

// ParseReceipt parses the text form of a receipt.
func ParseReceipt(text string) (r Receipt, err error) {
	id, token, found := strings.Cut(text, ".")
	if r.ID, err = store.ParseID(id); err != nil || !found || len(token) != 2*len(r.Lease) {
		return Receipt{}, invalid("lease id", "invalid_id", "%q is not the id of a lease", cutText(text))
	}
	if _, err := hex.Decode(r.Lease[:], []byte(token)); err != nil {
		return Receipt{}, invalid("lease id", "invalid_id", "%q is not the id of a lease", cutText(text))
	}
	return r, nil
}

// Pull is a request for tasks.
type Pull struct {
	Queues []string      // 1 to 100
	Limit  int           // 1 to MaxPull; default: 1
	Lease  time.Duration // how long the worker may take without extending, 1 s to MaxPullLease; default: 30 s
	Wait   time.Duration // how long to wait for the first task, up to MaxPullWait; default: do not wait
}

// Lent is a task that was lent to an external worker. Its args are decrypted if the client has a KeyRing;
// otherwise encrypted args stay encrypted. Large args are a reference; read them with Args.
type Lent struct {
	TaskInfo
	Receipt Receipt
	Until   time.Time // when the lease ends unless it is extended, by this process's clock
}

// Verdict says how an attempt ended. Err has the same meaning as an error that a handler returns: nil completes
// the task, ErrShutdown hands it back, Snooze postpones it, Wait makes it wait for its Children, and so on.
type Verdict struct {
	Receipt Receipt
	Err     error           // nil or a GoTo means that the task completed
	Trace   string          // of a failed attempt: a stack trace, or anything else that shows where it failed
	Output  json.RawMessage // of a completed task, up to MaxOutputBytes
	// Children are enqueued if the task completes or waits, up to MaxWorkflow. They belong to the task's workflow and
	// tenant. After any other verdict they are not enqueued.
	Children []ChildTask
	// Stream is read in place of Output, up to MaxPayloadBytes if the client has Payloads. It is read once: to
	// repeat the verdict, pass a new one.
	Stream io.Reader
}

type loan struct {
	*run.Attempt
	begun, until time.Time
	end          time.Time // when the task's own timeout or deadline ends; zero means never
	over         error     // the error for whichever of the two ends first
	taken        bool      // its time is over and its attempt is being ended; an earlier verdict still counts
}

// ending reports whether the loan is being ended, so that it can no longer be extended.
func (l *loan) ending() bool { return l.taken || errors.Is(l.Stopped(), ErrShutdown) }

var errOverdue = errors.New("lease ran out: the worker neither finished the task nor extended its lease")

// NewPuller creates a puller. It lends tasks only while its Run is running.
func (c *Client) NewPuller() *Puller {
	p := &Puller{client: c, lent: map[Receipt]*loan{}, asked: map[store.Token]bool{}, ended: map[Receipt]given{},
		ending: map[Receipt]chan struct{}{},
		closed: make(chan struct{}),
		names:  map[ID]bool{},
		wants:  appetite{queues: map[string]time.Time{}}, watches: newWatches(),
		guests: newGuests(c)}
	log := c.config.Logger
	host, _ := os.Hostname()
	p.heart = lease.New(c.store, lease.Options{
		Worker: func() store.Worker { return p.about(host) },
		NewID:  p.newID, TTL: 30 * time.Second, Every: beatEvery(c.store),
		Holds: p.holds, Notes: p.notes, Noted: p.noted, Stop: p.stop, Lost: p.forgetAll, Away: p.forgetAll, Log: log,
	})
	p.queues = newQueueWatch(c, nil, log)
	p.queues.changed = func() {}
	p.sweep = loop.New("lent tasks", 15*time.Second, log, p.sweepOnce)
	return p
}

func (p *Puller) newID() ID {
	id := NewID()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[id] = true
	return id
}

// Run lends tasks until ctx ends, then hands back what is still lent and signs off. Call it only once.
func (p *Puller) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	work := newCrew(hard)
	work.loops(p.heart.Loops()...)
	work.loops(p.sweep, p.queues.loop)
	work.run(func() { listen(work.soft, p.client.store, p.client.config.Logger, p.hear) })
	<-ctx.Done()
	close(p.closed)
	parting, done := context.WithTimeout(hard, partingGap)
	defer done()
	err := p.handBack(parting)
	work.stopBy(parting)
	if err != nil {
		return err // no sign-off: until the leases expire, another process may take the verdicts
	}
	return p.heart.SignOff(parting)
}

// Claim lends up to r.Limit tasks and waits up to r.Wait for the first one. It lends fewer when they are large: it
// stops at about 8 MiB of args. It is not an error if no task becomes available in time.
//
// Errors: an *InvalidError; ErrShutdown if the puller is shutting down.
func (p *Puller) Claim(ctx context.Context, r Pull) ([]Lent, error) {
	if err := r.complete(); err != nil {
		return nil, err
	}
	defer p.want(r.Queues, r.Limit)()
	if r.Wait > 0 {
		return p.wait(ctx, r)
	}
	lent, _, err := p.claim(ctx, r)
	return lent, err
}

// Args returns the args of a lent task, wherever they are stored.
func (p *Puller) Args(l *Lent) (Content, error) { return p.client.ArgsOf(&l.TaskInfo) }

// Find returns the tasks of the receipts, with nil for those whose lease has ended, so that a caller can decide
// who may finish them.
func (p *Puller) Find(ctx context.Context, receipts []Receipt) ([]*store.Task, error) {
	tasks := make([]*store.Task, len(receipts))
	var ids []ID
	p.mu.Lock()
	for i, r := range receipts {
		if l := p.lent[r]; l != nil {
			tasks[i] = l.Task
		} else {
			ids = append(ids, r.ID)
		}
	}
	p.mu.Unlock()
	if len(ids) == 0 {
		return tasks, nil
	}
	// Another process may have lent them.
	stored, err := p.client.List(ctx, Filter{IDs: ids, Limit: len(ids), NoArgs: true})
	if err != nil {
		return nil, err
	}
	byID := make(map[ID]*store.Task, len(stored))
	for i := range stored {
		byID[stored[i].ID] = &stored[i].Task
	}
	for i, r := range receipts {
		if t := byID[r.ID]; tasks[i] == nil && t != nil && t.State == store.Running && t.Lease == r.Lease {
			tasks[i] = t
		}
	}
	return tasks, nil
}

// Lent returns the number of tasks that are currently lent.
func (p *Puller) Lent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lent)
}

func (r *Pull) complete() error {
	setDefault(&r.Limit, 1)
	if len(r.Queues) == 0 || len(r.Queues) > 100 {
		return invalid("queues", "out_of_range", "has %d queues, want 1 to 100", len(r.Queues))
	}
	for _, q := range r.Queues {
		if err := ValidateName("queue", q); err != nil {
			return err
		}
	}
	return firstProblem(within("max", r.Limit, 1, MaxPull), within("wait", r.Wait, 0, MaxPullWait), pullLease(&r.Lease))
}

func pullLease(d *time.Duration) error {
	setDefault(d, defaultPullLease)
	return within("lease", *d, time.Second, MaxPullLease)
}

func firstProblem(problems ...error) error {
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	return nil
}
