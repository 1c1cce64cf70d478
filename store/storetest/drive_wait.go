package storetest

import (
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// This file has the parts of a history for tasks that wait for others, or for their turn.

// adorn gives some tasks rare properties: needs, a workflow, a turn.
func (h *history) adorn(n *store.NewTask) {
	if h.seldom("needs", 4) {
		n.Needs = h.needs(n.ID, 1)
	}
	if h.seldom("workflow", 6) {
		n.Workflow = h.workflow
	}
	if h.seldom("turn", 6) {
		n.Turn, n.Partition = true, pick(h, "partition", []string{"", "p"})
	}
	if len(n.Needs) > 0 || n.Turn {
		h.unplaced[n.ID] = true
	}
}

// needs generates between least and 3 needs for a task.
func (h *history) needs(of store.ID, least int) (needs []store.Need) {
	for range h.ints("needs", least, 3) {
		id := named(h, "nothing", NewID())
		if recent := h.tasks[max(0, len(h.tasks)-10):]; len(recent) > 0 && !h.seldom("unknown", 8) {
			id = pick(h, "parent", recent)
		}
		if id == of || slices.ContainsFunc(needs, func(n store.Need) bool { return n.Task == id }) {
			continue
		}
		needs = append(needs, store.Need{Task: id, OnFailure: pick(h, "on failure",
			[]store.OnFailure{store.CancelOnFailure, store.ContinueOnFailure, store.WaitOnFailure})})
		h.related[id], h.related[of] = true, true
	}
	return needs
}

// follow adds tasks and needs to an outcome. The tasks get no keys: their order relative to those of other outcomes
// is not determined, and keys would make it matter.
func (h *history) follow(o *store.Outcome) {
	o.KeepTurn = h.seldom("keep turn", 2)
	if h.seldom("then", 5) {
		o.Then = h.newTasks(1, 2)
		for i := range o.Then {
			n := &o.Then[i]
			n.Key, n.OnConflict = "", store.Skip
			h.tasks = append(h.tasks, n.ID)
			h.unplaced[n.ID] = true
		}
	}
	if o.State == store.Pending {
		o.Needs = h.needs(o.Task.ID, 0)
		for _, n := range o.Then {
			o.Needs = append(o.Needs, store.Need{Task: n.ID, OnFailure: store.ContinueOnFailure})
		}
		o.Needs = slices.CompactFunc(o.Needs, func(a, b store.Need) bool { return a.Task == b.Task })
	}
}

// grant reads which tasks wait for a turn and grants some of them one.
func (h *history) grant() {
	h.Helper()
	term := h.someTerm()
	turns, err := ask(h, "turns", func(s store.Store, engine bool) ([]store.Turns, error) {
		return s.Turns(h.ctx, term.of(engine), 1000, 1000)
	})
	if err != nil {
		return
	}
	h.same("turns", h.turnLines(turns.model), h.turnLines(turns.engine))
	var ids []store.ID
	for _, g := range turns.model {
		if slices.Contains(h.queues, g.Queue) {
			ids = append(ids, g.Waiting[:h.ints("granted", 0, len(g.Waiting))]...)
		}
	}
	if len(h.tasks) > 0 && h.seldom("any task", 4) {
		ids = append(ids, pick(h, "id", h.tasks))
	}
	granted, _ := ask(h, "grant", func(s store.Store, engine bool) (string, error) {
		n, err := s.Grant(h.ctx, term.of(engine), ids)
		return fmt.Sprint(n), err
	})
	h.same("granted", []string{granted.model}, []string{granted.engine})
}

// turnLines describes the turns of this history's queues. It ignores the order, which is determined only for tasks
// that have waited for nothing but their turn.
func (h *history) turnLines(turns []store.Turns) (lines []string) {
	for _, g := range turns {
		if slices.Contains(h.queues, g.Queue) {
			waiting := make([]string, len(g.Waiting))
			for i, id := range g.Waiting {
				waiting[i] = h.name(id)
			}
			slices.Sort(waiting)
			lines = append(lines, fmt.Sprintf("%s %q %q: %d held, waiting %q", g.Queue, g.Tenant, g.Partition, g.Held, waiting))
		}
	}
	slices.Sort(lines)
	return lines
}
