package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// suspects are the running tasks whose previous worker died. Before the handler of such a task starts, the worker
// records that. If this worker dies as well, the leader can then distinguish a task whose handler was running from
// one that was only read ahead. Other tasks are not affected.
type suspects struct {
	client *Client
	worker func() ID

	mu    sync.Mutex
	begun []string // receipts
	count int      // number of begins so far

	writing gate.Gate // held while the record is written
	written int       // number of begins that are written, or whose write failed
	record  store.Record
}

func newSuspects(c *Client, worker func() ID) suspects {
	return suspects{client: c, worker: worker, writing: gate.New()}
}

const suspectPatience = 5 * time.Second

// begin records that the handler of a suspect starts. Many concurrent calls share one write, and its failure: the
// tasks then run anyway, and a crash is not counted against them.
func (s *suspects) begin(ctx context.Context, t *store.Task) {
	s.mu.Lock()
	s.begun = append(s.begun, receiptOf(t))
	s.count++
	mine := s.count
	s.mu.Unlock()
	if s.writing.Enter(ctx) != nil {
		return
	}
	defer s.writing.Leave()
	if s.written >= mine {
		return
	}
	patience, cancel := context.WithTimeout(ctx, suspectPatience)
	defer cancel()
	if err := s.write(patience); err != nil {
		s.client.config.Logger.Warn("run: suspects could not be noted", "task", t.ID, "error", err)
		if ctx.Err() == nil { // otherwise the write was interrupted, and the next one may succeed
			s.mu.Lock()
			s.written = s.count
			s.mu.Unlock()
		}
	}
}

// write stores the record. It writes it again if it was changed in the meantime, for example deleted by the leader,
// or if it belongs to an identity that the worker no longer has.
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

// end removes a suspect that has ended. The next write stores that.
func (s *suspects) end(t *store.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := receiptOf(t)
	s.begun = slices.DeleteFunc(s.begun, func(other string) bool { return other == r })
}

// forget deletes the record. If that fails, the leader deletes it later.
func (s *suspects) forget(ctx context.Context) {
	if s.writing.Enter(ctx) != nil {
		return
	}
	defer s.writing.Leave()
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
