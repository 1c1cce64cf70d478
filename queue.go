package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

const (
	queueRecord  = tend.QueueKind
	queueRefresh = time.Second // how old the settings may be by which a worker claims
)

// Queue is a queue with its settings and its depth.
type Queue struct {
	Name      string
	Paused    bool
	Aging     Aging
	Retention QueueRetention
	Archive   *bool           // whether its finished tasks are archived; nil: as SetArchiveAll says
	Tasks     map[State]int64 // unfinished ones
	Oldest    time.Duration   // how long the oldest available task has been due
}

type queueSettings struct {
	Paused    bool           `json:"paused,omitempty"`
	Quiet     []ID           `json:"quiet,omitempty"`
	Aging     Aging          `json:"aging,omitzero"`
	Retention QueueRetention `json:"retention,omitzero"`
	Archive   *bool          `json:"archive,omitempty"`
}

// Aging lets the tasks of a queue rise while they wait, so that none waits for ever
// behind more urgent ones.
//
//	type Aging struct {
//		Every time.Duration // how long a task waits for each rise, 1 s at least; 0: tasks do not age
//		To    int16         // the priority that they rise to, by half of the distance each time
//	}
type Aging = tend.Aging

// SetAging has the tasks of a queue rise while they wait, or with a zero Aging no
// longer. It is off by default: it has the process that leads read what waits, once
// for each rise, and a rise costs as much as a change of priority by hand.
//
// The error is an *InvalidError for what was passed in.
func (c *Client) SetAging(ctx context.Context, queue string, a Aging) error {
	if a.Every == 0 {
		a = Aging{}
	} else if err := within("every", a.Every, time.Second, MaxAhead); err != nil {
		return err
	}
	return c.setQueue(ctx, queue, func(s *queueSettings) { s.Aging = a })
}

// QueueRetention says how long the finished tasks of one queue are kept, by outcome. A
// zero field is what holds for all queues: WorkerConfig.Retention of whoever leads.
//
//	type QueueRetention struct {
//		Completed, Cancelled, Discarded time.Duration // 1 s at least, or Forever
//	}
type QueueRetention = tend.QueueRetention

// Forever is a retention without an end: what has finished is never deleted.
const Forever = tend.Forever

// SetRetention has the finished tasks of a queue kept for another time than others, or
// with a zero QueueRetention for the same. It counts whoever leads, and for tasks that
// have ended before as well.
//
// The error is an *InvalidError for what was passed in.
func (c *Client) SetRetention(ctx context.Context, queue string, r QueueRetention) error {
	for _, field := range []struct {
		name string
		keep time.Duration
	}{{"completed", r.Completed}, {"cancelled", r.Cancelled}, {"discarded", r.Discarded}} {
		if field.keep == 0 || field.keep == Forever {
			continue
		}
		if err := within(field.name, field.keep, time.Second, MaxAhead); err != nil {
			return err
		}
	}
	return c.setQueue(ctx, queue, func(s *queueSettings) { s.Retention = r })
}

// PauseQueue keeps workers from claiming tasks of the queue, within about a
// second; running tasks go on. Pausing twice is no error, nor is a queue that has no
// tasks yet.
func (c *Client) PauseQueue(ctx context.Context, name string) error {
	return c.setQueue(ctx, name, func(s *queueSettings) { s.Paused = true })
}

// ResumeQueue ends a pause, within about a second. A queue that is not paused is no
// error.
func (c *Client) ResumeQueue(ctx context.Context, name string) error {
	return c.setQueue(ctx, name, func(s *queueSettings) { s.Paused = false })
}

// Paused reports whether a queue is paused, without counting what is in it.
func (c *Client) Paused(ctx context.Context, name string) (bool, error) {
	r, err := c.record(ctx, queueRecord, name)
	if err != nil || len(r.Body) == 0 {
		return false, err
	}
	var s queueSettings
	if err := json.Unmarshal(r.Body, &s); err != nil {
		return false, fmt.Errorf("queue %s: settings: %w", name, err)
	}
	return s.Paused, nil
}

// Queues lists by name the queues that have or had tasks, settings, limits or a living
// worker. A queue without any of these but tasks that it had stays listed until RemoveQueue;
// the process that leads notes it within seconds.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	queues, _, err := c.QueuesAndWorkers(ctx)
	return queues, err
}

