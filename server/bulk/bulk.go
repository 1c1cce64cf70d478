// Package bulk changes all tasks that match a filter, page by page in the
// background, as an operation that is a record: its progress can be seen, it can
// be called off, and another process goes on with it when this one dies.
//
// It may touch a tusk.Client and the records of its store. Operations come in
// from package server and package ui; edits go out through the client.
package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

const (
	recordKind = "bulk"
	pageSize   = 500
	lease      = 15 * time.Second // of the process that runs an operation
	keep       = 200              // operations that are kept, the newest
)

// State is how far an operation has come.
type State string

// The states.
const (
	Running   State = "running"
	Done      State = "done"
	Cancelled State = "cancelled"
	Failed    State = "failed"
)

// Operation is one change to all tasks that match a filter and existed when it
// began.
type Operation struct {
	ID         string          `json:"id"`
	State      State           `json:"state"`
	Action     string          `json:"action"`
	Change     tusk.Change     `json:"change"`
	Filter     tusk.Filter     `json:"filter"`
	Who        access.Identity `json:"who"`
	Seen       int64           `json:"seen"`
	Changed    int64           `json:"changed"`
	Requested  int64           `json:"requested"`
	Refused    int64           `json:"refused"`
	StartedAt  time.Time       `json:"started_at"`
	FinishedAt time.Time       `json:"finished_at,omitzero"`
	Error      string          `json:"error,omitempty"`
	Cursor     tusk.ID         `json:"cursor"` // tasks from here on are done

	CancelRequested bool      `json:"cancel_requested,omitempty"`
	HeldUntil       time.Time `json:"held_until,omitzero"` // by the process that runs it
}

// ErrNotFound says that there is no such operation.
var ErrNotFound = errors.New("no such operation")

// Runner runs operations. Make it with New; Run picks up those that others left.
type Runner struct {
	client *tusk.Client
	log    *slog.Logger
	work   sync.WaitGroup
	ctx    context.Context
	stop   context.CancelFunc
}

// New makes a runner.
func New(client *tusk.Client, log *slog.Logger) *Runner {
	ctx, stop := context.WithCancel(context.Background())
	return &Runner{client: client, log: log, ctx: ctx, stop: stop}
}

// Start begins an operation in the name of an identity, whose bounds it keeps.
func (r *Runner) Start(ctx context.Context, who access.Identity, f tusk.Filter, c tusk.Change) (Operation, error) {
	now := time.Now().UTC()
	f.IDs, f.Detail, f.Limit = nil, false, pageSize
	o := Operation{ID: tusk.NewID().String(), State: Running, Action: c.Op.String(), Change: c, Filter: f, Who: who,
		StartedAt: now.Truncate(time.Millisecond), HeldUntil: now.Add(lease)}
	// Ids are minted in order of time: later tasks are not meant.
	o.Cursor = tusk.NewID()
	version, err := r.put(ctx, o, 0)
	if err != nil {
		return o, fmt.Errorf("bulk: %w", err)
	}
	r.carry(o, version)
	return o, nil
}

