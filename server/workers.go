package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Worker is a worker as the API shows it.
type Worker struct {
	ID          string    `json:"id"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Queues      []string  `json:"queues"`
	Kinds       []string  `json:"kinds" doc:"kinds that it has handlers for; none: it leases any kind over HTTP"`
	Concurrency int       `json:"concurrency"`
	Running     int       `json:"running"`
	Hung        int       `json:"hung" doc:"handlers that ignore the end of their contexts"`
	Quiet       bool      `json:"quiet" doc:"the worker is quiet: it claims no tasks"`
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"started_at"`
	BeatAt      time.Time `json:"beat_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// WorkerList is a list of workers.
type WorkerList struct {
	Workers []Worker `json:"workers"`
}

// viewWorker leaves out queues beyond the caller's bounds.
func (c *call) viewWorker(w store.Worker) Worker {
	queues := slices.DeleteFunc(append([]string{}, w.Queues...), func(q string) bool { return !c.who.SeesQueue(q) })
	return Worker{w.ID.String(), w.Host, w.PID, queues, append([]string{}, w.Kinds...), w.Concurrency, w.Running,
		w.Hung, w.Quiet, w.Version, utc(w.StartedAt), utc(w.BeatAt), utc(w.ExpiresAt)}
}

func listWorkers(c *call, _ struct{}) (WorkerList, error) {
	list := WorkerList{Workers: []Worker{}}
	workers, err := c.client.Workers(c.r.Context())
	for _, w := range workers {
		if c.seesWorker(w) {
			list.Workers = append(list.Workers, c.viewWorker(w))
		}
	}
	return list, err
}

func (c *call) seesWorker(w store.Worker) bool {
	for _, q := range w.Queues {
		if c.who.SeesQueue(q) {
			return true
		}
	}
	return len(c.who.Queues) == 0
}

type byWorker struct {
	Worker tusk.ID `path:"worker" doc:"its id"`
}

func quietWorker(c *call, in byWorker) (Worker, error) {
	return c.setQuiet(in.Worker, c.client.QuietWorker)
}
func wakeWorker(c *call, in byWorker) (Worker, error) {
	return c.setQuiet(in.Worker, c.client.WakeWorker)
}

// setQuiet requires permission to change all of the worker's queues.
func (c *call) setQuiet(id tusk.ID, set func(ctx context.Context, id tusk.ID) error) (Worker, error) {
	w, err := c.findWorker(id)
	if err != nil {
		return Worker{}, err
	}
	for _, q := range w.Queues {
		if !c.who.SeesAllOf(q) {
			return Worker{}, problem(http.StatusForbidden, "forbidden",
				"your %s may not change all of the queues that this worker takes from", c.who.Via)
		}
	}
	c.target = id.String()
	if err := set(c.r.Context(), id); err != nil {
		return Worker{}, err
	}
	w, err = c.findWorker(id)
	return c.viewWorker(w), err
}

// findWorker finds a live worker that the caller may see.
func (c *call) findWorker(id tusk.ID) (store.Worker, error) {
	all, err := c.client.Workers(c.r.Context())
	for _, w := range all {
		if w.ID == id && c.seesWorker(w) {
			return w, nil
		}
	}
	return store.Worker{},
		cmp.Or(err, error(problem(http.StatusNotFound, "not_found", "worker: no living worker has this id")))
}
