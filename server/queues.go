package server

import (
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/server/trend"
	"github.com/tuskqueue/tusk/server/ui"
	"github.com/tuskqueue/tusk/store"
)

// Queue is a queue as the API shows it.
type Queue struct {
	Name      string           `json:"name"`
	Paused    bool             `json:"paused"`
	Tasks     map[string]int64 `json:"tasks" doc:"unfinished tasks by state"`
	Oldest    float64          `json:"oldest_seconds" doc:"how long the oldest available task has been due"`
	Aging     *Aging           `json:"aging,omitempty" doc:"absent: its tasks do not age"`
	Retention *Retention       `json:"retention,omitempty" doc:"absent: the default retention applies"`
}

// Aging raises the priority of the tasks of a queue while they wait.
type Aging struct {
	Every Duration `json:"every" doc:"wait for each rise, which halves its distance to the priority; at least 1s"`
	To    int16    `json:"to,omitempty" rule:"priority" doc:"the priority to rise to; lower ones do not age; default: 0"`
}

// QueueList is a list of queues.
type QueueList struct {
	Queues []Queue `json:"queues"`
}

func viewQueue(q tusk.Queue) Queue {
	v := Queue{Name: q.Name, Paused: q.Paused, Tasks: map[string]int64{}, Oldest: q.Oldest.Seconds(),
		Retention: viewRetention(q.Retention)}
	if q.Aging.Every > 0 {
		v.Aging = &Aging{Duration(q.Aging.Every), q.Aging.To}
	}
	for state, n := range q.Tasks {
		v.Tasks[state.String()] = n
	}
	return v
}

func listQueues(c *call, _ struct{}) (QueueList, error) {
	list := QueueList{Queues: []Queue{}}
	queues, err := c.client.Queues(c.r.Context())
	for _, q := range queues {
		if c.who.SeesQueue(q.Name) {
			list.Queues = append(list.Queues, viewQueue(q))
		}
	}
	return list, err
}

type byQueue struct {
	Queue string `path:"queue" rule:"name"`
}

func getQueue(c *call, in byQueue) (Queue, error) {
	list, err := listQueues(c, struct{}{})
	if err != nil {
		return Queue{}, err
	}
	for _, q := range list.Queues {
		if q.Name == in.Queue {
			return q, nil
		}
	}
	return Queue{}, problem(http.StatusNotFound, "not_found", "queue: has neither tasks nor settings")
}

// meant says whether a call may name unknown queues.
type meant struct {
	Create string `query:"create" enum:"true,false" default:"false" doc:"true: accept an unknown queue"`
}

// meantQueue is a queue that a call may set up.
type meantQueue struct {
	byQueue
	meant
}

// mayName rejects unknown queues, because a caller with a misspelt name would wait for nothing.
func (c *call) mayName(in meant, queues ...string) error {
	for _, queue := range queues {
		if queue == "" || in.Create == "true" {
			continue
		}
		if err := c.known(queue, "add ?create=true"); err != nil {
			return err
		}
	}
	return nil
}

// maySet rejects an unknown queue: a person who pauses a queue in a hurry and misspells it would think that it was
// paused.
func (c *call) maySet(in meantQueue) error {
	if err := c.mayChangeAll(in.Queue); err != nil {
		return err
	}
	return c.mayName(in.meant, in.Queue)
}

// known rejects an unknown queue, and says what to do if it is intended.
func (c *call) known(queue, all string) error {
	known, err := query.KnowsQueue(c.r.Context(), c.client, queue)
	if err == nil && !known {
		err = problem(http.StatusNotFound, "unknown_queue", "queue %q is unknown: to use it anyway, %s", queue, all)
	}
	return err
}

func pauseQueue(c *call, in meantQueue) (Queue, error) {
	if err := c.maySet(in); err != nil {
		return Queue{}, err
	}
	return c.setPaused(in.Queue, true)
}

func removeQueue(c *call, in byQueue) (nothing, error) {
	if err := c.mayChangeAll(in.Queue); err != nil {
		return nothing{}, err
	}
	return nothing{}, c.client.RemoveQueue(c.r.Context(), in.Queue)
}

