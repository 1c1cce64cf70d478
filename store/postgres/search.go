package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/store"
)

const (
	lookRows  = 5000                   // rows of a table that one statement reads
	lookLined = 1000                   // maximum number of waiting tasks that are read one by one
	lookHits  = 200                    // the minimum limit of hits of a statement
	lookTime  = 120 * time.Millisecond // after this time no further statement is begun
	wholeIDs  = 256                    // fewer ids are listed by one statement
)

type lookTable struct {
	name, state string
	states      []store.State
	only        string // the part of the table to search
}

// inLine selects the tasks that wait for their turn. They have no entries in most indexes.
const inLine = "s.line is not null"

// lookTables are the tables of tasks, with the states that tasks may have there. The log comes last, so that a task
// that is admitted in the meantime is found there if the log is searched separately.
var lookTables = []lookTable{
	{"waiting", "s.state, s.line", []store.State{store.Scheduled, store.Pending, store.Retryable}, "s.line is null"},
	{"unready", "s.state, s.line", []store.State{store.Pending}, inLine},
	{"dead", "s.state, null::timestamptz as line",
		[]store.State{store.Completed, store.Cancelled, store.Discarded}, ""},
	{"log", "null::smallint as state, null::timestamptz as line",
		[]store.State{store.Available, store.Running, store.Completed}, ""},
}

// Search implements store.Searcher. It reads a few columns of the newest rows of each
// table, and lists only the tasks that may match.
func (s *Store) Search(ctx context.Context, f store.Filter, budget int) (tasks []store.Task, last store.ID, err error) {
	f.Limit = pageOf(f.Limit)
	if listed(&f) {
		if tasks, err = s.list(ctx, f); err == nil && len(tasks) == f.Limit {
			last = tasks[len(tasks)-1].ID
		}
		return tasks, last, err
	}
	if slices.Contains(f.States, store.Running) && !slices.Contains(f.States, store.Completed) {
		return s.searchRunning(ctx, f, budget)
	}
	begun := time.Now()
	for cursor := f.Before; ; cursor = last {
		rows := min(lookRows, budget)
		var ids []store.ID
		if ids, last, err = s.look(ctx, &f, cursor, rows); err != nil {
			return nil, last, fmt.Errorf("search: %w", err)
		}
		for part := range slices.Chunk(ids, f.Limit) {
			page := f
			page.IDs, page.Before, page.Limit = part, store.ID{}, f.Limit-len(tasks)
			found, err := s.listHalves(ctx, page)
			if err != nil {
				return nil, last, err
			}
			if tasks = append(tasks, found...); len(tasks) >= f.Limit {
				tasks = tasks[:f.Limit]
				return tasks, tasks[f.Limit-1].ID, nil
			}
		}
		if budget -= rows; last.IsZero() || budget <= 0 || time.Since(begun) > lookTime {
			return tasks, last, nil
		}
	}
}

// listHalves lists tasks by their ids, newest first. It reads a large page on two connections, half on each.
func (s *Store) listHalves(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if len(f.IDs) < wholeIDs {
		return s.list(ctx, f)
	}
	var halves [2][]store.Task
	both, ctx := errgroup.WithContext(ctx)
	for i := range halves {
		half, middle := f, len(f.IDs)/2
		half.IDs = [2][]store.ID{f.IDs[:middle], f.IDs[middle:]}[i]
		both.Go(func() (err error) {
			halves[i], err = s.list(ctx, half)
			return err
		})
	}
	err := both.Wait()
	return slices.Concat(halves[0], halves[1]), err
}

