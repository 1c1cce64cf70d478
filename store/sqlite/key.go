package sqlite

import (
	"github.com/tuskqueue/tusk/store"
)

// keyName is what a key is unique by: it belongs to its tenant.
type keyName struct{ queue, tenant, key string }

func nameOf(t *store.Task) keyName { return keyName{t.Queue, t.Tenant, t.Key} }

// identity is a row of tusk_key: what is known of a key.
type identity struct {
	keyName
	task, awaiting store.ID
	source         int64 // nanoseconds; 0: none seen
	tasks          int64
	stored         bool
}

// key reads what is known of a key, which may be nothing.
func (w *work) key(of keyName) (*identity, error) {
	k := &identity{keyName: of}
	r, err := w.one("key.find", of.queue, of.tenant, of.key)
	if err != nil || r == nil {
		return k, err
	}
	k.task, k.awaiting, k.source, k.tasks, k.stored = r.id(0), r.id(1), r.int(2), r.int(3), true
	return k, nil
}

func (w *work) writeKey(k *identity) error {
	if k.tasks == 0 {
		_, err := w.run("key.drop", k.queue, k.tenant, k.key)
		return err
	}
	_, err := w.run("key.write", k.queue, k.tenant, k.key, nullID(k.task), nullID(k.awaiting), k.source, k.tasks)
	return err
}

// learn takes note of a source time and reports whether it is news. A zero one
// always is, and counts as now.
func (k *identity) learn(n *store.NewTask, now int64) bool {
	if n.SourceTime.IsZero() {
		k.source = max(k.source, now*1000)
		return true
	}
	source := nanos(n.SourceTime)
	if k.source != 0 && source <= k.source {
		return false
	}
	k.source = source
	return true
}

// standsFor returns the task that brings what a stale enqueue asked for; zero
// when it has already run.
func (k *identity) standsFor() store.ID {
	if !k.awaiting.IsZero() {
		return k.awaiting
	}
	return k.task
}

// free takes the key from a task that is finished, for what was waiting for it
// if anything was.
func (w *work) free(of keyName, id store.ID) error {
	k, err := w.key(of)
	if err != nil || k.task != id {
		return err
	}
	k.task, k.awaiting = k.awaiting, store.ID{}
	if k.task.IsZero() {
		return w.writeKey(k)
	}
	k.tasks++
	if err := w.writeKey(k); err != nil {
		return err
	}
	next, err := w.find(k.task)
	if err != nil || next == nil {
		return err
	}
	w.waits(of.queue, store.Pending, -1)
	if err := w.review(next); err != nil {
		return err
	}
	return w.putDue(next, next.Queue, next.Priority, next.runAt, store.Scheduled)
}

func nullID(id store.ID) any {
	if id.IsZero() {
		return nil
	}
	return id
}
