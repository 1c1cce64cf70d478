// Package rerun runs tasks of an archive again, as new tasks: one, or all that match a query. A
// rerun of all that match is a record with a cursor, which is written together with the tasks of a
// page. So if a process dies, any other can continue, and no task is enqueued twice.
//
// It may use a tusk.Client and an archive. Packages cli and server use it.
package rerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/store"
)

// State is the state of a rerun.
type State string

// The states of a rerun.
const (
	Running   State = archive.RerunRunning // in progress, or waiting for a process to continue it
	Done      State = "done"
	Cancelled State = "cancelled"
	Failed    State = "failed" // it cannot continue; Error says why
)

// Rerun runs all tasks of an archive that match a query again.
type Rerun struct {
	ID    tusk.ID       `json:"id"`
	State State         `json:"state"`
	Query archive.Query `json:"query"`

	// Owner identifies who began it. By is that person's or token's name and Via the way used,
	// both for people to read.
	Owner string `json:"owner,omitempty"`
	By    string `json:"by,omitempty"`
	Via   string `json:"via,omitempty"`
	// Queues and Tenants restrict the rerun, whatever the query says. Each entry is a name, or a
	// prefix that ends in *. Empty means all.
	Queues  []string `json:"queues,omitempty"`
	Tenants []string `json:"tenants,omitempty"`

	Expected int64  `json:"expected,omitempty"` // how many tasks were counted before; 0 if unknown
	Enqueued int64  `json:"enqueued"`           // new tasks
	KeyTaken int64  `json:"key_taken"`          // skipped: an unfinished task has the key
	Refused  int64  `json:"refused"`            // skipped: its encryption key is missing, or it is no longer valid
	Files    int    `json:"files"`              // files searched so far
	Of       int    `json:"of"`
	Left     []Left `json:"left,omitempty"` // the first skipped tasks, at most 20

	StartedAt  time.Time `json:"started_at,omitzero"`  // by the database's clock
	FinishedAt time.Time `json:"finished_at,omitzero"` // likewise

	CancelRequested bool   `json:"cancel_requested,omitempty"`
	Error           string `json:"error,omitempty"`
	Cursor          string `json:"cursor,omitempty"`
}

// Left is a task that was not run again.
type Left = archive.Left

// Ended reports whether the rerun has ended.
func (r *Rerun) Ended() bool { return r.State != Running }

const (
	mostLeft = 20
	keep     = 200 // of ended reruns
)

func (r *Rerun) leave(id tusk.ID, why string) {
	if len(r.Left) < mostLeft {
		r.Left = append(r.Left, Left{ID: id, Why: why})
	}
}

// bounded returns the rerun's query, restricted to its queues and tenants.
func (r *Rerun) bounded() archive.Query {
	q := r.Query
	q.Sees = func(queue, tenant string) bool { return bulk.Within(r.Queues, queue) && bulk.Within(r.Tenants, tenant) }
	return q
}

// Start stores a new rerun and sets its ID, State and counts. Carry or a server carries it out.
func Start(ctx context.Context, s store.Recorder, r Rerun) (Rerun, error) {
	r.ID, r.State, r.Cursor, r.CancelRequested = tusk.NewID(), Running, "", false
	body, err := json.Marshal(r)
	if err == nil {
		_, _, err = s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: archive.RerunKind, Name: r.ID.String(),
			Body: body}})
	}
	if err != nil {
		return r, fmt.Errorf("start rerun: %w", err)
	}
	return Get(ctx, s, r.ID)
}

// List returns the reruns in progress and the latest ended ones, newest first.
func List(ctx context.Context, s store.Recorder) ([]Rerun, error) {
	stored, err := all(ctx, s)
	reruns := make([]Rerun, len(stored))
	for i := range stored {
		reruns[i] = stored[i].Rerun
	}
	return reruns, err
}

// Get returns a rerun. The error is tusk.ErrNotFound if it does not exist.
func Get(ctx context.Context, s store.Recorder, id tusk.ID) (Rerun, error) {
	r, err := find(ctx, s, id)
	return r.Rerun, err
}

// Cancel makes a rerun stop after its current page. The tasks that it has enqueued stay.
func Cancel(ctx context.Context, s store.Recorder, id tusk.ID) error {
	for {
		r, err := find(ctx, s, id)
		if err != nil || r.Ended() {
			return err
		}
		r.CancelRequested = true
		if err := r.put(ctx, s); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// stored is a rerun with the version of its record.
type stored struct {
	Rerun
	version int64
}

// all returns the reruns with some names, or all if there are no names, the newest first.
func all(ctx context.Context, s store.Recorder, names ...string) ([]stored, error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: archive.RerunKind, Names: names})
	if err != nil {
		return nil, fmt.Errorf("reruns: %w", err)
	}
	reruns := make([]stored, len(records))
	for i, record := range records {
		r := &reruns[i]
		if err := json.Unmarshal(record.Body, &r.Rerun); err != nil {
			return nil, fmt.Errorf("rerun %s is damaged: %w", record.Name, err)
		}
		if r.version = record.Version; r.StartedAt.IsZero() {
			r.StartedAt = record.UpdatedAt
		}
		if r.Ended() && r.FinishedAt.IsZero() {
			r.FinishedAt = record.UpdatedAt
		}
	}
	slices.SortFunc(reruns, func(a, b stored) int { return strings.Compare(b.ID.String(), a.ID.String()) })
	return reruns, nil
}

func find(ctx context.Context, s store.Recorder, id tusk.ID) (stored, error) {
	reruns, err := all(ctx, s, id.String())
	if err != nil {
		return stored{}, err
	}
	if len(reruns) == 0 {
		return stored{}, fmt.Errorf("rerun %s: %w", id, tusk.ErrNotFound)
	}
	return reruns[0], nil
}

func (r *stored) record() (store.Record, error) {
	body, err := json.Marshal(r.Rerun)
	return store.Record{Kind: archive.RerunKind, Name: r.ID.String(), Version: r.version, Body: body}, err
}

func (r *stored) put(ctx context.Context, s store.Recorder) error {
	record, err := r.record()
	if err == nil {
		r.version, _, err = s.PutRecord(ctx, store.PutRecord{Record: record})
	}
	return err
}