// Cancel asks an operation to stop after the page it is at.
func (r *Runner) Cancel(ctx context.Context, id string) error {
	for {
		o, version, err := r.find(ctx, id)
		if err != nil {
			return err
		}
		if o.State != Running {
			return nil
		}
		o.CancelRequested = true
		if _, err = r.put(ctx, o, version); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// Get returns one operation.
func (r *Runner) Get(ctx context.Context, id string) (Operation, error) {
	o, _, err := r.find(ctx, id)
	return o, err
}

// List returns the operations, newest first.
func (r *Runner) List(ctx context.Context) ([]Operation, error) {
	records, err := r.client.Store().Records(ctx, recordKind)
	if err != nil {
		return nil, fmt.Errorf("bulk: %w", err)
	}
	operations := make([]Operation, len(records))
	for i, rec := range records {
		if err := json.Unmarshal(rec.Body, &operations[i]); err != nil {
			return nil, fmt.Errorf("bulk %s: %w", rec.Name, err)
		}
	}
	slices.SortFunc(operations, func(a, b Operation) int { return strings.Compare(b.ID, a.ID) })
	return operations, nil
}

// Run goes on with operations that nobody runs, until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	defer r.Close()
	for {
		if err := r.adopt(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("bulk", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lease / 3):
		}
	}
}

// Close stops after the pages under way; another process may go on.
func (r *Runner) Close() {
	r.stop()
	r.work.Wait()
}

func (r *Runner) adopt(ctx context.Context) error {
	records, err := r.client.Store().Records(ctx, recordKind)
	if err != nil {
		return err
	}
	slices.SortFunc(records, func(a, b store.Record) int { return strings.Compare(b.Name, a.Name) })
	for i, rec := range records {
		var o Operation
		if err := json.Unmarshal(rec.Body, &o); err != nil {
			return fmt.Errorf("%s: %w", rec.Name, err)
		}
		switch {
		case o.State == Running && time.Now().After(o.HeldUntil):
			o.HeldUntil = time.Now().Add(lease).UTC()
			if version, err := r.put(ctx, o, rec.Version); err == nil {
				r.log.Info("bulk: going on", "operation", o.ID)
				r.carry(o, version)
			}
		case o.State != Running && i >= keep:
			rec.Body = nil
			_, _, _ = r.client.Store().PutRecord(ctx, store.PutRecord{Record: rec})
		}
	}
	return nil
}

func (r *Runner) carry(o Operation, version int64) {
	if r.ctx.Err() != nil {
		return
	}
	r.work.Go(func() {
		if err := r.pages(&o, version); err != nil && r.ctx.Err() == nil {
			r.log.Error("bulk", "operation", o.ID, "error", err)
		}
	})
}

// pages does one page after the other and writes down each. An error leaves the
// operation to be picked up again.
func (r *Runner) pages(o *Operation, version int64) error {
	for r.ctx.Err() == nil {
		more, err := r.page(o)
		if errors.Is(err, tusk.ErrInvalid) {
			o.State, o.Error = Failed, err.Error()
		} else if err != nil {
			return err
		} else if !more {
			o.State = Done
		}
		if version, err = r.save(o, version); err != nil || o.State != Running {
			return err
		}
	}
	return nil
}

func (r *Runner) page(o *Operation) (more bool, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, lease*2/3)
	defer cancel()
	f := o.Filter
	f.Before, f.Limit = o.Cursor, pageSize
	tasks, err := r.client.List(ctx, f)
	if err != nil || len(tasks) == 0 {
		return false, err
	}
	var ids []tusk.ID
	for _, t := range tasks {
		if o.Who.Sees(t.Queue, t.Tenant) {
			ids = append(ids, t.ID)
		}
	}
	edited, err := r.client.Edit(ctx, ids, o.Change)
	if err != nil {
		return false, err
	}
	for _, e := range edited {
		switch e.Result {
		case store.Changed:
			o.Changed++
		case store.Requested:
			o.Requested++
		default:
			o.Refused++
		}
	}
	o.Seen += int64(len(ids))
	o.Cursor = tasks[len(tasks)-1].ID
	return len(tasks) == pageSize, nil
}

// save writes the progress. If somebody changed the record meanwhile it can only
// have been to call the operation off, or to take it over.
func (r *Runner) save(o *Operation, version int64) (int64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lease/3)
	defer cancel()
	for {
		if o.CancelRequested && o.State == Running {
			o.State = Cancelled
		}
		if o.HeldUntil = time.Now().Add(lease).UTC(); o.State != Running {
			o.FinishedAt, o.HeldUntil = time.Now().UTC().Truncate(time.Millisecond), time.Time{}
		}
		next, err := r.put(ctx, *o, version)
		if !errors.Is(err, store.ErrConflict) {
			return next, err
		}
		stored, found, err := r.find(ctx, o.ID)
		if err != nil {
			return 0, err
		}
		if !stored.CancelRequested || o.CancelRequested {
			return 0, errors.New("taken over by another process")
		}
		o.CancelRequested, version = true, found
	}
}

func (r *Runner) put(ctx context.Context, o Operation, version int64) (int64, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	version, _, err = r.client.Store().PutRecord(ctx, store.PutRecord{
		Record: store.Record{Kind: recordKind, Name: o.ID, Version: version, Body: body}})
	return version, err
}

func (r *Runner) find(ctx context.Context, id string) (o Operation, version int64, err error) {
	records, err := r.client.Store().Records(ctx, recordKind)
	if err != nil {
		return o, 0, fmt.Errorf("bulk: %w", err)
	}
	for _, rec := range records {
		if rec.Name == id {
			return o, rec.Version, errors.Join(json.Unmarshal(rec.Body, &o))
		}
	}
	return o, 0, ErrNotFound
}
