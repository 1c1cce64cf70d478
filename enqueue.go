package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Args is the input of a kind of task: any type that encodes to JSON and names
// its kind, which is the same for all its values: Handle asks the zero value. A type
// that also has a method Options() Options sets the defaults of its tasks; since it is
// called on each task's args, they may depend on them.
type Args interface {
	Kind() string
}

// RawArgs are args whose kind and JSON are known only at run time.
type RawArgs struct {
	Name string // the kind
	JSON json.RawMessage
}

// Kind implements Args.
func (a RawArgs) Kind() string { return a.Name }

// MarshalJSON implements json.Marshaler.
func (a RawArgs) MarshalJSON() ([]byte, error) { return a.JSON, nil }

// Options describe a task besides its args. The zero value is a task of the
// queue "default" that may run at once.
type Options struct {
	Queue    string // default: "default"
	Tenant   string // whom the task belongs to; default: nobody
	Priority int16  // lower runs sooner; default: 0
	// Partition tells tasks of a tenant apart in queues with limits: one at a time
	// of each document, for example. Like a key, it is any text.
	Partition string
	Tags      []string          // to find the task by; at most MaxTags
	Metadata  map[string]string // for people and middleware; not read by Tusk

	// RunAt is when the task may run, not earlier. The zero time means now; if it comes
	// from a field that may not have been set, pass it through At.
	RunAt     time.Time
	Delay     time.Duration // not before this long from now, by the database's clock; not beside RunAt
	ExpiresAt time.Time     // not to be started later: the task is discarded then
	ExpiresIn time.Duration // the same, from now; the earlier of the two counts
	// Deadline is when the task must have ended: the handler's context ends then, with
	// ErrDeadline as its cause, and a task that is late is discarded instead of being
	// started or retried. DeadlineIn is the same from when it is enqueued, by the
	// database's clock; the earlier of the two counts.
	Deadline   time.Time
	DeadlineIn time.Duration

	MaxAttempts int           // 1 to 1,000; default: 25
	Timeout     time.Duration // of each attempt, up to MaxTimeout; default: the handler's, else none
	// StallTimeout is how long an attempt may go on without a sign of life (SetProgress, a line
	// of Logger, Alive), up to MaxTimeout; default: the handler's, else none. It counts for
	// handlers in Go and commands, whose lines on standard error are signs of life.
	StallTimeout time.Duration
	Backoff      Backoff // before each retry

	// Weight is what the task counts in the rates of its queue, 1 to 1,000,000; default: 1.
	Weight int
	// Ephemeral tasks are not kept when they are completed: they have no history, and
	// count in statistics alone. Engines for which it costs nothing keep them all the
	// same. What failed is kept like any other, and so are tasks of workflows, which
	// others need. It does not go together with Rerun and Once, which need the history.
	Ephemeral bool

	// Key is a natural identity ("document-17"): at most one unfinished task of a
	// queue and tenant has it. OnConflict says what another enqueue with the same key
	// does; SourceTime is when the key's source changed, for Rerun.
	Key        string
	OnConflict OnConflict
	SourceTime time.Time
	// Unique makes the key of the task's kind and args, instead.
	Unique *Unique

	// ID is the task's own, if its maker needs to know it before it is stored. It
	// must come from NewID and be used once. Default: a new one.
	ID ID
}

// OnConflict says what an enqueue does when its key has a task already.
type OnConflict = store.OnConflict

// The ways to deal with a key that is taken; the constants of package store say more.
const (
	Skip    = store.Skip    // leave the unfinished task alone: the default
	Replace = store.Replace // give it the new args and options, unless it runs
	Rerun   = store.Rerun   // the same, and when it runs, run once more after it
	Once    = store.Once    // leave it alone when it has finished as well, while its history is kept
)

// Enqueued says what became of an enqueue; ID is that of the task which stands for
// it: its own, or that of the task with its key.
type Enqueued = store.Enqueued

// The ends of an enqueue.
const (
	Added    = store.Added    // stored as a new task
	Skipped  = store.Skipped  // another task has the key and was left alone
	Replaced = store.Replaced // an unfinished task has the key and took on the new values
	Awaiting = store.Awaiting // it will run when the running task of its key has ended
	Stale    = store.Stale    // its SourceTime is not newer than one already seen
)

