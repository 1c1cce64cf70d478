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

// MaxBatch is the most tasks or leases of one request.
const MaxBatch = 1000

type enqueueInput struct {
	Key  string `header:"Idempotency-Key" doc:"a repeated request with the same key stores nothing and gets the first one's answer, for 24 hours at least"`
	Body TaskInput
}

type enqueueManyInput struct {
	Key  string `header:"Idempotency-Key" doc:"as for one task"`
	Body TaskBatch
}

// TaskBatch is many tasks to enqueue.
type TaskBatch struct {
	Tasks []TaskInput `json:"tasks" required:"true"`
}

// EnqueuedTask says what became of a task that somebody enqueued.
type EnqueuedTask struct {
	ID        string `json:"id" doc:"of the task that now stands for it"`
	Result    string `json:"result" enum:"added,skipped,replaced,awaiting,stale"`
	Duplicate bool   `json:"duplicate,omitempty" doc:"an unfinished task had its key"`
}

// EnqueuedBatch says so of each, in the same order.
type EnqueuedBatch struct {
	Results []EnqueuedTask `json:"results"`
}

func enqueueOne(c *call, in enqueueInput) (EnqueuedTask, error) {
	results, err := c.enqueue(in.Key, []TaskInput{in.Body}, in.Body)
	var batch *tusk.BatchError
	if errors.As(err, &batch) {
		err = batch.Items[0]
	}
	if err != nil {
		return EnqueuedTask{}, err
	}
	if results[0].Duplicate {
		c.status = http.StatusOK
	}
	return results[0], nil
}

func enqueueMany(c *call, in enqueueManyInput) (EnqueuedBatch, error) {
	switch n := len(in.Body.Tasks); {
	case n == 0:
		return EnqueuedBatch{}, fieldProblem(http.StatusBadRequest, "missing_field", "tasks", "has no tasks")
	case n > MaxBatch:
		return EnqueuedBatch{}, fieldProblem(http.StatusRequestEntityTooLarge, "batch_too_large", "tasks", "has %d tasks, at most %d are allowed", n, MaxBatch)
	}
	results, err := c.enqueue(in.Key, in.Body.Tasks, in.Body)
	return EnqueuedBatch{Results: results}, err
}

func (c *call) enqueue(key string, inputs []TaskInput, body any) ([]EnqueuedTask, error) {
	tasks := make([]tusk.NewTask, len(inputs))
	bad := &tusk.BatchError{Items: map[int]error{}}
	for i, in := range inputs {
		if err := allowed(c.who, in.Queue, in.Tenant); err != nil {
			return nil, err
		}
		var err error
		if tasks[i], err = in.task(); err != nil {
			bad.Items[i] = err
		}
	}
	if len(bad.Items) > 0 {
		return nil, bad
	}
	if key != "" {
		return c.enqueueOnce(key, tasks, body)
	}
	enqueued, err := c.client.EnqueueMany(c.r.Context(), tasks)
	return results(enqueued), err
}

func results(enqueued []tusk.Enqueued) []EnqueuedTask {
	all := make([]EnqueuedTask, len(enqueued))
	for i, e := range enqueued {
		all[i] = EnqueuedTask{ID: e.ID.String(), Result: e.Result.String(), Duplicate: e.Result != tusk.Added}
	}
	return all
}

// once is what is remembered of a request with an Idempotency-Key.
type once struct {
	Request string         `json:"request"` // hash of its body
	Results []EnqueuedTask `json:"results"`
}

// enqueueOnce writes the answer as a record together with the tasks: whoever
// comes second with the key finds the record, and stores nothing. Records are
// spread over kinds by day and by hash, so that few are read at a time.
func (c *call) enqueueOnce(key string, tasks []tusk.NewTask, body any) ([]EnqueuedTask, error) {
	if len(key) > 255 {
		return nil, fieldProblem(http.StatusBadRequest, "invalid_header", "Idempotency-Key", "has more than 255 bytes")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	doc := once{Request: hash(string(text))}
	name := hash(c.who.Name + "\x00" + c.route.Path + "\x00" + key)
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
		return nil, problem(http.StatusConflict, "idempotency_conflict", "the key was used with another body, for task %s", id)
	}
	c.w.Header().Set("Idempotency-Replayed", "true")
	return before.Results, nil
}

func onceKind(day time.Time, name string) string {
	return "idempotency:" + day.UTC().Format(time.DateOnly) + ":" + name[:3]
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func sortItems(items []ProblemItem) {
	slices.SortFunc(items, func(a, b ProblemItem) int { return cmp.Compare(a.Index, b.Index) })
}
