package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Edit implements store.Editor.
func (s *Store) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	edited := make([]store.Edited, len(e.IDs))
	for i, id := range e.IDs {
		edited[i] = s.edit(id, &e.Change, now)
	}
	return edited, nil
}

func (s *Store) edit(id store.ID, c *store.Change, now time.Time) store.Edited {
	t := s.tasks[id]
	if t == nil {
		return store.Edited{ID: id, Result: store.Missing}
	}
	before := t.State
	result := s.apply(t, c, now)
	done := store.Edited{ID: id, Result: result, State: t.State}
	if result == store.Changed && c.Op == store.Delete {
		done.State = 0
	}
	if result == store.Changed && before == store.Pending && c.Op == store.Cancel {
		done.State = store.Cancelled
	}
	return done
}

// apply makes a change if the task's state allows it.
func (s *Store) apply(t *task, c *store.Change, now time.Time) store.EditResult {
	switch {
	case t.State == store.Pending && s.awaits(t):
		return s.editAwaiting(t, c, now)
	case t.State == store.Pending && c.Op == store.Reprioritize && t.queues():
		s.take(t)
		t.Priority = c.Priority
		s.putDue(t, now, store.Scheduled)
		return store.Changed
	case t.State == store.Pending && c.Op != store.Cancel && c.Op != store.Delete:
		return store.Refused
	case t.State == store.Running:
		if c.Op != store.Cancel {
			return store.Refused
		}
		t.detail.CancelRequested, t.why = true, c.Reason
		return store.Requested
	case t.State.Finished() && c.Op != store.Retry && c.Op != store.Delete:
		return store.Refused
	}
	switch c.Op {
	case store.Cancel:
		s.take(t)
		s.yield(t)
		t.Reason = c.Reason
		s.end(t, store.Cancelled, now, now)
	case store.Retry:
		return s.retry(t, c, now)
	case store.Delete:
		s.forget(t, now)
	case store.Reprioritize:
		s.relocate(t, t.Queue, c.Priority)
	case store.Move:
		return s.move(t, c.Queue)
	case store.Reschedule:
		s.reschedule(t, c, now)
	default:
		return store.Refused
	}
	return store.Changed
}

// editAwaiting edits what only waits for a running task of its key to end:
// somebody may call it off, and that is all.
func (s *Store) editAwaiting(t *task, c *store.Change, now time.Time) store.EditResult {
	if c.Op != store.Cancel && c.Op != store.Delete {
		return store.Refused
	}
	s.keys[name{t.Queue, t.Tenant, t.Key}].awaiting = nil
	s.take(t)
	s.remove(t)
	s.unneed(t)
	s.tell(t.ID, 0, now)
	return store.Changed
}

// awaits reports whether a pending task awaits the end of a running one of its
// key, rather than what it needs.
func (s *Store) awaits(t *task) bool {
	is := s.keys[name{t.Queue, t.Tenant, t.Key}]
	return is != nil && is.awaiting == t
}

func (s *Store) retry(t *task, c *store.Change, now time.Time) store.EditResult {
	switch {
	case t.State == store.Available:
		return store.Refused
	case t.State.Finished():
		if is := s.keys[name{t.Queue, t.Tenant, t.Key}]; is != nil {
			if is.holder != nil {
				return store.KeyTaken
			}
			is.holder = t
		}
	}
	s.reschedule(t, c, now)
	return store.Changed
}

// reschedule gives a task a new run time; a finished one begins again.
func (s *Store) reschedule(t *task, c *store.Change, now time.Time) {
	s.take(t)
	if t.State == store.Available {
		s.yield(t)
	}
	wait := store.Scheduled
	if t.State == store.Retryable {
		wait = store.Retryable
	}
	if t.State.Finished() {
		t.Attempt, t.Crashes, t.Reason, t.FinishedAt = 0, 0, "", time.Time{}
		s.need(t, t.needs)
	}
	t.RunAt = runAt(&store.NewTask{RunAt: c.RunAt, Delay: c.Delay}, now)
	s.putDue(t, now, wait)
}

func (s *Store) move(t *task, queue string) store.EditResult {
	if t.Queue == queue {
		return store.Changed
	}
	if from := s.keys[name{t.Queue, t.Tenant, t.Key}]; from != nil {
		to := s.keys[name{queue, t.Tenant, t.Key}]
		if to == nil {
			to = &identity{}
			s.keys[name{queue, t.Tenant, t.Key}] = to
		}
		if to.holder != nil {
			return store.KeyTaken
		}
		to.holder, to.tasks = t, to.tasks+1
		if from.source.After(to.source) {
			to.source = from.source
		}
		from.holder = nil
		if from.tasks--; from.tasks == 0 {
			delete(s.keys, name{t.Queue, t.Tenant, t.Key})
		}
	}
	s.yield(t)
	s.relocate(t, queue, t.Priority)
	if t.Turn && t.State == store.Available {
		s.take(t)
		s.put(t, store.Pending)
		s.queueUp(t)
	}
	return store.Changed
}

// relocate puts a task at the end of another lane.
func (s *Store) relocate(t *task, queue string, priority int16) {
	if t.Queue == queue && t.Priority == priority {
		return
	}
	s.take(t)
	t.Queue, t.Priority = queue, priority
	s.put(t, t.State)
}
