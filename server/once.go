package server

import (
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

// once is what is remembered of a request with an Idempotency-Key.
type once struct {
	Request string         `json:"request"` // hash of its body
	Results []EnqueuedTask `json:"results"`
}

// enqueueOnce writes the answer as a record together with the tasks: whoever
// comes second with the key finds the record, and stores nothing. Records are
// spread over kinds by day and by hash, so that few are read at a time.
func (c *call) enqueueOnce(key string, tasks []tusk.NewTask, body any) ([]EnqueuedTask, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	doc := once{Request: hash(string(text))}
	name := hash(c.who.ID + "\x00" + c.route.Path + "\x00" + key)
	now := time.Now().UTC()
	for _, day := range []time.Time{now.Add(-24 * time.Hour), now} {
		if before, err := c.before(onceKind(day, name), name); before != nil || err != nil {
			return c.repeat(before, doc, err)
		}
	}
	for i := range tasks {
		tasks[i].Options.ID = tusk.NewID()
		doc.Results = append(doc.Results, EnqueuedTask{ID: tasks[i].Options.ID.String(), Result: tusk.Added.String()})
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
		return c.repeat(before, doc, err)
	}
	if err != nil {
		return nil, err
	}
	answer := results(enqueued)
	if !slices.Equal(answer, doc.Results) {
		c.correct(record, once{doc.Request, answer})
	}
	return answer, nil
}

// correct notes that keys were taken, which only the enqueue could tell.
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
			var doc once
			return &doc, json.Unmarshal(r.Body, &doc)
		}
	}
	return nil, nil
}

func (c *call) repeat(before *once, now once, err error) ([]EnqueuedTask, error) {
	switch {
	case err != nil:
		return nil, err
	case before == nil:
		return nil, tusk.ErrConflict
	case before.Request != now.Request:
		id := ""
		if len(before.Results) > 0 {
			id = before.Results[0].ID
		}
		return nil, problem(http.StatusConflict, "idempotency_conflict", "the key was used with another body, for task %s",
			id)
	}
	c.w.Header().Set("Idempotency-Replayed", "true")
	return before.Results, nil
}

const (
	onceShards = 4096 // of a day: the first three digits of a name
	onceDays   = "idempotency-day"
)

func onceKind(day time.Time, name string) string { return onceShard(dayOf(day), name[:3]) }

func onceShard(day, shard string) string { return "idempotency:" + day + ":" + shard }

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// markDay notes that there are records of a day, so that they are found when it
// is over.
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

// forgetOnce deletes the records of days that nobody asks for any more.
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

// drop deletes records; another server may have been faster.
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

// tidy forgets now and then.
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
