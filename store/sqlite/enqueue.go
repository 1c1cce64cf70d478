package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	err = s.write(ctx, true, func(w *work) error {
		results, err = w.enqueue(tasks)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	return results, nil
}

func (w *work) enqueue(tasks []store.NewTask) ([]store.Enqueued, error) {
	results := make([]store.Enqueued, len(tasks))
	for i := range tasks {
		var err error
		if results[i], err = w.enqueueOne(&tasks[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (w *work) enqueueOne(n *store.NewTask) (store.Enqueued, error) {
	added := store.Enqueued{ID: n.ID, Result: store.Added}
	if n.Key == "" {
		return added, w.add(n, store.Scheduled)
	}
	key, err := w.key(keyName{n.Queue, n.Tenant, n.Key})
	if err != nil {
		return added, err
	}
	if n.OnConflict == store.Rerun && !key.learn(n, w.now) {
		return store.Enqueued{ID: key.standsFor(), Result: store.Stale}, nil
	}
	if key.task.IsZero() {
		key.task = n.ID
		key.tasks++
		if err := w.writeKey(key); err != nil {
			return added, err
		}
		return added, w.add(n, store.Scheduled)
	}
	return w.conflict(key, n)
}

// conflict enqueues a task whose key has an unfinished one.
func (w *work) conflict(key *identity, n *store.NewTask) (done store.Enqueued, err error) {
	holder, err := w.find(key.task)
	if err != nil {
		return done, err
	}
	if holder == nil {
		return done, fmt.Errorf("key %q of tenant %q in queue %q belongs to task %s, which does not exist", n.Key, n.Tenant, n.Queue, key.task)
	}
	running := holder.State == store.Running
	switch {
	case n.OnConflict == store.Rerun && running && key.awaiting.IsZero():
		key.awaiting = n.ID
		done = store.Enqueued{ID: n.ID, Result: store.Awaiting}
		err = w.add(n, store.Pending)
	case n.OnConflict == store.Rerun && running:
		done = store.Enqueued{ID: key.awaiting, Result: store.Awaiting}
		var pending *stored
		if pending, err = w.find(key.awaiting); err == nil && pending != nil {
			err = w.become(pending, n, store.Pending, runAt(n, w.now))
		}
	case n.OnConflict == store.Skip || running:
		return store.Enqueued{ID: holder.ID, Result: store.Skipped}, nil
	default:
		done = store.Enqueued{ID: holder.ID, Result: store.Replaced}
		err = w.replace(holder, n)
	}
	if err == nil && n.OnConflict == store.Rerun {
		err = w.writeKey(key)
	}
	return done, err
}

// add stores a new task, in the given state unless it may run at once.
func (w *work) add(n *store.NewTask, state store.State) error {
	kind, err := w.kind(n.Queue, n.Kind)
	if err != nil {
		return err
	}
	tags, err := encodeTags(n.Tags)
	if err != nil {
		return err
	}
	due := runAt(n, w.now)
	var l *lane
	var id, pos any
	var line, place int64
	awaits := state == store.Pending
	switch {
	case awaits:
	case len(n.Needs) > 0:
		state = store.Pending
	case due > w.now:
	case n.Turn:
		if line, err = w.turnsOf(turn{n.Queue, n.Tenant, n.Partition}); err != nil {
			return err
		}
		state, place = store.Pending, w.nextPlace()
	default:
		if l, err = w.lane(n.Queue, n.Priority); err != nil {
			return err
		}
		state, id, pos = store.Available, l.id, l.tail+1
	}
	stored, err := w.run("task.add", n.ID, kind, n.Priority, state, id, pos, nullBytes(n.Args), nullText(n.Tenant), tags,
		nullText(n.Key), nullBytes(n.Settings), w.now, due, expiresAt(n, w.now),
		nullID(n.Workflow), partition(n), nullCount(len(n.Needs)), nullCount(line), nullCount(place))
	if err != nil || stored == 0 {
		return err // nothing stored: the same task has come before
	}
	if l != nil {
		l.next()
		w.wake(n.Queue)
	} else {
		w.waits(n.Queue, state, 1)
	}
	if line != 0 {
		w.came(line, place)
	}
	if err := w.addTags(n.ID, n.Tags); err != nil {
		return err
	}
	if len(n.Needs) == 0 {
		return nil
	}
	if err := w.addNeeds(n.ID, n.Needs); err != nil || awaits {
		return err
	}
	return w.release(n.ID)
}

// replace gives a task that is not running new values. It keeps its place in
// its lane when it can.
func (w *work) replace(t *stored, n *store.NewTask) error {
	due := runAt(n, w.now)
	if t.State == store.Available && t.Priority == n.Priority && due <= w.now {
		return w.become(t, n, store.Available, t.runAt)
	}
	if err := w.take(t); err != nil {
		return err
	}
	if err := w.become(t, n, store.Scheduled, due); err != nil {
		return err
	}
	return w.putDue(t, n.Queue, n.Priority, due, store.Scheduled)
}

// become writes the values that an enqueue may replace.
func (w *work) become(t *stored, n *store.NewTask, state store.State, due int64) error {
	kind, err := w.kind(n.Queue, n.Kind)
	if err != nil {
		return err
	}
	tags, err := encodeTags(n.Tags)
	if err != nil {
		return err
	}
	if err := w.dropTags(t); err != nil {
		return err
	}
	if _, err := w.run("task.become", kind, n.Priority, nullBytes(n.Args), tags, nullBytes(n.Settings), due, expiresAt(n, w.now), t.num); err != nil {
		return err
	}
	t.Tags = n.Tags
	return w.addTags(t.ID, n.Tags)
}

func (w *work) addTags(id store.ID, tags []string) error {
	for _, tag := range tags {
		if _, err := w.run("tag.add", tag, id); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) dropTags(t *stored) error {
	for _, tag := range t.Tags {
		if _, err := w.run("tag.drop", tag, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// runAt returns when a task is due, now at the soonest.
func runAt(n *store.NewTask, now int64) int64 {
	at := now
	if !n.RunAt.IsZero() {
		at = micros(n.RunAt)
	}
	return max(after(at, max(n.Delay, 0)), now)
}

// expiresAt returns the sooner of a task's two expiries; nil when it has none.
func expiresAt(n *store.NewTask, now int64) any {
	switch in := after(now, n.ExpiresIn); {
	case n.ExpiresAt.IsZero() && n.ExpiresIn <= 0:
		return nil
	case n.ExpiresAt.IsZero():
		return in
	case n.ExpiresIn <= 0:
		return micros(n.ExpiresAt)
	default:
		return min(in, micros(n.ExpiresAt))
	}
}

func encodeTags(tags []string) (any, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(tags)
	return string(text), err
}

// partition is null for a task that does not run in turns.
func partition(n *store.NewTask) any {
	if !n.Turn {
		return nil
	}
	return n.Partition
}

func nullText(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func nullBytes(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
