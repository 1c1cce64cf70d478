package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// once is what is stored about a request with an Idempotency-Key.
type once struct {
	Request string         `json:"request"` // hash of its body
	Results []EnqueuedTask `json:"results"`

	// Provisional results say that all tasks were added, although their keys may have prevented that. Only the
	// enqueue can tell, and its answer may have been lost.
	Provisional bool `json:"provisional,omitempty"`

	// At is when the tasks were enqueued, by this server's clock: a key with a window depends on it.
	At time.Time `json:"at,omitzero"`

	// Made is when the record was written first, if it was corrected since, by the database's clock.
	Made time.Time `json:"made,omitzero"`

	record store.Record
}

// made returns when the record was written first.
func (o *once) made() time.Time {
	if o.Made.IsZero() {
		return o.record.UpdatedAt
	}
	return o.Made
}

// onceHeader is the header that makes a request safe to repeat.
const onceHeader = "Idempotency-Key"

// Records of requests are found by their names alone, which are hashes.
const (
	onceKind  = store.ManyRecords + "idempotency"
	onceKept  = 24 * time.Hour
	onceTries = 3             // to write a record that others write or delete
	onceTidy  = 4 * time.Hour // between searches for what is too old
	oncePage  = 100           // records read at a time: their bodies may be large
	oncePause = time.Second / 10
)

// enqueueOnce writes the response as a record together with the tasks. A later request with the same key finds the
// record and stores nothing, unless the record is too old: then it replaces it.
func (c *call) enqueueOnce(key string, tasks []tusk.NewTask, body any) ([]EnqueuedTask, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	doc := once{Request: hash(string(text))}
	record := store.Record{Kind: onceKind, Name: hash(c.who.ID + "\x00" + c.route.Path + "\x00" + key)}
	for i := range tasks {
		o := tasks[i].Options
		o.ID = tusk.NewID()
		doc.Provisional = doc.Provisional || o.Key != "" || o.Unique != nil
		doc.Results = append(doc.Results, EnqueuedTask{ID: o.ID.String(), Result: tusk.Added.String()})
	}
	for try := 1; ; try++ {
		before, err := c.find(c.r.Context(), record.Name)
		if err != nil {
			return nil, err
		}
		record.Version = 0
		if before != nil {
			now, err := c.client.Now(c.r.Context())
			if err != nil || now.Sub(before.made()) < onceKept {
				return c.repeat(before, doc, tasks, err)
			}
			record.Version = before.record.Version
		}
		doc.At = time.Now()
		if record.Body, err = json.Marshal(doc); err != nil {
			return nil, err
		}
		enqueued, err := c.client.EnqueueWith(c.r.Context(), record, tasks)
		if errors.Is(err, tusk.ErrConflict) && try < onceTries {
			continue // another request wrote the record, or it was deleted because it was old
		}
		if err != nil {
			return nil, err
		}
		answer := results(enqueued)
		if !slices.Equal(answer, doc.Results) {
			c.correct(record.Name, once{Request: doc.Request, Results: answer})
		}
		return answer, nil
	}
}

// correct records which keys were taken.
func (c *call) correct(name string, doc once) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), 5*time.Second)
	defer cancel()
	stored, err := c.find(ctx, name)
	if err == nil && stored != nil && stored.Request == doc.Request {
		doc.Made = stored.made()
		if stored.record.Body, err = json.Marshal(doc); err == nil {
			_, _, err = c.client.Store().PutRecord(ctx, store.PutRecord{Record: stored.record})
		}
	}
	if err != nil {
		c.log.Warn("idempotency key", "request", c.id, "error", err)
	}
}

// find returns the record of a request, or nil.
func (c *call) find(ctx context.Context, name string) (*once, error) {
	records, err := c.client.Store().Records(ctx, store.RecordFilter{Kind: onceKind, Names: []string{name}})
	if err != nil || len(records) == 0 {
		return nil, err
	}
	doc := once{record: records[0]}
	return &doc, json.Unmarshal(doc.record.Body, &doc)
}