// searchRunning searches for running tasks and for others that are not completed. It lists the running ones, because
// a search for them would read the whole history of the log. It lists them last, so that a task that is claimed in
// the meantime is found twice rather than missed.
func (s *Store) searchRunning(ctx context.Context, f store.Filter, budget int) ([]store.Task, store.ID, error) {
	running, others := f, f
	running.States = []store.State{store.Running}
	others.States = slices.DeleteFunc(slices.Clone(f.States), func(state store.State) bool { return !runsNot(state) })
	found, last, err := s.Search(ctx, others, budget)
	if err != nil {
		return nil, last, err
	}
	tasks, err := s.list(ctx, running)
	if err != nil {
		return nil, last, fmt.Errorf("search: %w", err)
	}
	tasks = append(tasks, found...)
	slices.SortStableFunc(tasks, func(a, b store.Task) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	tasks = slices.CompactFunc(tasks, func(a, b store.Task) bool { return a.ID == b.ID })
	// Tasks below the last id have not been searched for everywhere.
	if i := slices.IndexFunc(tasks, func(t store.Task) bool { return bytes.Compare(t.ID[:], last[:]) < 0 }); i >= 0 {
		tasks = tasks[:i]
	}
	if len(tasks) >= f.Limit {
		tasks = tasks[:f.Limit]
		last = tasks[f.Limit-1].ID
	}
	return tasks, last, nil
}

// listed reports whether one statement finds the tasks of a filter without reading other rows, as it does for ids and
// for running tasks.
func listed(f *store.Filter) bool {
	return len(f.IDs) > 0 || len(f.States) > 0 && !slices.ContainsFunc(f.States, runsNot)
}

func runsNot(state store.State) bool { return state != store.Running }

// look returns the ids below cursor that may match, newest first, and the id down to which it has searched, which is
// zero if it has searched all.
func (s *Store) look(
	ctx context.Context, f *store.Filter, cursor store.ID, rows int,
) (ids []store.ID, floor store.ID, err error) {
	most := max(f.Limit+f.Limit/4, lookHits)
	below := *f
	below.Before = cursor
	var tables []*lookTable
	for i := range lookTables {
		t := &lookTables[i]
		if t.only == inLine && exact(f) { // tasks in line_1 and line_2 have none of these
			continue
		}
		if len(f.States) == 0 || slices.ContainsFunc(f.States, func(state store.State) bool {
			return slices.Contains(t.states, state)
		}) {
			tables = append(tables, t)
		}
	}
	var log []*lookTable // the log, if the catalogue may help
	if last := len(tables) - 1; last >= 0 && tables[last].name == "log" && !direct(f) && catalogued(f) {
		tables, log = tables[:last], tables[last:]
	}
	var found []lookFound
	if len(tables) > 0 {
		if found, err = s.lookInto(ctx, &below, tables, rows, most); err != nil {
			return nil, floor, err
		}
	}
	if len(log) > 0 {
		hits, end, known, err := s.lookLog(ctx, &below, rows, most)
		if err != nil {
			return nil, floor, err
		}
		in := []lookFound{{hits, end}}
		if !known {
			if in, err = s.lookInto(ctx, &below, log, rows, most); err != nil {
				return nil, floor, err
			}
		}
		found = append(found, in...)
	}
	for _, in := range found {
		if bytes.Compare(in.end[:], floor[:]) > 0 {
			floor = in.end
		}
		ids = append(ids, in.ids...)
	}
	slices.SortFunc(ids, func(a, b store.ID) int { return bytes.Compare(b[:], a[:]) })
	ids = slices.Compact(ids)
	// Ids below the floor have not been searched for everywhere.
	if i := slices.IndexFunc(ids, func(id store.ID) bool { return bytes.Compare(id[:], floor[:]) < 0 }); i >= 0 {
		ids = ids[:i]
	}
	return ids, floor, nil
}

// direct reports whether every table has an index that finds the matching tasks, except for a tenant's tasks that
// wait for their turn.
func direct(f *store.Filter) bool { return exact(f) || len(f.Tenants) == 1 }

// exact reports whether the filter names a key, an error or a workflow, for which every table has an index.
func exact(f *store.Filter) bool { return f.Key != "" || f.Fingerprint != "" || !f.Workflow.IsZero() }

// whole reports whether the search uses an index that covers all waiting tasks, including those that wait for their
// turn: an index of exact, or the index of ids.
func whole(f *store.Filter) bool {
	states := 0
	for _, state := range lookTables[0].states {
		if slices.Contains(f.States, state) {
			states++
		}
	}
	byID := len(f.Tenants) != 1 && len(f.Kinds) == 0 && len(f.Queues) == 0 &&
		(len(f.States) == 0 || states == len(lookTables[0].states))
	return exact(f) || byID
}

// catalogued reports whether the catalogue of the log is useful.
func catalogued(f *store.Filter) bool {
	return len(f.Kinds) > 0 || len(f.Queues) > 0 || len(f.Tags) > 0 || len(f.States) > 0 || !f.From.IsZero() ||
		!f.Until.IsZero()
}
