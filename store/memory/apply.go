package memory

import (
	"bytes"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// view answers the rules' queries. It cannot fail.
type view struct{ *Store }

func (s *Store) batch(now time.Time) *rules.Batch { return rules.New(now, view{s}) }

// Read implements rules.Source.
func (v view) Read(w *rules.Want) (*rules.Found, error) {
	found := &rules.Found{}
	for _, name := range w.Keys {
		if k := v.keys[name]; k != nil {
			found.Keys = append(found.Keys, *k)
		}
	}
	for _, id := range w.Tasks {
		if t := v.tasks[id]; t != nil {
			r := t.Row
			r.Needed = len(v.children[id]) > 0
			found.Tasks = append(found.Tasks, &r)
		}
	}
	for _, id := range w.Needs {
		if t := v.tasks[id]; t != nil {
			for _, n := range t.needs {
				found.Needs = append(found.Needs, rules.OwnNeed{Child: id, OpenNeed: n})
			}
		}
	}
	for _, id := range w.Children {
		found.Children = append(found.Children, v.children[id]...)
	}
	return found, nil
}

// apply stores what the rules have decided.
func (s *Store) apply(b *rules.Batch) {
	changes := b.Changes()
	for _, c := range changes {
		if c.Before != nil && (c.After == nil || c.After.Place > 0) {
			s.take(s.tasks[c.Before.ID])
		}
	}
	for _, e := range b.Ends {
		s.record(s.tasks[e.Task.ID], e)
	}
	for _, c := range changes {
		s.change(c)
	}
	for _, n := range b.Needs {
		s.setNeeds(n)
	}
	for _, m := range b.Met {
		s.meet(m)
	}
	s.doubts = append(s.doubts, b.Doubts...)
	keys, _ := b.Keys()
	for _, k := range keys {
		if k.Tasks == 0 {
			delete(s.keys, k.KeyName)
			continue
		}
		s.keys[k.KeyName] = &k
	}
}

// change stores a task in its new state.
func (s *Store) change(c rules.Change) {
	if c.Before != nil {
		s.leave(c.Before)
	}
	if c.After == nil {
		t := s.tasks[c.Before.ID]
		s.setNeeds(&rules.NewNeeds{Child: t.ID})
		s.remove(t)
		return
	}
	t := s.tasks[c.After.ID]
	if t == nil {
		t = &task{Row: rules.Row{Task: store.Task{ID: c.After.ID}}}
		s.insert(t)
	}
	t.Row = *c.After
	t.Place = 0
	if t.Changed != nil {
		t.detail.Changed, t.Changed = t.Changed, nil
	}
	if t.Values {
		t.Values = false
		t.Args, t.Tags, t.Settings = bytes.Clone(t.Args), slices.Clone(t.Tags), bytes.Clone(t.Settings)
	}
	if t.Restored {
		s.restore(t)
		return
	}
	if t.HasTurn {
		s.turnsOf(t.turn()).held++
	}
	if c.After.Place > 0 {
		s.put(t, t.State)
	}
}

// leave takes the turn from a task and, if the task has ended, removes it from its worker.
func (s *Store) leave(before *rules.Row) {
	t := s.tasks[before.ID]
	if before.HasTurn {
		s.turnsOf(t.turn()).held--
	}
	if w := s.workers[before.Worker]; w != nil && t.place == 0 {
		delete(w.holds, before.ID)
	}
}

// setNeeds stores what a task needs, replacing its earlier needs.
func (s *Store) setNeeds(n *rules.NewNeeds) {
	t := s.tasks[n.Child]
	if t == nil {
		return
	}
	for _, old := range t.needs {
		s.closeNeed(rules.Met{Child: n.Child, Parent: old.Task})
	}
	t.needs = slices.Clone(n.Needs)
	for _, own := range t.needs {
		if own.Open {
			s.children[own.Task] = append(s.children[own.Task], rules.Edge{Child: n.Child, Need: own.Need})
		}
	}
}

func (s *Store) meet(m rules.Met) {
	s.closeNeed(m)
	t := s.tasks[m.Child]
	if t == nil {
		return
	}
	for i := range t.needs {
		t.needs[i].Open = t.needs[i].Open && t.needs[i].Task != m.Parent
	}
}

func (s *Store) closeNeed(m rules.Met) {
	s.children[m.Parent] = slices.DeleteFunc(s.children[m.Parent], func(e rules.Edge) bool { return e.Child == m.Child })
	if len(s.children[m.Parent]) == 0 {
		delete(s.children, m.Parent)
	}
}

// cancelDoomed cancels up to limit pending tasks that need a failed task. The tasks that need a cancelled one become
// doubts in turn.
func (s *Store) cancelDoomed(limit int, now time.Time) (cancelled int) {
	for len(s.doubts) > 0 && cancelled < limit {
		n := min(len(s.doubts), limit-cancelled)
		b := s.batch(now)
		did, _ := b.Doom(s.doubts[:n])
		s.doubts = s.doubts[n:]
		cancelled += did
		s.apply(b)
	}
	return cancelled
}

func (s *Store) needStates(t *task) []store.NeedState {
	var states []store.NeedState
	for _, n := range t.needs {
		state := store.State(0)
		if parent := s.tasks[n.Task]; parent != nil {
			state = parent.State
		}
		states = append(states, store.NeedState{Need: n.Need, State: state})
	}
	return states
}