// repeat returns the earlier response if the request is the same.
func (c *call) repeat(before *once, now once, tasks []tusk.NewTask, err error) ([]EnqueuedTask, error) {
	switch {
	case err != nil:
		return nil, err
	case before == nil:
		return nil, tusk.ErrConflict
	case before.Request != now.Request:
		about := ""
		if len(before.Results) > 0 && !before.Provisional {
			about = ", for task " + before.Results[0].ID
		}
		return nil, problem(http.StatusConflict, "idempotency_conflict", "the key was used with another body%s", about)
	case before.Provisional:
		if err := c.settle(before, tasks); err != nil {
			return nil, err
		}
	}
	c.w.Header().Set("Idempotency-Replayed", "true")
	return before.Results, nil
}

// settle finds out which keys were taken. A task that does not exist is replaced by the task that had its key. If
// that task has been deleted since, the result keeps the new task's id.
func (c *call) settle(before *once, tasks []tusk.NewTask) error {
	ids := make([]tusk.ID, len(before.Results))
	for i, r := range before.Results {
		var err error
		if ids[i], err = tusk.ParseID(r.ID); err != nil {
			return err
		}
	}
	there, err := c.client.List(c.r.Context(), tusk.Filter{IDs: ids, Limit: len(ids), NoArgs: true})
	if err != nil {
		return err
	}
	results := slices.Clone(before.Results)
	for i, id := range ids {
		o := tasks[i].Options
		key, err := c.client.KeyAt(tasks[i], before.At)
		if err != nil {
			return err
		}
		if key == "" || slices.ContainsFunc(there, func(t tusk.TaskInfo) bool { return t.ID == id }) {
			continue
		}
		holders, err := c.client.List(c.r.Context(), tusk.Filter{Queues: []string{cmp.Or(o.Queue, tusk.DefaultQueue)},
			Tenants: []string{o.Tenant}, Key: key, Until: before.record.UpdatedAt.Add(time.Second), Limit: 1, NoArgs: true})
		if err != nil {
			return err
		}
		result := tusk.Skipped
		if o.OnConflict == tusk.Replace || o.OnConflict == tusk.Rerun {
			result = tusk.Replaced
		}
		for _, t := range holders {
			results[i] = EnqueuedTask{ID: t.ID.String(), Result: result.String(), Duplicate: true}
		}
	}
	if !slices.Equal(results, before.Results) {
		before.Results = results
		c.correct(before.record.Name, once{Request: before.Request, Results: results})
	}
	return nil
}

// forgetOnce deletes records that are no longer needed, page by page. It skips those that it cannot delete.
func (s *Server) forgetOnce(ctx context.Context) error {
	now, err := s.client.Now(ctx)
	if err != nil {
		return err
	}
	for page := (store.RecordFilter{Kind: onceKind, Limit: oncePage}); ; rest(ctx, oncePause) {
		records, failed := s.client.Store().Records(ctx, page)
		if failed != nil || len(records) == 0 {
			return errors.Join(err, failed)
		}
		page.After = records[len(records)-1].Name
		for _, r := range records {
			if now.Sub(r.UpdatedAt) < onceKept {
				continue
			}
			r.Body = nil
			_, _, failed := s.client.Store().PutRecord(ctx, store.PutRecord{Record: r})
			if failed != nil && !errors.Is(failed, store.ErrConflict) { // another server may have deleted it
				err = failed
			}
		}
	}
}

// tidy regularly deletes what is no longer needed: records of requests, and old entries of the audit log.
func (s *Server) tidy(ctx context.Context) {
	for {
		if err := s.forgetOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("idempotency keys", "error", err)
		}
		if err := s.book.PruneAudit(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the audit log is not pruned", "error", err)
		}
		if s.pruneUntil(ctx, time.After(onceTidy)); ctx.Err() != nil {
			return
		}
	}
}

// pruneUntil prunes the audit log whenever it has grown, until it is time to tidy everything.
func (s *Server) pruneUntil(ctx context.Context, tidy <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tidy:
			return
		case <-s.book.AuditGrown():
		}
		if err := s.book.PruneAudit(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the audit log is not pruned", "error", err)
		}
	}
}

func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
