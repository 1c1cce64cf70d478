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

// Operation is one change to all tasks that match a filter and existed when it
// began. It is stored, with a cursor: it goes on when the process that began it has
// died, its progress can be seen, and it can be called off.
//
//	type Operation struct {
//		ID     ID
//		State  OperationState
//		Change Change
//		Filter Filter
//
//		Owner           string   // identifies who began it; empty: nobody in particular
//		By, Via         string   // that one's name and the way, for people
//		Queues, Tenants []string // that bound it; none: all
//		PerSecond       int      // the most tasks that it tries to change in a second; 0: as many as can be
//		Limit           int64    // the most tasks that it looks at; 0: all
//		Expected        int64    // how many it was thought to look at; 0: not known
//
//		Seen      int64 // tasks looked at so far
//		Changed   int64 // of those
//		Requested int64 // of those: running, and told to stop
//		Refused   int64 // left alone: its state did not allow the change, or it was gone
//		KeyTaken  int64 // left alone: another unfinished task has its key
//
//		Left []Edited // the first that were left alone, at most 20, and why
//
//		StartedAt, FinishedAt time.Time // by the database's clock
//		CancelRequested       bool
//		Error                 string // of the latest page, when that failed; it is tried again
//		Cursor, Holder        ID     // down to where it has looked, and which process carries it on
//	}
//
// Its method Ended reports whether it is over.
type Operation = bulk.Operation

// OperationState is how far an operation has come.
type OperationState = bulk.State

// The states of an operation.
const (
	OperationRunning   = bulk.Running   // it goes on, or waits for a process to go on with it
	OperationDone      = bulk.Done      // all tasks that it means were looked at
	OperationCancelled = bulk.Cancelled // it was called off before that
)

// OperationOptions are what an operation is besides its filter and its change.
type OperationOptions struct {
	// PerSecond is the most tasks that it tries to change in a second. Default: as many as
	// can be.
	PerSecond int
	// Limit is the most tasks that it looks at, the newest. Default: all.
	Limit int64
	// Expected is how many tasks it is thought to look at, as Count said: for those
	// who watch its progress.
	Expected int64
	// Queues and Tenants bound it, whatever the filter says: names, or beginnings
	// that end in *. Default: no bounds.
	Queues, Tenants []string
	// Owner identifies who begins it, where names are not unique.
	Owner   string
	By, Via string // who begins it and how, for people
}

// operationPatience is how long an operation may show no progress before another
// process takes it over.
const operationPatience = 15 * time.Second

// StartOperation begins a change to all tasks that match and exist now; what is
// enqueued after it has returned is not meant. Options may be nil. The process that
// leads carries it on, or any that calls CarryOperation: each task is looked at at
// least once, in pages, the newest first. A task that changes its state meanwhile is
// judged by the one that it has when its page comes.
//
// The error is an *InvalidError for what was passed in.
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
		time.Sleep(2 * time.Millisecond) // the instant at which it began is over, to a clock's exactness
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

// Operations lists the operations that go on, and the latest 200 of those that are
// over, newest first.
func (c *Client) Operations(ctx context.Context) ([]Operation, error) {
	records, err := c.store.Records(ctx, bulk.RecordKind)
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

// Operation returns an operation as it stands. The error is ErrNotFound when there
// is none, or none any more.
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

// CancelOperation has an operation stop after the page that it is at: what it has
// done stays done. The error is ErrNotFound when there is none; one that is over
// stays as it is.
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

// CarryOperation carries an operation on in this process, or watches another do it,
// until it is over; tell, which may be nil, is told of its progress. When ctx ends
// the operation stays, and the process that leads goes on with it.
//
// Errors: ErrNotFound; the cause of ctx when that ended first.
func (c *Client) CarryOperation(ctx context.Context, id ID, tell func(Operation)) (Operation, error) {
	carrier := bulk.New(c.store, bulk.Options{ID: NewID(), Patience: operationPatience, Only: id, Tell: tell,
		Log: c.config.Logger})
	defer c.release(ctx, carrier)
	for {
		pause, err := carrier.Step(ctx)
		if err != nil {
			return Operation{}, fmt.Errorf("operation %s: %w", id, err)
		}
		o, err := c.Operation(ctx, id)
		if err != nil || o.Ended() {
			return o, err
		}
		select {
		case <-ctx.Done():
			return o, context.Cause(ctx)
		case <-time.After(min(pause, 200*time.Millisecond)):
		}
	}
}

// CarryOperations carries on all operations that no other process does, until ctx
// ends: for a process that begins operations where it may be that nobody leads.
func (c *Client) CarryOperations(ctx context.Context) {
	carrier := bulk.New(c.store, bulk.Options{ID: NewID(), Patience: operationPatience, Log: c.config.Logger})
	defer c.release(ctx, carrier)
	l := loop.New("operate", 4*operationPatience, c.config.Logger, carrier.Step)
	l.Run(ctx, nil)
}

// release leaves a carrier's operations to others when ctx has ended.
func (c *Client) release(ctx context.Context, carrier *bulk.Carrier) {
	if ctx.Err() == nil {
		return
	}
	parting, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingGap)
	defer cancel()
	if err := carrier.Release(parting); err != nil {
		c.config.Logger.Warn("operate: others go on later", "error", err)
	}
}

// Matching is how many tasks match a filter.
type Matching struct {
	Tasks int64
	More  bool // there are more: counting stopped
}

// Count counts the tasks that match, up to most: before an operation, to know what
// it will do. The filter's Limit plays no part. Unfinished tasks of whole queues and states are counted exactly,
// however many there are.
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

// countable reports whether a filter asks for nothing but queues and unfinished
// states, of which engines know the sums.
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

// validateChange checks what a change brings with it.
func validateChange(change Change) error {
	if change.Op == store.Move {
		if err := ValidateName("queue", change.Queue); err != nil {
			return err
		}
	}
	return validateRun(change.RunAt, change.Delay)
}