// NewTask is one task of an EnqueueMany.
type NewTask struct {
	Args    Args
	Options *Options // nil: the defaults
}

// DefaultQueue is where tasks go that name no queue.
const DefaultQueue = "default"

// Enqueue stores one task, durably when it returns nil. Options may be nil.
//
// Errors: an *InvalidError for what was passed in; otherwise the task may or may
// not have been stored, unless the error is ErrNotCommitted.
func (c *Client) Enqueue(ctx context.Context, args Args, o *Options) (Enqueued, error) {
	results, err := c.EnqueueMany(ctx, []NewTask{{args, o}})
	if err != nil {
		return Enqueued{}, err
	}
	return results[0], nil
}

// Validate says what Enqueue would refuse, as an *InvalidError, and stores nothing.
func (c *Client) Validate(args Args, o *Options) error {
	e := encoder{client: c, id: NewID, json: json.Marshal, ctx: context.Background(), only: true}
	var n store.NewTask
	return e.encode(&n, &NewTask{Args: args, Options: o})
}

// EnqueueMany stores up to MaxBatch tasks, far cheaper than one by one, and says of
// each, in the same order, what became of it.
//
// Errors: a *BatchError when some are invalid: then none is stored; otherwise any of
// them may have been stored, unless the error is ErrNotCommitted.
func (c *Client) EnqueueMany(ctx context.Context, tasks []NewTask) ([]Enqueued, error) {
	return c.enqueue(ctx, c.store, tasks)
}

// EnqueueTx stores one task inside the caller's own transaction (*sql.Tx, or
// pgx.Tx on PostgreSQL): the task exists if and only if that commits, and cannot
// run before.
//
// The error is ErrUnsupported when the engine has no transactions of that type.
func (c *Client) EnqueueTx(ctx context.Context, tx any, args Args, o *Options) (Enqueued, error) {
	results, err := c.EnqueueManyTx(ctx, tx, []NewTask{{args, o}})
	if err != nil {
		return Enqueued{}, err
	}
	return results[0], nil
}

// EnqueueManyTx is EnqueueMany inside the caller's own transaction.
func (c *Client) EnqueueManyTx(ctx context.Context, tx any, tasks []NewTask) ([]Enqueued, error) {
	inside, err := c.inTx(tx)
	if err != nil {
		return nil, err
	}
	return c.enqueue(ctx, inside, tasks)
}

// BatchError lists the invalid tasks of a batch by index.
type BatchError struct {
	Items map[int]error
	first int
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("nothing was stored: %d of the tasks are invalid, first number %d: %v", len(e.Items), e.first,
		e.Items[e.first])
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *BatchError) Is(target error) bool { return target == ErrInvalid }

func (c *Client) enqueue(ctx context.Context, into store.Enqueuer, tasks []NewTask) ([]Enqueued, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	if len(tasks) > MaxBatch {
		return nil, invalid("tasks", "batch_too_large", "has %d tasks, at most %d are allowed in one call",
			len(tasks), MaxBatch)
	}
	l := listOf(len(tasks))
	e := encoder{client: c, ctx: ctx, id: new(block).next, json: l.encode}
	var bad *BatchError
	for i := range tasks {
		err := e.encode(&l.tasks[i], &tasks[i])
		if err == nil {
			continue
		} else if len(tasks) == 1 || !errors.Is(err, ErrInvalid) {
			return nil, err
		}
		if bad == nil {
			bad = &BatchError{Items: map[int]error{}, first: i}
		}
		bad.Items[i] = err
	}
	if bad != nil {
		return nil, bad
	}
	results, err := c.put(ctx, into, l.tasks)
	if err == nil && len(c.config.BeforeEnqueue) == 0 { // a hook may keep what it is shown
		l.recycle()
	}
	return results, err
}

// put passes checked tasks through the hooks and on to the engine.
func (c *Client) put(ctx context.Context, into store.Enqueuer, stored []store.NewTask) ([]Enqueued, error) {
	for _, hook := range c.config.BeforeEnqueue {
		if err := hook(ctx, stored); err != nil {
			return nil, fmt.Errorf("before enqueue: %w", err)
		}
	}
	if err := c.takeTurns(ctx, stored); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if err := c.conceal(ctx, ID{}, stored); err != nil {
		return nil, err
	}
	return into.Enqueue(ctx, stored)
}
