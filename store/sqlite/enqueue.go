package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	err = s.writeMany(ctx, len(tasks), func(w *work) error {
		results, err = w.enqueue(tasks)
		return err
	})
	return answer(results, "enqueue", err)
}

func (w *work) enqueue(tasks []store.NewTask) (results []store.Enqueued, err error) {
	if slices.ContainsFunc(tasks, func(n store.NewTask) bool { return n.Key != "" || len(n.Needs) > 0 }) {
		err := w.decide(func(b *rules.Batch) error {
			results, err = b.Enqueue(tasks)
			return err
		})
		return results, err
	}
	results = make([]store.Enqueued, len(tasks))
	now, r := w.time(), &rules.Row{}
	for i := range tasks {
		r.Task = plainTask(&tasks[i], now)
		if err := w.insert(r); err != nil {
			return nil, err
		}
		results[i] = store.Enqueued{ID: tasks[i].ID, Result: store.Added}
	}
	return results, nil
}

// plainTask returns a new task that waits for nothing except its run time and its turn.
func plainTask(n *store.NewTask, now time.Time) store.Task {
	t := store.Task{ID: n.ID, Kind: n.Kind, Queue: n.Queue, Tenant: n.Tenant, Priority: n.Priority,
		Args: n.Args, Tags: n.Tags, Settings: n.Settings, Workflow: n.Workflow, EnqueuedAt: now,
		Turn: n.Turn, Partition: n.Partition, RunAt: rules.RunAt(n.RunAt, n.Delay, now), ExpiresAt: rules.ExpiresAt(n, now)}
	switch {
	case t.RunAt.After(now):
		t.State = store.Scheduled
	case t.Turn:
		t.State = store.Pending
	default:
		t.State = store.Available
	}
	return t
}

// add writes a new task. It returns false if the task is not new.
func (w *work) add(r *rules.Row, at spot) (bool, error) {
	kind, err := w.kind(r.Queue, r.Kind)
	if err != nil {
		return false, err
	}
	tags, err := encodeTags(r.Tags)
	if err != nil {
		return false, err
	}
	var partition any // null if the task does not run in turns
	if r.Turn {
		partition = r.Partition
	}
	added, err := w.run("task.add", r.ID, kind, r.Priority, at.state, nullCount(at.lane), nullCount(at.pos),
		nullBytes(r.Args), nullText(r.Tenant), tags, nullText(r.Key), nullBytes(r.Settings), r.EnqueuedAt, r.RunAt,
		r.ExpiresAt, nullID(r.Workflow), partition, openOf(r), nullBool(r.Needed), nullCount(at.turn),
		nullCount(at.place))
	if err != nil || added == 0 {
		return false, err
	}
	return true, w.addTags(r.ID, r.Tags)
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

func encodeTags(tags []string) (any, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(tags)
	return string(text), err
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

func nullID(id store.ID) any {
	if id.IsZero() {
		return nil
	}
	return id
}

func nullBool(is bool) any {
	if !is {
		return nil
	}
	return 1
}

func nullCount[N int | int64](n N) any {
	if n == 0 {
		return nil
	}
	return n
}
