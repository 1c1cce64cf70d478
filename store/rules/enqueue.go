package rules

import (
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Enqueue adds tasks in order and returns the result for each.
func (b *Batch) Enqueue(tasks []store.NewTask) ([]store.Enqueued, error) {
	var w Want
	w.enqueue(tasks)
	if err := b.reach(w, nil, false); err != nil {
		return nil, err
	}
	return b.enqueueAll(tasks)
}

// enqueue adds what has to be read to enqueue the tasks.
func (w *Want) enqueue(tasks []store.NewTask) {
	for i := range tasks {
		n := &tasks[i]
		w.Keys = append(w.Keys, KeyName{n.Queue, n.Tenant, n.Key})
		w.needs(n.Needs)
	}
}

func (w *Want) needs(needs []store.Need) {
	for _, n := range needs {
		w.Tasks = append(w.Tasks, n.Task)
	}
}

func (b *Batch) enqueueAll(tasks []store.NewTask) ([]store.Enqueued, error) {
	results := make([]store.Enqueued, len(tasks))
	for i := range tasks {
		var err error
		if results[i], err = b.enqueue(&tasks[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// enqueue adds one task, unless its key says otherwise.
func (b *Batch) enqueue(n *store.NewTask) (store.Enqueued, error) {
	added := store.Enqueued{ID: n.ID, Result: store.Added}
	k, err := b.key(KeyName{n.Queue, n.Tenant, n.Key})
	if err != nil {
		return added, err
	}
	if k == nil {
		return added, b.insert(n)
	}
	if n.ID == k.Holder || n.ID == k.Ended { // the call is a repetition, and must not move the source's time
		return store.Enqueued{ID: n.ID, Result: store.Skipped}, nil
	}
	if n.OnConflict == store.Rerun && !k.learn(n.SourceTime, b.Now) {
		return store.Enqueued{ID: k.standsFor(), Result: store.Stale}, nil
	}
	holder, err := b.holder(k)
	switch {
	case err != nil:
		return added, err
	case holder == nil && n.OnConflict == store.Once && k.Tasks > 0:
		return store.Enqueued{ID: k.Ended, Result: store.Skipped}, nil
	case holder == nil:
		k.Holder = n.ID
		k.Tasks++
		return added, b.insert(n)
	case n.OnConflict == store.Rerun && holder.State == store.Running:
		err := b.await(k, n)
		return store.Enqueued{ID: k.Awaiting, Result: store.Awaiting}, err
	case n.OnConflict == store.Skip || n.OnConflict == store.Once || holder.State == store.Running:
		return store.Enqueued{ID: holder.ID, Result: store.Skipped}, nil
	}
	b.replace(holder, n)
	return store.Enqueued{ID: holder.ID, Result: store.Replaced}, nil
}

// holder returns the unfinished task of a key, or nil if the key is free.
func (b *Batch) holder(k *Key) (*Row, error) {
	if k.Holder.IsZero() {
		return nil, nil
	}
	return b.task(k.Holder)
}

// learn records a source time and reports whether it is newer than all others. A zero time always is, and counts
// as now.
func (k *Key) learn(source, now time.Time) bool {
	if source.IsZero() {
		if now.After(k.Source) {
			k.Source = now
		}
		return true
	}
	if !source.After(k.Source) {
		return false
	}
	k.Source = source
	return true
}

// standsFor returns the task that covers a stale enqueue: the unfinished one of its key, or the one that ended
// last.
func (k *Key) standsFor() store.ID {
	switch {
	case !k.Awaiting.IsZero():
		return k.Awaiting
	case !k.Holder.IsZero():
		return k.Holder
	}
	return k.Ended
}

// insert stores a new task.
func (b *Batch) insert(n *store.NewTask) error {
	r := b.newRow(n)
	b.add(r)
	if err := b.need(r, n.Needs); err != nil {
		return err
	}
	b.putDue(r, store.Scheduled)
	return nil
}

// await stores a task that is to run after the running holder of its key has ended. Of several, only the newest
// runs.
func (b *Batch) await(k *Key, n *store.NewTask) error {
	if !k.Awaiting.IsZero() {
		r, err := b.task(k.Awaiting)
		if err != nil {
			return err
		}
		b.become(r, n)
		b.changed(r, store.WasReplaced)
		return nil
	}
	r := b.newRow(n)
	r.Awaits = true
	k.Awaiting = r.ID
	b.add(r)
	if err := b.need(r, n.Needs); err != nil {
		return err
	}
	b.put(r, store.Pending)
	return nil
}

// replace gives new values to a task that is not running. The task keeps its place in its lane, or in line for its
// turn, if it can. An available task that is postponed gives its turn back.
func (b *Batch) replace(r *Row, n *store.NewTask) {
	due := r.RunAt
	later := b.runAt(n.RunAt, n.Delay).After(b.Now)
	stays := (r.State == store.Available || r.InLine()) && r.Priority == n.Priority && !later
	r.HasTurn = r.HasTurn && !(r.State == store.Available && later)
	b.become(r, n)
	b.changed(r, store.WasReplaced)
	if stays {
		r.RunAt = due
		return
	}
	b.putDue(r, store.Scheduled)
}

func (b *Batch) newRow(n *store.NewTask) *Row {
	r := &Row{Task: store.Task{
		ID: n.ID, Queue: n.Queue, Tenant: n.Tenant, Key: n.Key, Workflow: n.Workflow, EnqueuedAt: b.Now,
		Turn: n.Turn, Partition: n.Partition,
	}}
	b.become(r, n)
	return r
}

// become sets the values that an enqueue may replace.
func (b *Batch) become(r *Row, n *store.NewTask) {
	r.Kind, r.Args, r.Tags, r.Settings, r.Priority = n.Kind, n.Args, n.Tags, n.Settings, n.Priority
	r.RunAt = b.runAt(n.RunAt, n.Delay)
	r.ExpiresAt = ExpiresAt(n, b.Now)
	r.Values = true
}

// runAt is like RunAt, but lengthens a delay from now by the time that Now may be behind.
func (b *Batch) runAt(at time.Time, delay time.Duration) time.Time {
	if at.IsZero() && delay > 0 {
		delay += b.Behind
	}
	return RunAt(at, delay, b.Now)
}

// RunAt returns when a task is due: at plus delay, but not before now.
func RunAt(at time.Time, delay time.Duration, now time.Time) time.Time {
	if at.IsZero() {
		at = now
	}
	if at = at.Add(max(delay, 0)); at.Before(now) {
		at = now
	}
	return at.UTC().Round(0)
}

// ExpiresAt returns the earlier of a task's two expiries, or zero if it has none.
func ExpiresAt(n *store.NewTask, now time.Time) time.Time {
	at := n.ExpiresAt
	if n.ExpiresIn > 0 && (at.IsZero() || now.Add(n.ExpiresIn).Before(at)) {
		at = now.Add(n.ExpiresIn)
	}
	return at.UTC().Round(0)
}
