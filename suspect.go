package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// suspects are the tasks that a worker runs and whose last worker died. Before the
// handler of such a task begins, the worker writes down that it does, so that the
// leader can tell, if this worker dies as well, a task that was at work from one
// that was only read ahead. Tasks of which no worker has died pay nothing for it.
type suspects struct {
	client *Client
	worker func() ID

	mu    sync.Mutex
	begun []string // receipts
	count int      // of begins so far

	writing sync.Mutex // held by who writes the record
	written int        // begins that are written
	record  store.Record
}

const suspectPatience = 5 * time.Second

// begin writes down that the handler of a suspect begins. Many at a time share one
// write. If it fails the task runs all the same, and a crash is not held against it.
func (s *suspects) begin(ctx context.Context, t *store.Task) {
	s.mu.Lock()
	s.begun = append(s.begun, receiptOf(t))
	s.count++
	mine := s.count
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.written >= mine {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, suspectPatience)
	defer cancel()
	if err := s.write(ctx); err != nil {
		s.client.config.Logger.Warn("run: a suspect could not be noted", "task", t.ID, "error", err)
	}
}

// write stores the record. One that somebody else changed, the leader by deleting
// it, is written anew; so is one of an identity that the worker no longer has.
func (s *suspects) write(ctx context.Context) error {
	s.mu.Lock()
	body, err := json.Marshal(s.begun)
	count := s.count
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if name := s.worker().String(); s.record.Name != name {
		s.record = store.Record{Kind: tend.SuspectKind, Name: name}
	}
	s.record.Body = body
	version, _, err := s.client.store.PutRecord(ctx, store.PutRecord{Record: s.record})
	if errors.Is(err, ErrConflict) && s.record.Version != 0 {
		s.record.Version = 0
		version, _, err = s.client.store.PutRecord(ctx, store.PutRecord{Record: s.record})
	}
	if err == nil {
		s.record.Version, s.written = version, count
	}
	return err
}

// end drops a suspect that has ended; the next write says so.
func (s *suspects) end(t *store.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := receiptOf(t)
	s.begun = slices.DeleteFunc(s.begun, func(other string) bool { return other == r })
}

// forget deletes the record. If it fails the leader does so, in a while.
func (s *suspects) forget(ctx context.Context) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.record.Version == 0 {
		return
	}
	s.record.Body = nil
	if _, _, err := s.client.store.PutRecord(ctx, store.PutRecord{Record: s.record}); err != nil &&
		!errors.Is(err, ErrConflict) {
		s.client.config.Logger.Warn("run: the note of suspects stays for the leader", "error", err)
	}
}

func receiptOf(t *store.Task) string { return tend.Receipt(t.ID, t.Lease) }
