package rules

import (
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// need makes a task wait for those of the needed tasks that have not met its needs yet.
func (b *Batch) need(r *Row, needs []store.Need) error {
	before, err := b.needs(r)
	if err != nil || len(before)+len(needs) == 0 {
		return err
	}
	b.needNothing(r)
	r.Needs = len(needs) > 0
	own := b.anew[r.ID]
	if own == nil {
		own = &NewNeeds{Child: r.ID}
		b.anew[r.ID] = own
		b.Needs = append(b.Needs, own)
	}
	seen := map[store.ID]bool{}
	for _, n := range needs {
		parent, state, err := b.state(n.Task)
		if err != nil {
			return err
		}
		open := !n.Met(state) && !seen[n.Task]
		seen[n.Task] = true
		own.Needs = append(own.Needs, OpenNeed{n, open})
		if !open {
			continue
		}
		r.Open++
		b.parents[n.Task] = append(b.parents[n.Task], Edge{r.ID, n})
		if parent != nil {
			parent.Needed = true
		}
		if n.Dooms(state) {
			b.Doubts = append(b.Doubts, r.ID)
		}
	}
	return nil
}

// needAgain makes a finished task wait again for the tasks that it needs, in their current state. Unless it was
// cancelled, it has run, so all its needs were met. Needed tasks that no longer exist, perhaps because they are kept
// for a shorter time, then do not count.
func (b *Batch) needAgain(r *Row) error {
	before, err := b.needs(r)
	if err != nil {
		return err
	}
	needs := make([]store.Need, len(before))
	for i, n := range before {
		needs[i] = n.Need
	}
	if err := b.need(r, needs); err != nil || r.State == store.Cancelled || b.anew[r.ID] == nil {
		return err
	}
	for _, n := range slices.Clone(b.anew[r.ID].Needs) {
		_, state, err := b.state(n.Task)
		if err == nil && n.Open && state == 0 {
			err = b.meet(Edge{r.ID, n.Need})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// needNothing closes the needs that the batch has opened for a task.
func (b *Batch) needNothing(r *Row) {
	r.Open = 0
	own := b.anew[r.ID]
	if own == nil {
		return
	}
	for _, n := range own.Needs {
		b.close(Edge{r.ID, n.Need})
	}
	own.Needs = nil
}

func (b *Batch) close(e Edge) {
	kept := b.parents[e.Task][:0:0]
	for _, other := range b.parents[e.Task] {
		if other.Child != e.Child {
			kept = append(kept, other)
		}
	}
	b.parents[e.Task] = kept
}

// needs returns the needs of a task, with the changes of the batch.
func (b *Batch) needs(r *Row) ([]OpenNeed, error) {
	if own := b.anew[r.ID]; own != nil {
		return own.Needs, nil
	}
	if b.tasks[r.ID].Before == nil || !r.Needs {
		return nil, nil
	}
	err := b.read(Want{Needs: []store.ID{r.ID}})
	return b.needed[r.ID], err
}

// tell informs the tasks that need a task that it has ended. A state of 0 means that it was deleted.
func (b *Batch) tell(r *Row, state store.State) error {
	if !r.Needed {
		return nil
	}
	edges := b.parents[r.ID]
	if c := b.tasks[r.ID]; c == nil || c.Before != nil {
		if err := b.read(Want{Children: []store.ID{r.ID}}); err != nil {
			return err
		}
	}
	for _, e := range b.children[r.ID] {
		if b.anew[e.Child] == nil && !b.met[Met{e.Child, e.Task}] {
			edges = append(edges[:len(edges):len(edges)], e)
		}
	}
	for _, e := range edges {
		switch {
		case e.Met(state):
			if err := b.meet(e); err != nil {
				return err
			}
		case e.Dooms(state):
			b.Doubts = append(b.Doubts, e.Child)
		}
	}
	return nil
}

// Tell is for an engine that informs the dependents of an ended task later, from a stored note. The engine's Source
// returns no children while the task ends; for Tell it returns those that have not been informed yet. A state of 0
// means that the task was deleted.
func (b *Batch) Tell(id store.ID, state store.State) error {
	return b.tell(&Row{Task: store.Task{ID: id}, Needed: true}, state)
}

// meet closes a need. If it was the last open one, the task may run.
func (b *Batch) meet(e Edge) error {
	c, err := b.task(e.Child)
	if err != nil || c == nil {
		return err
	}
	if own := b.anew[e.Child]; own != nil {
		for i := range own.Needs {
			own.Needs[i].Open = own.Needs[i].Open && own.Needs[i].Task != e.Task
		}
		b.close(e)
	} else {
		b.Met = append(b.Met, Met{e.Child, e.Task})
		b.met[Met{e.Child, e.Task}] = true
	}
	if c.Open--; c.Open == 0 && c.State == store.Pending && !c.Awaits {
		b.putDue(c, store.Scheduled)
	}
	return nil
}

// Doom cancels those of the pending tasks that need a failed task, and returns their number. The tasks that need a
// cancelled one become doubts in turn.
func (b *Batch) Doom(ids []store.ID) (cancelled int, err error) {
	if err := b.reach(Want{}, ids, true); err != nil {
		return 0, err
	}
	for _, id := range ids {
		did, err := b.doom(id)
		if err != nil {
			return 0, err
		}
		if did {
			cancelled++
		}
	}
	return cancelled, nil
}

func (b *Batch) doom(id store.ID) (bool, error) {
	r, err := b.task(id)
	if err != nil || r == nil || r.State != store.Pending || r.Awaits || r.Open == 0 {
		return false, err
	}
	needs, err := b.needs(r)
	if err != nil {
		return false, err
	}
	for _, n := range needs {
		if !n.Open || b.met[Met{id, n.Task}] {
			continue
		}
		_, state, err := b.state(n.Task)
		if err != nil {
			return false, err
		}
		if n.Dooms(state) {
			r.Reason, r.HasTurn = n.Reason(state), false
			return true, b.end(r, store.Cancelled, b.Now)
		}
	}
	return false, nil
}
