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
	queueRefresh = time.Second // maximum age of the settings that a worker claims by
	// How much longer the settings may be used after a hint. Otherwise hints would wait for the read in progress.
	queueGrace = queueRefresh / 8
)

// Queue is a queue with its settings and its depth.
type Queue struct {
	Name      string
	Paused    bool
	Aging     Aging
	Retention QueueRetention
	Archive   *bool           // whether its finished tasks are archived; nil means the setting of SetArchiveAll
	Tasks     map[State]int64 // unfinished tasks by state
	Oldest    time.Duration   // how long the oldest available task has been due
}

type queueSettings struct {
	Paused    bool           `json:"paused,omitempty"`
	Quiet     []ID           `json:"quiet,omitempty"`
	Aging     Aging          `json:"aging,omitzero"`
	Retention QueueRetention `json:"retention,omitzero"`
	Archive   *bool          `json:"archive,omitempty"`
}

// Aging raises the priority of tasks while they wait, so that no task waits forever behind more urgent ones.
//
//	type Aging struct {
//		Every time.Duration // waiting time per step, at least 1 s; 0 turns aging off
//		To    int16         // target priority; each step covers half of the remaining distance
//	}
type Aging = tend.Aging

// SetAging sets how the tasks of a queue rise in priority while they wait. A zero Aging turns aging off, which is the
// default. With aging, the leader reads the waiting tasks once per step, and each rise costs as much as a
// Reprioritize.
//
// The error is an *InvalidError if the input is invalid.
func (c *Client) SetAging(ctx context.Context, queue string, a Aging) error {
	if a.Every == 0 {
		a = Aging{}
	} else if err := within("every", a.Every, time.Second, MaxAhead); err != nil {
		return err
	}
	return c.setQueue(ctx, queue, func(s *queueSettings) { s.Aging = a })
}

// QueueRetention is how long the finished tasks of one queue are kept, by outcome. A zero field means the value
// for all queues: WorkerConfig.Retention of the leader.
//
//	type QueueRetention struct {
//		Completed, Cancelled, Discarded time.Duration // at least 1 s, or Forever
//	}
type QueueRetention = tend.QueueRetention

// Forever is a retention without end: finished tasks are never deleted.
const Forever = tend.Forever

// SetRetention sets how long the finished tasks of a queue are kept. A zero QueueRetention restores the value for
// all queues. The setting applies whichever process is the leader, and also to tasks that have already finished.
//
// The error is an *InvalidError if the input is invalid.
func (c *Client) SetRetention(ctx context.Context, queue string, r QueueRetention) error {
	err := firstProblem(keeps("completed", r.Completed), keeps("cancelled", r.Cancelled), keeps("discarded", r.Discarded))
	if err != nil {
		return err
	}
	return c.setQueue(ctx, queue, func(s *queueSettings) { s.Retention = r })
}

// keeps checks a retention. Zero means the default.
func keeps(name string, d time.Duration) error {
	if d == 0 || d == Forever {
		return nil
	}
	return within(name, d, time.Second, MaxAhead)
}

// PauseQueue stops workers from claiming tasks of the queue, within about a second. Running tasks continue.
// Pausing a paused queue, or one that has no tasks yet, is not an error.
func (c *Client) PauseQueue(ctx context.Context, name string) error {
	return c.setQueue(ctx, name, func(s *queueSettings) { s.Paused = true })
}

// ResumeQueue ends a pause, within about a second. Resuming a queue that is not paused is not an error.
func (c *Client) ResumeQueue(ctx context.Context, name string) error {
	return c.setQueue(ctx, name, func(s *queueSettings) { s.Paused = false })
}

// Paused reports whether a queue is paused, without counting its tasks.
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

// Queues lists, by name, the queues that have or had tasks, settings, limits or a live worker. A queue that only
// had tasks in the past stays listed until RemoveQueue; the leader records it within seconds.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	queues, _, err := c.QueuesAndWorkers(ctx)
	return queues, err
}

// QueuesAndWorkers returns the results of Queues and Workers, at the cost of Queues alone.
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
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: queueRecord})
	if err != nil {
		return nil, nil, err
	}
	limits, err := c.store.Records(ctx, store.RecordFilter{Kind: allot.RecordKind})
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

// setQueue changes the settings of a queue. Removing a setting from a queue that has no settings writes nothing,
// so that a misspelled name does not create a queue.
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

// changeRecord reads a record, changes it and writes it, and repeats this until no other writer interferes. A nil
// body deletes the record; a record that does not exist has a nil body.
func (c *Client) changeRecord(ctx context.Context, kind, name string, change func(body []byte) ([]byte, error)) error {
	return c.changeAmong(ctx, kind, name, func(body []byte, _ []store.Record) ([]byte, error) { return change(body) })
}

// changeAmong is like changeRecord, for a change that depends on the other records of the kind, as read together
// with this one.
func (c *Client) changeAmong(
	ctx context.Context, kind, name string, change func(body []byte, all []store.Record) ([]byte, error),
) error {
	for {
		all, err := c.store.Records(ctx, store.RecordFilter{Kind: kind})
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
	all, err := c.store.Records(ctx, store.RecordFilter{Kind: kind, Names: []string{name}})
	return recordOf(all, kind, name), err
}

// recordOf finds a record by name. If it does not exist, the result has version zero.
func recordOf(all []store.Record, kind, name string) store.Record {
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	return store.Record{Kind: kind, Name: name}
}
