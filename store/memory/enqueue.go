package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// name is what a key is unique by.
type name struct{ queue, tenant, key string }

// identity is what is known of a key. It is forgotten with its last task.
type identity struct {
	holder   *task     // the unfinished task; nil: none
	awaiting *task     // runs when the running holder has ended; nil: none
	source   time.Time // the newest one seen
	tasks    int       // all tasks with the key, finished ones too
}

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueue: %w: %w", store.ErrNotCommitted, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enqueue(tasks, clock()), nil
}

func (s *Store) enqueue(tasks []store.NewTask, now time.Time) []store.Enqueued {
	results := make([]store.Enqueued, len(tasks))
	for i := range tasks {
		results[i] = s.enqueueOne(&tasks[i], now)
	}
	return results
}

func (s *Store) enqueueOne(n *store.NewTask, now time.Time) store.Enqueued {
	if n.Key == "" {
		s.add(n, now)
		return store.Enqueued{ID: n.ID, Result: store.Added}
	}
	key := name{n.Queue, n.Tenant, n.Key}
	is := s.keys[key]
	if is == nil {
		is = &identity{}
		s.keys[key] = is
	}
	if n.OnConflict == store.Rerun && !is.learn(n.SourceTime, now) {
		return store.Enqueued{ID: is.standsFor(), Result: store.Stale}
	}
	switch {
	case is.holder == nil:
		is.holder = s.add(n, now)
		is.tasks++
		return store.Enqueued{ID: n.ID, Result: store.Added}
	case n.OnConflict == store.Rerun && is.holder.State == store.Running:
		s.await(is, n, now)
		return store.Enqueued{ID: is.awaiting.ID, Result: store.Awaiting}
	case n.OnConflict == store.Skip || is.holder.State == store.Running:
		return store.Enqueued{ID: is.holder.ID, Result: store.Skipped}
	default:
		s.replace(is.holder, n, now)
		return store.Enqueued{ID: is.holder.ID, Result: store.Replaced}
	}
}

// learn takes note of a source time and reports whether it is news. A zero one
// always is, and counts as now.
func (is *identity) learn(source, now time.Time) bool {
	if source.IsZero() {
		if now.After(is.source) {
			is.source = now
		}
		return true
	}
	if !source.After(is.source) {
		return false
	}
	is.source = source
	return true
}

// standsFor returns the task that brings what a stale enqueue asked for; zero
// when it has already run.
func (is *identity) standsFor() store.ID {
	switch {
	case is.awaiting != nil:
		return is.awaiting.ID
	case is.holder != nil:
		return is.holder.ID
	}
	return store.ID{}
}

// add stores a new task.
func (s *Store) add(n *store.NewTask, now time.Time) *task {
	t := newTask(n, now)
	s.insert(t)
	s.need(t, n.Needs)
	s.putDue(t, now, store.Scheduled)
	return t
}

// await remembers what shall run when the running holder has ended.
func (s *Store) await(is *identity, n *store.NewTask, now time.Time) {
	if is.awaiting != nil {
		is.awaiting.become(n, now)
		return
	}
	is.awaiting = newTask(n, now)
	s.insert(is.awaiting)
	s.need(is.awaiting, n.Needs)
	s.put(is.awaiting, store.Pending)
}

// replace gives a task that is not running new values. It keeps its place in
// its lane when it can.
func (s *Store) replace(t *task, n *store.NewTask, now time.Time) {
	stays := t.State == store.Available && t.Priority == n.Priority && !runAt(n, now).After(now)
	if stays {
		due := t.RunAt
		t.become(n, now)
		t.RunAt = due
		return
	}
	s.take(t)
	t.become(n, now)
	s.putDue(t, now, store.Scheduled)
}

func newTask(n *store.NewTask, now time.Time) *task {
	t := &task{Task: store.Task{
		ID: n.ID, Queue: n.Queue, Tenant: n.Tenant, Key: n.Key, Workflow: n.Workflow, EnqueuedAt: now,
		Turn: n.Turn, Partition: n.Partition,
	}}
	t.become(n, now)
	return t
}

// become gives a task the values that an enqueue may replace.
func (t *task) become(n *store.NewTask, now time.Time) {
	t.Kind = n.Kind
	t.Args = bytes.Clone(n.Args)
	t.Tags = slices.Clone(n.Tags)
	t.Settings = bytes.Clone(n.Settings)
	t.Priority = n.Priority
	t.RunAt = runAt(n, now)
	t.ExpiresAt = expiresAt(n, now)
}

// runAt returns when a task is due, now at the soonest.
func runAt(n *store.NewTask, now time.Time) time.Time {
	at := n.RunAt
	if at.IsZero() {
		at = now
	}
	at = at.Add(max(n.Delay, 0))
	if at.Before(now) {
		at = now
	}
	return at.UTC().Round(0)
}

// expiresAt returns the sooner of a task's two expiries; zero when it has none.
func expiresAt(n *store.NewTask, now time.Time) time.Time {
	at := n.ExpiresAt
	if n.ExpiresIn > 0 && (at.IsZero() || now.Add(n.ExpiresIn).Before(at)) {
		at = now.Add(n.ExpiresIn)
	}
	return at.UTC().Round(0)
}
