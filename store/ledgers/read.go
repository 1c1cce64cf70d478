package ledgers

import (
	"context"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// pageOf returns the maximum number of tasks on a page for a filter's limit.
func pageOf(limit int) int {
	if limit <= 0 {
		limit = 100
	}
	return min(limit, store.MaxPage)
}

// List implements store.Reader. It looks for tasks that are named by id first in the ledgers that the ids give.
func (s *Store) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if len(f.IDs) > 0 {
		return s.listNamed(ctx, f)
	}
	parts, err := fromAll(ctx, s, ask, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
		return e.List(ctx, f)
	})
	if err != nil {
		return nil, err
	}
	tasks := page(slices.Concat(parts...), f.Limit)
	s.tellNeeds(ctx, f, tasks)
	return tasks, nil
}

// tellNeeds sets the states of the tasks that listed tasks need, which may be in other ledgers. If such a state cannot
// be found, it remains as last known to the task's ledger.
func (s *Store) tellNeeds(ctx context.Context, f store.Filter, tasks []store.Task) {
	if !f.Detail || f.NoStates {
		return
	}
	var parents []store.ID
	for i := range tasks {
		for _, n := range tasks[i].Detail.Needs {
			parents = append(parents, n.Task)
		}
	}
	if len(parents) == 0 {
		return
	}
	found, err := s.whereAre(ctx, *s.all.Load(), parents)
	for i := range tasks {
		needs := tasks[i].Detail.Needs
		for k := range needs {
			if at, is := found[needs[k].Task]; is || err == nil {
				needs[k].State = at.state
			}
		}
	}
}

// page returns the newest of the listed tasks.
func page(tasks []store.Task, limit int) []store.Task {
	slices.SortFunc(tasks, func(a, b store.Task) int { return compareIDs(b.ID, a.ID) })
	return tasks[:min(len(tasks), pageOf(limit))]
}

func (s *Store) listNamed(ctx context.Context, f store.Filter) (tasks []store.Task, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(f.IDs)
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	err = inStages(all, ids, func(l *ledger, ids []store.ID) ([]store.ID, error) {
		found, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			part := f
			part.IDs = ids
			return listByID(ctx, e, part)
		})
		tasks = append(tasks, found...)
		return without(ids, found), err
	})
	tasks = page(tasks, f.Limit)
	s.tellNeeds(ctx, f, tasks)
	if len(tasks) == min(len(ids), pageOf(f.Limit)) {
		return tasks, nil
	}
	if err == nil {
		err = s.complete(ctx, all)
	}
	if err != nil { // a ledger that did not answer, or is unknown, may have the others
		err = heldError(err, without(ids, tasks))
	}
	return tasks, err
}

// without returns the ids whose tasks were not found.
func without(ids []store.ID, found []store.Task) []store.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id store.ID) bool {
		return slices.ContainsFunc(found, func(t store.Task) bool { return t.ID == id })
	})
}

var _ store.Searcher = (*Store)(nil)

// Search implements store.Searcher. Its position is that of the ledger that stopped first.
func (s *Store) Search(ctx context.Context, f store.Filter, budget int) ([]store.Task, store.ID, error) {
	type answer struct {
		tasks []store.Task
		last  store.ID
	}
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, store.ID{}, err
	}
	if len(f.IDs) > 0 {
		tasks, err := s.listNamed(ctx, f)
		if len(tasks) < pageOf(f.Limit) {
			return tasks, store.ID{}, err
		}
		return tasks, tasks[len(tasks)-1].ID, err
	}
	parts, err := fromAll(ctx, s, query, func(ctx context.Context, e *postgres.Store) (answer, error) {
		tasks, last, err := e.Search(ctx, f, max(budget/len(all), 1))
		return answer{tasks, last}, err
	})
	if err != nil {
		return nil, store.ID{}, err
	}
	var last store.ID
	var tasks []store.Task
	for _, p := range parts {
		if compareIDs(p.last, last) > 0 {
			last = p.last
		}
		tasks = append(tasks, p.tasks...)
	}
	tasks = slices.DeleteFunc(tasks, func(t store.Task) bool { return compareIDs(t.ID, last) < 0 })
	found := page(tasks, f.Limit)
	if len(found) < len(tasks) {
		last = found[len(found)-1].ID
	}
	return found, last, nil
}