func resumeQueue(c *call, in byQueue) (Queue, error) { return c.setPaused(in.Queue, false) }

type ageQueueInput struct {
	meantQueue
	Body Aging
}

func ageQueue(c *call, in ageQueueInput) (Queue, error) {
	if err := c.maySet(in.meantQueue); err != nil {
		return Queue{}, err
	}
	if in.Body.Every == 0 {
		return Queue{}, fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "every",
			"is 0s, want 1s or more: DELETE has the tasks of a queue age no longer")
	}
	return c.setAging(in.Queue, tusk.Aging{Every: time.Duration(in.Body.Every), To: in.Body.To})
}

func stopAging(c *call, in byQueue) (Queue, error) { return c.setAging(in.Queue, tusk.Aging{}) }

func (c *call) setAging(queue string, a tusk.Aging) (Queue, error) {
	if err := c.mayChangeAll(queue); err != nil {
		return Queue{}, err
	}
	if err := c.client.SetAging(c.r.Context(), queue, a); err != nil {
		return Queue{}, err
	}
	return getQueue(c, byQueue{queue})
}

// setPaused pauses or resumes a queue for all tenants. Callers who are limited to some tenants may not do that.
func (c *call) setPaused(name string, paused bool) (Queue, error) {
	if err := c.mayChangeAll(name); err != nil {
		return Queue{}, err
	}
	set := c.client.ResumeQueue
	if paused {
		set = c.client.PauseQueue
	}
	if err := set(c.r.Context(), name); err != nil {
		return Queue{}, err
	}
	return getQueue(c, byQueue{name})
}

type errorsInput struct {
	Queue string    `query:"queue" rule:"value"`
	Kind  string    `query:"kind" rule:"value"`
	Since time.Time `query:"since" doc:"last seen at or after: a time, or how long ago"`
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// ErrorGroup is a set of failed attempts with the same fingerprint.
type ErrorGroup struct {
	Fingerprint string    `json:"fingerprint"`
	Queue       string    `json:"queue"`
	Kind        string    `json:"kind"`
	Count       int64     `json:"count" doc:"failed attempts"`
	Waiting     int64     `json:"waiting" doc:"tasks that wait for a retry"`
	Dead        int64     `json:"dead" doc:"tasks that were discarded"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	Sample      string    `json:"sample"`
	SampleTask  string    `json:"sample_task"`
	Recent      []Failed  `json:"recent" doc:"failed attempts of the last 12 hours, in slices of 10 minutes that had any"`
}

// Failed is how many attempts failed in a slice of time.
type Failed struct {
	At    time.Time `json:"at"`
	Count int64     `json:"count"`
}

// ErrorList is a list of error groups.
type ErrorList struct {
	Errors []ErrorGroup `json:"errors"`
	More   bool         `json:"more" doc:"there are older groups"`
}

func listErrors(c *call, in errorsInput) (ErrorList, error) {
	list := ErrorList{Errors: []ErrorGroup{}}
	groups, more, err := ui.Groups(c.r.Context(), c.client, c.who, store.ErrorFilter{Queue: in.Queue, Kind: in.Kind,
		Since: in.Since, Limit: in.Limit})
	if err != nil {
		return list, err
	}
	list.More = more
	now := time.Now()
	slots, err := c.trend.Of(c.r.Context(), groups, now)
	if err != nil {
		return list, err
	}
	for i, g := range groups {
		list.Errors = append(list.Errors, ErrorGroup{g.Fingerprint, g.Queue, g.Kind, g.Count, g.Waiting, g.Dead,
			utc(g.First), utc(g.Last), g.Sample, g.SampleTask.String(), recent(slots[i], now)})
	}
	return list, nil
}

func recent(slots []int64, now time.Time) []Failed {
	list := []Failed{}
	for i, n := range slots {
		if n > 0 {
			list = append(list, Failed{now.UTC().Truncate(trend.Slot).Add(time.Duration(i+1-len(slots)) * trend.Slot), n})
		}
	}
	return list
}
