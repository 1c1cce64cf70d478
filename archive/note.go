package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Note is the batch in progress, as recorded in the database. It names every file before that file
// is written, so that a process that takes over knows what to remove.
type Note struct {
	Holder store.ID `json:"holder"` // the process that works on it
	Batch  store.ID `json:"batch"`
	// Written says that all files and the manifest are in place: the tasks belong to the archive.
	Written bool `json:"written,omitempty"`
	// Change says that existing files are being changed.
	Change bool `json:"change,omitempty"`
	// Committed says that the last manifest is in place. What is left is to delete the Paths that
	// no manifest lists.
	Committed bool     `json:"committed,omitempty"`
	Paths     []string `json:"paths,omitempty"`
	// Drafts are manifests that may have been written or may still be. None of them may count: the
	// next manifest replaces them.
	Drafts []store.ID `json:"drafts,omitempty"`
	// Restore is the request for which tasks have been put back into the database. Restored has
	// their ids, 16 bytes each. These tasks belong to the database, and must be removed from the
	// files.
	Restore  store.ID `json:"restore,omitzero"`
	Restored []byte   `json:"restored,omitempty"`

	kept error // why the first of the files that cannot be rewritten stays as it is
}

// read returns the note, and remembers when it first saw this version.
func (r *Runner) read(ctx context.Context) (*Note, error) {
	r.noting.Lock()
	defer r.noting.Unlock()
	record, err := find(ctx, r.o.Store, recordKind, noteName)
	if err != nil {
		return nil, err
	}
	if record.Version != r.version || r.since.IsZero() {
		r.version, r.since, r.body = record.Version, time.Now(), nil
	}
	if record.Version == 0 {
		return nil, nil
	}
	note := new(Note)
	if err := json.Unmarshal(record.Body, note); err != nil {
		return nil, fmt.Errorf("the note of a batch is damaged: %w", err)
	}
	return note, nil
}

// write writes the note, if no other process has changed it since.
func (r *Runner) write(ctx context.Context, note *Note) error {
	body, err := json.Marshal(note)
	if err != nil {
		return err
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	return r.putNote(ctx, body)
}

// clear deletes the note.
func (r *Runner) clear(ctx context.Context) error {
	r.noting.Lock()
	defer r.noting.Unlock()
	return r.putNote(ctx, nil)
}

// putNote writes the note, or deletes it if body is nil.
func (r *Runner) putNote(ctx context.Context, body []byte) error {
	version, _, err := r.o.Store.PutRecord(ctx, store.PutRecord{
		Record: store.Record{Kind: recordKind, Name: noteName, Version: r.version, Body: body}})
	if err != nil {
		return fmt.Errorf("note the batch: %w", err)
	}
	if body == nil {
		version = 0
	}
	r.version, r.since, r.body = version, time.Now(), body
	return nil
}

// holding calls do, which may take long. Meanwhile it rewrites the note every quarter of Patience,
// so that no other process takes over. If one has taken over, do's context ends, and the error is
// store.ErrConflict.
func (r *Runner) holding(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(max(r.o.Patience/4, 100*time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := r.beat(ctx); errors.Is(err, store.ErrConflict) {
				cancel(err)
			}
		}
	})
	err := do(ctx)
	if lost := context.Cause(ctx); err != nil && errors.Is(lost, store.ErrConflict) {
		err = lost
	}
	cancel(nil)
	beating.Wait()
	return err
}

// beat rewrites this process's note.
func (r *Runner) beat(ctx context.Context) error {
	r.noting.Lock()
	defer r.noting.Unlock()
	if r.body == nil {
		return nil
	}
	return r.putNote(ctx, r.body)
}
