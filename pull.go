package tusk

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lease"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Limits of a Puller.
const (
	MaxPull      = 1000 // tasks in one Pull
	MaxPullWait  = 20 * time.Second
	MaxPullLease = 12 * time.Hour
	MaxLent      = 100000 // tasks that one Puller has lent at a time

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
	ended map[Receipt]string // recent verdicts, so that repeating one is not an error
	order []Receipt          // keys of ended, oldest first
	// ending are the leases that calls of Finish are ending. Each channel closes when its call has ended.
	ending map[Receipt]chan struct{}
	asked  map[store.Token]bool // claims in progress, until their tasks are in lent
	lost   []store.ClaimRequest // claims whose answer was lost
	wants  appetite             // what was recently asked for
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
// the task, ErrShutdown hands it back, Snooze postpones it, and so on.
type Verdict struct {
	Receipt Receipt
	Err     error           // nil or a GoTo means that the task completed
	Trace   string          // of a failed attempt: a stack trace, or anything else that shows where it failed
	Output  json.RawMessage // of a completed task, up to MaxOutputBytes
	// Stream is read in place of Output, up to MaxPayloadBytes if the client has Payloads. It is read once: to
	// repeat the verdict, pass a new one.
	Stream io.Reader
}

type loan struct {
	*run.Attempt
	begun, until time.Time
	end          time.Time // when the task's own timeout or deadline ends; zero means never
	over         error     // the error for whichever of the two applies
	taken        bool      // its time is over and its attempt is being ended; a verdict that comes first still counts
}

var errOverdue = errors.New("lease ran out: the worker neither finished the task nor extended its lease")

// NewPuller creates a puller. It lends tasks only while its Run is running.
func (c *Client) NewPuller() *Puller {
	p := &Puller{client: c, lent: map[Receipt]*loan{}, asked: map[store.Token]bool{}, ended: map[Receipt]string{},
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

// Find returns the tasks that the receipts stand for, with nil for those whose lease has ended, so that a caller
// can decide who may finish them.
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

// Finish ends attempts and returns, in the same order, nil, ErrLeaseLost or an *InvalidError for each. A GoTo that the
// task cannot follow is such an error: the task stays lent. Repeating a verdict is not an error, so repeat the call if
// it returns an error itself.
func (p *Puller) Finish(ctx context.Context, verdicts []Verdict) ([]error, error) {
	if len(verdicts) > MaxPull {
		return nil, invalid("leases", "batch_too_large", "has %d leases, at most %d are allowed", len(verdicts),
			MaxPull)
	}
	receipts := make([]Receipt, len(verdicts))
	for i, v := range verdicts {
		receipts[i] = v.Receipt
	}
	tasks, err := p.Find(ctx, receipts)
	if err != nil {
		return nil, err
	}
	results := make([]error, len(verdicts))
	var outcomes []store.Outcome
	first := map[Receipt]int{} // the verdict that ends each attempt; later ones in the same call repeat it
	for i, v := range verdicts {
		if _, repeats := first[v.Receipt]; repeats {
			continue
		}
		if tasks[i] == nil {
			continue
		}
		if errors.As(v.Err, new(*goTo)) {
			if _, _, err := p.client.follows(ctx, tasks[i].Kind, v.Err); errors.Is(err, ErrInvalid) {
				results[i] = err
				continue
			} else if err != nil {
				return nil, fmt.Errorf("finish: %w", err)
			}
		}
		if v.Stream != nil && (v.Err == nil || errors.As(v.Err, new(*goTo))) {
			v.Output, err = p.client.readOutput(ctx, v.Receipt.ID, v.Stream)
			if errors.Is(err, ErrInvalid) {
				results[i] = err
				continue
			} else if err != nil {
				return nil, fmt.Errorf("finish: %w", err)
			}
		}
		out, err := p.decide(ctx, tasks[i], v)
		if err != nil {
			return nil, fmt.Errorf("finish: %w", err)
		}
		outcomes, first[v.Receipt] = append(outcomes, out), i
	}
	done, err := p.turn(ctx, receipts)
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	defer done()
	for i, v := range verdicts {
		if tasks[i] == nil {
			results[i] = p.again(v)
		}
	}
	if len(outcomes) == 0 {
		return results, nil
	}
	// The caller may go away, but what was ended for it must be known when it repeats the verdict.
	end := time.Now().Add(10 * time.Second)
	if asked, ok := ctx.Deadline(); ok && asked.After(end) {
		end = asked
	}
	sure, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	lost, err := p.client.store.Finish(sure, outcomes)
	held := new(store.HeldError)
	if err != nil && !errors.As(err, &held) {
		return nil, err
	}
	gone := map[ID]bool{}
	for _, id := range lost {
		gone[id] = true
	}
	for _, id := range held.Tasks {
		gone[id] = true
	}
	p.client.ended(outcomes, gone)
	for i, v := range verdicts {
		if tasks[i] == nil || results[i] != nil || slices.Contains(held.Tasks, v.Receipt.ID) {
			continue
		}
		if gone[v.Receipt.ID] || first[v.Receipt] != i {
			results[i] = p.again(v)
		} else {
			p.remember(v)
		}
		p.forget(v.Receipt)
		p.guests.drop(v.Receipt)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Extension requests more time for a task and reports the worker's progress.
type Extension struct {
	Receipt  Receipt
	Lease    time.Duration   // from now; default: 30 s
	Progress *store.Progress // optional
	Logs     []string
}

// Extended is the answer to an Extension.
type Extended struct {
	Until     time.Time // the new end of the lease
	Cancelled bool      // the task has been cancelled
	// Err is nil, ErrLeaseLost or an *InvalidError. For a task that another process lent, it may also be
	// ErrLentElsewhere or an error of the database; then extend again.
	Err error
}

// Extend gives workers more time for their tasks, and answers in the same order. Another process of the same database
// may have lent them. If such a loan is extended in several processes, the latest end counts.
func (p *Puller) Extend(ctx context.Context, extensions ...Extension) []Extended {
	results := make([]Extended, len(extensions))
	var others []Extension
	var index []int
	for i := range extensions {
		e := &extensions[i]
		if results[i].Err = pullLease(&e.Lease); results[i].Err != nil {
			continue
		}
		var own bool
		if results[i], own = p.extend(e); !own {
			others, index = append(others, *e), append(index, i)
		}
	}
	if len(others) > 0 {
		for n, answer := range p.extendGuests(ctx, others) {
			results[index[n]] = answer
		}
	}
	return results
}

// extend extends a loan, if it is one of this puller's.
func (p *Puller) extend(e *Extension) (answer Extended, own bool) {
	p.mu.Lock()
	l := p.lent[e.Receipt]
	taken := l != nil && (l.taken || errors.Is(l.Stopped(), ErrShutdown))
	if l != nil && !taken {
		l.until = l.bound(time.Now().Add(e.Lease))
		answer.Until = l.until
	}
	p.mu.Unlock()
	switch {
	case l == nil:
		return answer, false
	case taken:
		return Extended{Err: ErrLeaseLost}, true
	}
	e.note(l.Attempt)
	answer.Cancelled = errors.Is(l.Stopped(), ErrCancelled)
	return answer, true
}

func (e *Extension) note(a *run.Attempt) {
	if e.Progress != nil {
		a.SetProgress(store.Progress{Percent: e.Progress.Percent,
			Message: lifecycle.Clean(e.Progress.Message, 1<<10)})
	}
	for _, line := range e.Logs {
		a.Log(time.Now(), "INFO", lifecycle.Clean(line, 8<<10))
	}
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
