package memory

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// need has a task wait for others: for those among them that have not ended as it
// needs.
func (s *Store) need(t *task, needs []store.Need) {
	s.unneed(t)
	t.needs = slices.Clone(needs)
	for _, n := range needs {
		state := s.stateOf(n.Task)
		if n.Met(state) {
			continue
		}
		if t.open == nil {
			t.open = map[store.ID]bool{}
		}
		t.open[n.Task] = true
		s.children[n.Task] = append(s.children[n.Task], t)
		if n.Dooms(state) {
			s.doomed = append(s.doomed, t)
		}
	}
}

// unneed has a task wait for nothing.
func (s *Store) unneed(t *task) {
	for id := range t.open {
		s.children[id] = slices.DeleteFunc(s.children[id], func(c *task) bool { return c == t })
		if len(s.children[id]) == 0 {
			delete(s.children, id)
		}
	}
	t.open, t.needs = nil, nil
}

// tell lets the tasks that need one know that it has ended; a state of 0: that it
// is gone.
func (s *Store) tell(id store.ID, state store.State, now time.Time) {
	var open []*task
	for _, c := range s.children[id] {
		at := slices.IndexFunc(c.needs, func(n store.Need) bool { return n.Task == id })
		switch n := c.needs[at]; {
		case n.Met(state):
			delete(c.open, id)
			if len(c.open) == 0 && c.State == store.Pending && !s.awaits(c) {
				s.take(c)
				s.putDue(c, now, store.Scheduled)
			}
			continue
		case n.Dooms(state):
			s.doomed = append(s.doomed, c)
		}
		open = append(open, c)
	}
	if s.children[id] = open; len(open) == 0 {
		delete(s.children, id)
	}
}

// cancelDoomed cancels up to limit pending tasks that need what has failed; those
// that need them are doomed in turn.
func (s *Store) cancelDoomed(limit int, now time.Time) (cancelled int) {
	for len(s.doomed) > 0 && cancelled < limit {
		t := s.doomed[0]
		s.doomed = s.doomed[1:]
		if s.tasks[t.ID] != t || t.State != store.Pending || s.awaits(t) {
			continue
		}
		for _, n := range t.needs {
			if state := s.stateOf(n.Task); t.open[n.Task] && n.Dooms(state) {
				s.take(t)
				t.Reason = n.Reason(state)
				s.end(t, store.Cancelled, now, now)
				cancelled++
				break
			}
		}
	}
	return cancelled
}

func (s *Store) needStates(t *task) []store.NeedState {
	var states []store.NeedState
	for _, n := range t.needs {
		states = append(states, store.NeedState{Need: n, State: s.stateOf(n.Task)})
	}
	return states
}

func (s *Store) stateOf(id store.ID) store.State {
	if t := s.tasks[id]; t != nil {
		return t.State
	}
	return 0
}
