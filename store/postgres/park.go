package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Parker = (*Store)(nil)

// Park implements store.Parker.
func (s *Store) Park(p *store.Parked) (recall func()) {
	n := &s.near
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parked = append(n.parked, p)
	return func() { n.remove(p) }
}

func (n *near) remove(p *store.Parked) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parked = slices.DeleteFunc(n.parked, func(other *store.Parked) bool { return other == p })
}

// parkedFor returns a parked claim that may be used for the tasks of a call, or nil. There must be one task, which is
// expected and goes straight into the log.
func (s *Store) parkedFor(tasks []store.NewTask, have *survey) *store.Parked {
	t := &tasks[0]
	if len(tasks) != 1 || !have.ready || isRare(t) || t.ExpiresIn > 0 || !t.ExpiresAt.IsZero() ||
		t.OnConflict == store.Rerun {
		return nil
	}
	n := &s.near
	n.mu.Lock()
	_, expected := n.expected[t.ID]
	all := slices.Clone(n.parked)
	n.mu.Unlock()
	if !expected {
		return nil
	}
	for _, p := range all {
		if slices.Contains(p.Request.Queues, t.Queue) && p.Begin(t.Queue) {
			n.remove(p)
			return p
		}
	}
	return nil
}

// addLeased stores a task and, if it is the first of its queue, leases it to the worker of a parked claim. It reports
// false if it stored nothing, because the key of the task is taken.
func (s *Store) addLeased(ctx context.Context, c session, t *store.NewTask, p *store.Parked) (done bool, err error) {
	s.trips.Add(1)
	lane := laneOf(t.Queue, t.Priority)
	name, args := "add_leased", []any{lane, [16]byte(t.ID), t.Kind, t.Args, orNull(t.Tenant), arrayText(t.Tags),
		t.Settings, orNull(t.Key), [16]byte(p.Request.Worker), [16]byte(p.Request.Token)}
	if t.Key != "" {
		name, args = "add_keyed_leased", append(takeKey(t), args...)
	}
	var enqueued time.Time
	var claimed *time.Time
	asked := time.Now()
	err = c.each(ctx, func(scan func(...any) error) error {
		done = true
		return scan(&enqueued, &claimed)
	}, s.sql[name], args...)
	err = translate(err)
	var tasks []store.Task
	if neverStored(err) {
		p.Answer(nil, asked, nil)
		return false, err
	}
	if err == nil && claimed != nil {
		tasks = []store.Task{leasedOf(t, enqueued.UTC(), claimed.UTC())}
		askFor(&p.Request).lent(&tasks[0], lane)
		s.lane.Store(lane)
		s.near.took(&p.Request, tasks)
	}
	p.Answer(tasks, asked, err)
	return done, err
}

// leasedOf returns a new task as a claim would.
func leasedOf(t *store.NewTask, enqueued, claimed time.Time) store.Task {
	task := store.Task{ID: t.ID, Kind: t.Kind, Args: append([]byte{}, t.Args...), EnqueuedAt: enqueued, RunAt: enqueued,
		ClaimedAt: claimed, Attempt: 1, Tenant: t.Tenant, Key: t.Key, Settings: slices.Clone(t.Settings)}
	if len(t.Tags) > 0 {
		task.Tags = slices.Clone(t.Tags)
	}
	return task
}
