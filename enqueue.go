package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Args is the input of a kind of task: any type that encodes to JSON and names its kind. All values of the type
// must return the same kind, since Handle asks the zero value. A type that also has a method Options() Options
// sets the defaults of its tasks. Options is called on each task's args, so the defaults may depend on them.
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

// Options describe a task apart from its args. The zero value means a task in the queue "default" that may run at
// once.
type Options struct {
	Queue    string // default: "default"
	Tenant   string // who the task belongs to; default: no tenant
	Priority int16  // lower values run sooner; default: 0
	// Partition separates the tasks of a tenant in queues with limits, for example to run one task at a time per
	// document. Like a key, it may be any text.
	Partition string
	Tags      []string          // labels to find the task by; at most MaxTags
	Metadata  map[string]string // for people and middleware; Tusk does not read it

	// RunAt is the earliest time at which the task may run. The zero time means now. If the value comes from a
	// field that may be unset, pass it through At.
	RunAt     time.Time
	Delay     time.Duration // minimum delay from now, by the database's clock; cannot be combined with RunAt
	ExpiresAt time.Time     // a task that has not started by then is discarded; after the run time, as is Deadline
	ExpiresIn time.Duration // like ExpiresAt, but from now; the earlier of the two applies
	// Deadline is when the task must have ended. The handler's context ends then, with ErrDeadline as its cause. A
	// late task is discarded instead of being started or retried. DeadlineIn is relative to the enqueue, by the
	// database's clock; the earlier of the two applies.
	Deadline   time.Time
	DeadlineIn time.Duration

	MaxAttempts int           // 1 to 1,000; default: 25
	Timeout     time.Duration // of each attempt, up to MaxTimeout; default: the handler's, the worker's, or none
	// StallTimeout is how long an attempt may go without a sign of life (SetProgress, a line of Logger, Alive), up
	// to MaxTimeout. Default: the handler's, the worker's, or none. It applies to handlers in Go and to commands, whose
	// lines on standard error are signs of life.
	StallTimeout time.Duration
	Backoff      Backoff // delay before each retry

	// Weight is how much the task counts towards the rates of its queue, 1 to 1,000,000; default: 1.
	Weight int
	// Ephemeral tasks are not kept after they complete: they have no history and count only in statistics. Engines
	// that can keep them at no cost do so anyway. Failed tasks are kept like any other, and so are tasks of
	// workflows, which other tasks need. Ephemeral cannot be combined with Rerun and Once, which need the history.
	Ephemeral bool

	// Key is a natural identity ("document-17"): at most one unfinished task of a queue and tenant has it.
	// OnConflict says what another enqueue with the same key does. SourceTime is when the key's source changed;
	// Rerun uses it.
	Key        string
	OnConflict OnConflict
	SourceTime time.Time
	// Unique derives the key from the task's kind and args instead.
	Unique *Unique

	// ID sets the task's id, for callers that need to know it before the task is stored. It must come from NewID
	// and be used only once, except that an enqueue with a key may be repeated until another task with the key has
	// ended. Default: a new id.
	ID ID
}

// OnConflict says what an enqueue does if a task already has its key.
type OnConflict = store.OnConflict

// The policies for a key that is taken. The constants of package store have the details.
const (
	Skip    = store.Skip    // leave the unfinished task unchanged; the default
	Replace = store.Replace // give the unfinished task the new args and options, unless it is running
	Rerun   = store.Rerun   // like Replace, but if the task is running, run once more after it
	Once    = store.Once    // like Skip, and also leave a finished task unchanged while its history is kept
)

// Enqueued is the result of an enqueue. ID is the id of the task that represents it: the new task, or the task
// that already has its key.
type Enqueued = store.Enqueued

// The results of an enqueue.
const (
	Added    = store.Added    // stored as a new task
	Skipped  = store.Skipped  // a task has the key and was not changed; it may be this one, if the call is repeated
	Replaced = store.Replaced // an unfinished task has the key and received the new values
	Awaiting = store.Awaiting // it will run when the running task with its key has ended
	Stale    = store.Stale    // its SourceTime is not newer than one already seen
)

// NewTask is one task of an EnqueueMany call.
type NewTask struct {
	Args    Args
	Options *Options // nil means the defaults
}

// DefaultQueue is the queue of tasks that name no queue.
const DefaultQueue = "default"

// Enqueue stores one task. The task is durable when Enqueue returns nil. o may be nil.
//
// Errors: an *InvalidError if the input is invalid. After any other error the task may or may not have been
// stored, unless the error is ErrNotCommitted.
func (c *Client) Enqueue(ctx context.Context, args Args, o *Options) (Enqueued, error) {
	results, err := c.EnqueueMany(ctx, []NewTask{{args, o}})
	if err != nil {
		return Enqueued{}, err
	}
	return results[0], nil
}

// Validate returns the *InvalidError that Enqueue would return, or nil. It stores nothing.
func (c *Client) Validate(args Args, o *Options) error {
	e := encoder{client: c, id: NewID, json: json.Marshal, ctx: context.Background(), only: true}
	var n store.NewTask
	return e.encode(&n, &NewTask{Args: args, Options: o})
}

// EnqueueMany stores up to MaxBatch tasks, far more cheaply than one by one. It returns the result of each task,
// in the same order.
//
// Errors: a *BatchError if some tasks are invalid; then none is stored. After any other error any of them may have
// been stored, unless the error is ErrNotCommitted.
func (c *Client) EnqueueMany(ctx context.Context, tasks []NewTask) ([]Enqueued, error) {
	return c.enqueue(ctx, c.store, tasks)
}

// EnqueueTx stores one task inside the caller's own transaction (*sql.Tx, or pgx.Tx on PostgreSQL). The task
// exists if and only if the transaction commits, and cannot run before that.
//
// The error is ErrUnsupported if the engine does not support transactions of that type.
func (c *Client) EnqueueTx(ctx context.Context, tx any, args Args, o *Options) (Enqueued, error) {
	results, err := c.EnqueueManyTx(ctx, tx, []NewTask{{args, o}})
	if err != nil {
		return Enqueued{}, err
	}
	return results[0], nil
}

// EnqueueManyTx is like EnqueueMany, but inside the caller's own transaction.
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
	if err == nil && len(c.config.BeforeEnqueue) == 0 { // a hook may keep the tasks that it receives
		l.recycle()
	}
	return results, err
}

// put passes validated tasks on to the engine.
func (c *Client) put(ctx context.Context, into store.Enqueuer, stored []store.NewTask) ([]Enqueued, error) {
	if err := c.prepare(ctx, ID{}, stored); err != nil {
		return nil, err
	}
	return into.Enqueue(ctx, stored)
}

// prepare makes validated tasks ready to be stored. by is the task whose attempt creates them, if any.
func (c *Client) prepare(ctx context.Context, by ID, tasks []store.NewTask) error {
	if err := c.present(ctx, tasks); err != nil {
		return err
	}
	return c.conceal(ctx, by, tasks)
}

// present is prepare for tasks whose args stay unchanged. It passes them to the hooks, and then makes those of queues
// with limits wait for their turn.
func (c *Client) present(ctx context.Context, tasks []store.NewTask) error {
	for _, hook := range c.config.BeforeEnqueue {
		if err := hook(ctx, tasks); err != nil {
			return &hookError{err}
		}
	}
	if err := c.takeTurns(ctx, tasks); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return nil
}

// hookError is the error of a hook.
type hookError struct{ error }

func (e *hookError) Error() string { return "before enqueue: " + e.error.Error() }

func (e *hookError) Unwrap() error { return e.error }
