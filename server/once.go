package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

	record store.Record
}

// slack is how far the clocks of servers may differ around midnight.
const slack = time.Hour

// enqueueOnce writes the response as a record together with the tasks. A later request with the same key finds the
// record and stores nothing. Records are spread over kinds by day and hash, so that few are read at a time.
func (c *call) enqueueOnce(key string, tasks []tusk.NewTask, body any) ([]EnqueuedTask, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	doc := once{Request: hash(string(text))}
	name := hash(c.who.ID + "\x00" + c.route.Path + "\x00" + key)
	now := time.Now().UTC()
	kinds := []string{onceKind(now.Add(-24*time.Hour), name), onceKind(now, name), onceKind(now.Add(slack), name)}
	for _, kind := range slices.Compact(kinds) {
		if before, err := c.before(kind, name); before != nil || err != nil {
			return c.repeat(before, doc, tasks, err)
		}
	}
	for i := range tasks {
		o := tasks[i].Options
		o.ID = tusk.NewID()
		doc.Provisional = doc.Provisional || o.Key != ""
		doc.Results = append(doc.Results, EnqueuedTask{ID: o.ID.String(), Result: tusk.Added.String()})
	}
	record := store.Record{Kind: onceKind(now, name), Name: name}
	if record.Body, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	if err := c.markDay(c.r.Context(), now); err != nil {
		return nil, err
	}
	enqueued, err := c.client.EnqueueWith(c.r.Context(), record, tasks)
	if errors.Is(err, tusk.ErrConflict) {
		before, err := c.before(record.Kind, name)
		return c.repeat(before, doc, tasks, err)
	}
	if err != nil {
		return nil, err
	}
	answer := results(enqueued)
	if !slices.Equal(answer, doc.Results) {
		c.correct(record, once{Request: doc.Request, Results: answer})
	}
	return answer, nil
}

// correct records which keys were taken.
func (c *call) correct(record store.Record, doc once) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), 5*time.Second)
	defer cancel()
	body, err := json.Marshal(doc)
	if err != nil {
		return
	}
	records, err := c.client.Store().Records(ctx, record.Kind)
	for _, r := range records {
		if r.Name == record.Name {
			r.Body = body
			_, _, err = c.client.Store().PutRecord(ctx, store.PutRecord{Record: r})
		}
	}
	if err != nil {
		c.log.Warn("idempotency key", "request", c.id, "error", err)
	}
}

func (c *call) before(kind, name string) (*once, error) {
	records, err := c.client.Store().Records(c.r.Context(), kind)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Name == name {
			doc := once{record: r}
			return &doc, json.Unmarshal(r.Body, &doc)
		}
	}
	return nil, nil
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
		if o.Key == "" || slices.ContainsFunc(there, func(t tusk.TaskInfo) bool { return t.ID == id }) {
			continue
		}
		holders, err := c.client.List(c.r.Context(), tusk.Filter{Queues: []string{cmp.Or(o.Queue, tusk.DefaultQueue)},
			Tenants: []string{o.Tenant}, Key: o.Key, Until: before.record.UpdatedAt.Add(time.Second), Limit: 1, NoArgs: true})
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
		c.correct(before.record, once{Request: before.Request, Results: results})
	}
	return nil
}

const (
	onceShards = 4096 // per day: the first three digits of a name
	onceDays   = "idempotency-day"
)

func onceKind(day time.Time, name string) string { return onceShard(dayOf(day), name[:3]) }

func onceShard(day, shard string) string { return "idempotency:" + day + ":" + shard }

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// markDay records that a day has records, so that they are found after it is over.
func (s *Server) markDay(ctx context.Context, day time.Time) error {
	name := dayOf(day)
	if marked, _ := s.marked.Load().(string); marked == name {
		return nil
	}
	_, _, err := s.client.Store().PutRecord(ctx,
		store.PutRecord{Record: store.Record{Kind: onceDays, Name: name, Body: []byte("{}")}})
	if err == nil || errors.Is(err, store.ErrConflict) {
		s.marked.Store(name)
		err = nil
	}
	return err
}

// forgetOnce deletes the records of days that are no longer needed.
func (s *Server) forgetOnce(ctx context.Context, now time.Time) error {
	days, err := s.client.Store().Records(ctx, onceDays)
	if err != nil {
		return err
	}
	for _, day := range days {
		if day.Name >= dayOf(now.Add(-24*time.Hour)) {
			continue
		}
		for shard := range onceShards {
			records, err := s.client.Store().Records(ctx, onceShard(day.Name, fmt.Sprintf("%03x", shard)))
			if err != nil {
				return err
			}
			if err := s.drop(ctx, records...); err != nil {
				return err
			}
		}
		if err := s.drop(ctx, day); err != nil {
			return err
		}
	}
	return nil
}

// drop deletes records. Another server may have deleted them already.
func (s *Server) drop(ctx context.Context, records ...store.Record) error {
	for _, r := range records {
		r.Body = nil
		if _, _, err := s.client.Store().PutRecord(ctx, store.PutRecord{Record: r}); err != nil &&
			!errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}

// tidy calls forgetOnce regularly.
func (s *Server) tidy(ctx context.Context) {
	for {
		if err := s.forgetOnce(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("idempotency keys", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Hour):
		}
	}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