// QueuesAndWorkers is Queues and Workers at once, which costs no more than Queues alone.
func (c *Client) QueuesAndWorkers(ctx context.Context) ([]Queue, []store.Worker, error) {
	queues, workers, err := c.queuesAndWorkers(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("queues: %w", err)
	}
	return queues, workers, nil
}

func (c *Client) queuesAndWorkers(ctx context.Context) ([]Queue, []store.Worker, error) {
	counts, err := c.store.Count(ctx)
	if err != nil {
		return nil, nil, err
	}
	records, err := c.store.Records(ctx, queueRecord)
	if err != nil {
		return nil, nil, err
	}
	limits, err := c.store.Records(ctx, allot.RecordKind)
	if err != nil {
		return nil, nil, err
	}
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return nil, nil, err
	}
	named, err := c.namedQueues(ctx)
	if err != nil {
		return nil, nil, err
	}
	byName, quiet := map[string]*Queue{}, map[ID]bool{}
	find := func(name string) *Queue {
		if byName[name] == nil {
			byName[name] = &Queue{Name: name, Tasks: map[State]int64{}}
		}
		return byName[name]
	}
	for _, n := range counts {
		q := find(n.Queue)
		q.Tasks[n.State] += n.Tasks
		q.Oldest = max(q.Oldest, n.Oldest)
	}
	for _, r := range records {
		var s queueSettings
		if err := json.Unmarshal(r.Body, &s); err != nil {
			return nil, nil, fmt.Errorf("settings of %s: %w", r.Name, err)
		}
		q := find(r.Name)
		q.Paused, q.Aging, q.Retention, q.Archive = s.Paused, s.Aging, s.Retention, s.Archive
		for _, id := range s.Quiet {
			quiet[id] = true
		}
	}
	for _, r := range limits {
		find(r.Name)
	}
	for _, name := range named {
		find(name)
	}
	for i, w := range workers {
		workers[i].Quiet = quiet[w.ID]
		for _, name := range w.Queues {
			find(name)
		}
	}
	queues := make([]Queue, 0, len(byName))
	for _, q := range byName {
		queues = append(queues, *q)
	}
	slices.SortFunc(queues, func(a, b Queue) int { return compareText(a.Name, b.Name) })
	return queues, workers, nil
}

// setQueue changes the settings of a queue. What takes away a setting of a queue without any
// writes nothing, so that a misspelt name makes no queue.
func (c *Client) setQueue(ctx context.Context, name string, change func(*queueSettings)) error {
	if err := ValidateName("queue", name); err != nil {
		return err
	}
	err := c.changeRecord(ctx, queueRecord, name, func(body []byte) ([]byte, error) {
		var s queueSettings
		if len(body) > 0 {
			if err := json.Unmarshal(body, &s); err != nil {
				return nil, err
			}
		}
		change(&s)
		changed, err := json.Marshal(s)
		if len(body) == 0 && string(changed) == "{}" {
			return nil, err
		}
		return changed, err
	})
	if err != nil {
		return fmt.Errorf("queue %s: %w", name, err)
	}
	return nil
}

// changeRecord reads a record, changes it and writes it, again and again until
// nobody came between. A nil body deletes; a record that does not exist has none.
func (c *Client) changeRecord(ctx context.Context, kind, name string, change func(body []byte) ([]byte, error)) error {
	return c.changeAmong(ctx, kind, name, func(body []byte, _ []store.Record) ([]byte, error) { return change(body) })
}

// changeAmong is changeRecord for a change that depends on the other records of the kind, as they
// were read with this one.
func (c *Client) changeAmong(
	ctx context.Context, kind, name string, change func(body []byte, all []store.Record) ([]byte, error),
) error {
	for {
		all, err := c.store.Records(ctx, kind)
		if err != nil {
			return err
		}
		r := recordOf(all, kind, name)
		if r.Body, err = change(r.Body, all); err != nil {
			return err
		}
		if r.Body == nil && r.Version == 0 {
			return nil
		}
		_, _, err = c.store.PutRecord(ctx, store.PutRecord{Record: r})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (c *Client) record(ctx context.Context, kind, name string) (store.Record, error) {
	all, err := c.store.Records(ctx, kind)
	return recordOf(all, kind, name), err
}

// recordOf finds a record; one that does not exist has no version.
func recordOf(all []store.Record, kind, name string) store.Record {
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	return store.Record{Kind: kind, Name: name}
}
