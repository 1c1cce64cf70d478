package tusk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// Operation is one change to all tasks that match a filter and existed when it began. It is stored with a cursor,
// so it continues if the process that began it dies, its progress can be watched, and it can be cancelled.
//
//	type Operation struct {
//		ID     ID
//		State  OperationState
//		Change Change
//		Filter Filter
//
//		Owner           string   // identifies who began it; empty means nobody in particular
//		By, Via         string   // name of who began it and how, for people
//		Queues, Tenants []string // restrict it; empty means all
//		PerSecond       int      // maximum number of tasks that it tries to change per second; 0 means no maximum
//		Limit           int64    // maximum number of tasks that it examines; 0 means all
//		Expected        int64    // number of tasks it is expected to examine; 0 means unknown
//
//		Seen      int64 // tasks examined so far
//		Changed   int64 // of those: changed
//		Requested int64 // of those: running, and told to stop
//		Refused   int64 // unchanged: the task's state did not allow the change, or the task was gone
//		KeyTaken  int64 // unchanged: another unfinished task has its key
//
//		Left []Edited // the first unchanged tasks, at most 20, and why
//
//		StartedAt, FinishedAt time.Time // by the database's clock
//		CancelRequested       bool
//		Error                 string // of the latest page, if it failed; the page is retried
//		Cursor, Holder        ID     // the last task that it examined, and the process that carries it out
//	}
//
// Its method Ended reports whether it is over.
type Operation = bulk.Operation

// OperationState is the state of an operation.
type OperationState = bulk.State

// The states of an operation.
const (
	OperationRunning   = bulk.Running   // in progress, or waiting for a process to continue it
	OperationDone      = bulk.Done      // all tasks it applies to were examined
	OperationCancelled = bulk.Cancelled // it was cancelled before that
)

// OperationOptions describe an operation apart from its filter and its change.
type OperationOptions struct {
	// PerSecond is the maximum number of tasks that it tries to change per second. Default: no maximum.
	PerSecond int
	// Limit is the maximum number of tasks that it examines, newest first. Default: all.
	Limit int64
	// Expected is the number of tasks it is expected to examine, as returned by Count. It is shown with the
	// progress.
	Expected int64
	// Queues and Tenants restrict it, whatever the filter says. They are names, or prefixes that end in *.
	// Default: no restriction.
	Queues, Tenants []string
	// Owner identifies who begins it, in case names are not unique.
	Owner   string
	By, Via string // who begins it and how, for people
}

// operationPatience is how long an operation may show no progress before another process takes it over.
const operationPatience = 15 * time.Second

// StartOperation begins a change to all tasks that match and exist now; tasks enqueued after it has returned are
// not affected. options may be nil. The leader carries the operation out, as does any process that calls
// CarryOperation. Each task is examined at least once, in pages, newest first. If a task changes its state in the
// meantime, its state when its page is processed decides.
//
// The error is an *InvalidError if the input is invalid.
func (c *Client) StartOperation(
	ctx context.Context, f Filter, change Change, options *OperationOptions,
) (Operation, error) {
	var with OperationOptions
	if options != nil {
		with = *options
	}
	o := Operation{ID: NewID(), State: bulk.Running, Change: change, Filter: f, Owner: with.Owner, By: with.By,
		Via: with.Via, Queues: with.Queues, Tenants: with.Tenants,
		PerSecond: with.PerSecond, Limit: with.Limit, Expected: with.Expected, Cursor: f.Before}
	o.Change.RunAt = ceilMillisecond(change.RunAt)
	if err := validateOperation(&o); err != nil {
		return Operation{}, err
	}
	if _, err := bulk.Put(ctx, c.store, o, 0); err != nil {
		return Operation{}, fmt.Errorf("start operation: %w", err)
	}
	began, err := c.Operation(ctx, o.ID)
	if err == nil {
		time.Sleep(2 * time.Millisecond) // tasks enqueued from now on have a later time than StartedAt
	}
	return began, err
}

func validateOperation(o *Operation) error {
	if len(o.Filter.IDs) > 0 {
		return invalid("filter", "not_for_operations", "of an operation cannot name ids: use Edit")
	}
	if o.Change.Op < store.Cancel || o.Change.Op > store.Reschedule {
		return invalid("change", "invalid_action", "is missing")
	}
	if o.PerSecond < 0 || o.Limit < 0 {
		return invalid("operation", "out_of_range", "has a negative rate or limit")
	}
	return validateChange(o.Change)
}

// Operations lists the operations in progress and the latest 200 of those that are over, newest first.
func (c *Client) Operations(ctx context.Context) ([]Operation, error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: bulk.RecordKind})
	if err != nil {
		return nil, fmt.Errorf("operations: %w", err)
	}
	operations := make([]Operation, len(records))
	for i, r := range records {
		if operations[i], err = bulk.Read(r); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(operations, func(a, b Operation) int { return strings.Compare(b.ID.String(), a.ID.String()) })
	return operations, nil
}

