// Package rerun runs tasks of an archive again, as new tasks: one, or all that match. Each run over
// all that match is a record with a cursor, which is written together with the tasks of a page:
// whatever dies, any process goes on with it, and no task is enqueued twice.
//
// It may touch a tusk.Client and an archive. Queries come in from commands and from package server;
// tasks go out to the client.
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

// State is how far a rerun has come.
type State string

// The states of a rerun.
const (
	Running   State = archive.RerunRunning // it goes on, or waits for a process to go on with it
	Done      State = "done"
	Cancelled State = "cancelled"
	Failed    State = "failed" // it cannot go on; Error says why
)

// Rerun runs all tasks of an archive again that match a query.
type Rerun struct {
	ID    tusk.ID       `json:"id"`
	State State         `json:"state"`
	Query archive.Query `json:"query"`

	// Owner identifies who began it; By is that one's name and Via the way, for people.
	Owner string `json:"owner,omitempty"`
	By    string `json:"by,omitempty"`
	Via   string `json:"via,omitempty"`
	// Queues and Tenants bound it, whatever the query says: names, or beginnings that end in *;
	// none: all.
	Queues  []string `json:"queues,omitempty"`
	Tenants []string `json:"tenants,omitempty"`

	Expected int64  `json:"expected,omitempty"` // how many tasks were counted before; 0: not known
	Enqueued int64  `json:"enqueued"`           // new tasks
	KeyTaken int64  `json:"key_taken"`          // left alone: an unfinished task has the key
	Refused  int64  `json:"refused"`            // left alone: encrypted with a key that is missing, or no longer valid
	Files    int    `json:"files"`              // looked through, so far
	Of       int    `json:"of"`
	Left     []Left `json:"left,omitempty"` // the first that were left alone, at most 20

	StartedAt  time.Time `json:"started_at,omitzero"`  // by the database's clock
	FinishedAt time.Time `json:"finished_at,omitzero"` // the same

	CancelRequested bool   `json:"cancel_requested,omitempty"`
	Error           string `json:"error,omitempty"`
	Cursor          string `json:"cursor,omitempty"`
}

// Left is a task that was not run again.
type Left = archive.Left

// Ended reports whether the rerun is over.
func (r *Rerun) Ended() bool { return r.State != Running }

const (
	mostLeft = 20
	keep     = 200 // that are over
)

func (r *Rerun) leave(id tusk.ID, why string) {
	if len(r.Left) < mostLeft {
		r.Left = append(r.Left, Left{ID: id, Why: why})
	}
}

// bounded is the rerun's query within its bounds.
func (r *Rerun) bounded() archive.Query {
	q := r.Query
	q.Sees = func(queue, tenant string) bool { return bulk.Within(r.Queues, queue) && bulk.Within(r.Tenants, tenant) }
	return q
}

// Start begins a rerun; its ID, State and counts are set here. It is carried on by Carry, or by a
// server.
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

// List returns the reruns that go on, and the latest that are over, newest first.
func List(ctx context.Context, s store.Recorder) ([]Rerun, error) {
	stored, err := all(ctx, s)
	reruns := make([]Rerun, len(stored))
	for i := range stored {
		reruns[i] = stored[i].Rerun
	}
	return reruns, err
}

// Get returns a rerun. The error is tusk.ErrNotFound.
func Get(ctx context.Context, s store.Recorder, id tusk.ID) (Rerun, error) {
	r, err := find(ctx, s, id)
	return r.Rerun, err
}

// Cancel has a rerun stop after the page that it is at. What it has enqueued stays.
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

// stored is a rerun and the version of its record.
type stored struct {
	Rerun
	version int64
}

func all(ctx context.Context, s store.Recorder) ([]stored, error) {
	records, err := s.Records(ctx, archive.RerunKind)
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
	reruns, err := all(ctx, s)
	if i := slices.IndexFunc(reruns, func(r stored) bool { return r.ID == id }); i >= 0 {
		return reruns[i], err
	}
	if err == nil {
		err = fmt.Errorf("rerun %s: %w", id, tusk.ErrNotFound)
	}
	return stored{}, err
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
