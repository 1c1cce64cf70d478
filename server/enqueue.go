package server

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"github.com/tuskqueue/tusk"
)

// MaxBatch is the largest number of tasks or leases in one request.
const MaxBatch = 1000

type enqueueInput struct {
	Key  string `header:"Idempotency-Key" minLength:"1" maxLength:"255" doc:"a repetition within 24h gets the first response"`
	Body TaskInput
}

type enqueueManyInput struct {
	Key  string `header:"Idempotency-Key" minLength:"1" maxLength:"255" doc:"as for one task"`
	Body TaskBatch
}

// TaskBatch is many tasks to enqueue.
type TaskBatch struct {
	Tasks []TaskInput `json:"tasks" minItems:"1" maxItems:"1000"`
}

// EnqueuedTask says what became of an enqueued task.
type EnqueuedTask struct {
	ID        string `json:"id" doc:"of the new task, or of the one that has the key; zeros: stale, and none has the key"`
	Result    string `json:"result" enum:"added,skipped,replaced,awaiting,stale"`
	Duplicate bool   `json:"duplicate,omitempty" doc:"an unfinished task had its key"`
}

// EnqueuedBatch says what became of each task, in the same order.
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

func sortItems(items []ProblemItem) {
	slices.SortFunc(items, func(a, b ProblemItem) int { return cmp.Compare(a.Index, b.Index) })
}