// Operation returns the current state of an operation. The error is ErrNotFound if it does not exist, or no longer
// exists.
func (c *Client) Operation(ctx context.Context, id ID) (Operation, error) {
	o, version, err := bulk.Find(ctx, c.store, id)
	if err == nil && version == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Operation{}, fmt.Errorf("operation %s: %w", id, err)
	}
	return o, nil
}

// CancelOperation stops an operation after its current page. Changes already made stay. The error is ErrNotFound
// if there is no such operation; one that is over stays as it is.
func (c *Client) CancelOperation(ctx context.Context, id ID) error {
	found, err := bulk.Cancel(ctx, c.store, id)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("cancel operation %s: %w", id, err)
	}
	return nil
}

// CarryOperation carries an operation out in this process, or watches another process do it, until it is over.
// tell is called with its progress and may be nil. It returns at the first error of the database, and when ctx
// ends. The operation then remains, and the leader or another call continues it.
//
// Errors: ErrNotFound; the cause of ctx if ctx ended first; errors of the database.
func (c *Client) CarryOperation(ctx context.Context, id ID, tell func(Operation)) (o Operation, err error) {
	carrier := bulk.New(wakingStore{c.store, c}, bulk.Options{ID: NewID(), Patience: operationPatience, Only: id,
		Tell: tell, Log: c.config.Logger})
	defer func() {
		if err != nil {
			c.release(ctx, carrier)
		}
	}()
	for {
		pause, err := carrier.Step(ctx)
		if err != nil {
			return Operation{}, fmt.Errorf("operation %s: %w", id, err)
		}
		if o, err = c.Operation(ctx, id); err != nil || o.Ended() {
			return o, err
		}
		select {
		case <-ctx.Done():
			return o, context.Cause(ctx)
		case <-time.After(min(pause, 200*time.Millisecond)):
		}
	}
}

// CarryOperations carries out all operations that no other process carries out, until ctx ends. It is meant for a
// process that begins operations when there may be no leader.
func (c *Client) CarryOperations(ctx context.Context) {
	carrier := bulk.New(wakingStore{c.store, c}, bulk.Options{ID: NewID(), Patience: operationPatience,
		Log: c.config.Logger})
	defer c.release(ctx, carrier)
	l := loop.New("operate", 4*operationPatience, c.config.Logger, carrier.Keep)
	l.Run(ctx, nil)
}

// release leaves a carrier's operations to others, even if ctx has ended.
func (c *Client) release(ctx context.Context, carrier *bulk.Carrier) {
	parting, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingGap)
	defer cancel()
	if err := carrier.Release(parting); err != nil {
		c.config.Logger.Warn("operate: others go on later", "error", err)
	}
}

// Matching is the number of tasks that match a filter, as counted by Count.
type Matching struct {
	Tasks int64
	More  bool // there are more: counting stopped
}

// Count counts the tasks that match, up to most, for example to learn the size of an operation before it starts.
// The filter's Limit is ignored. Unfinished tasks of whole queues and states are counted exactly, however many
// there are.
func (c *Client) Count(ctx context.Context, f Filter, most int64) (Matching, error) {
	if countable(f) {
		return c.countWhole(ctx, f)
	}
	var m Matching
	for f.Limit = store.MaxPage; ; {
		tasks, err := c.store.List(ctx, f)
		if err != nil {
			return m, fmt.Errorf("count: %w", err)
		}
		m.Tasks += int64(len(tasks))
		if m.Tasks > most {
			return Matching{most, true}, nil
		}
		if len(tasks) < f.Limit {
			return m, nil
		}
		f.Before = tasks[len(tasks)-1].ID
	}
}

// countable reports whether a filter selects only by queues and unfinished states, for which engines keep counts.
func countable(f Filter) bool {
	if len(f.States) == 0 || slices.ContainsFunc(f.States, State.Finished) {
		return false
	}
	return len(f.IDs)+len(f.Kinds)+len(f.Tenants)+len(f.Tags) == 0 && f.Key == "" && f.Fingerprint == "" &&
		f.Workflow.IsZero() && f.Before.IsZero() && f.From.IsZero() && f.Until.IsZero()
}

func (c *Client) countWhole(ctx context.Context, f Filter) (m Matching, err error) {
	counts, err := c.store.Count(ctx)
	if err != nil {
		return m, err
	}
	for _, n := range counts {
		if slices.Contains(f.States, n.State) && (len(f.Queues) == 0 || slices.Contains(f.Queues, n.Queue)) {
			m.Tasks += n.Tasks
		}
	}
	return m, nil
}

// validateChange validates the parameters of a change.
func validateChange(change Change) error {
	if change.Op == store.Move {
		if err := ValidateName("queue", change.Queue); err != nil {
			return err
		}
	}
	return validateRun(change.RunAt, change.Delay)
}
