package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	lookRows = 5000                   // of a table, in one statement
	lookTime = 150 * time.Millisecond // after which no other statement is begun
)

// lookTables are where tasks lie, with the states that they may have there.
var lookTables = []struct {
	name, state string
	states      []store.State
}{
	{"task", "null::smallint", []store.State{store.Available, store.Running, store.Completed}},
	{"waiting", "s.state", []store.State{store.Scheduled, store.Pending, store.Retryable}},
	{"dead", "s.state", []store.State{store.Completed, store.Cancelled, store.Discarded}},
}

// Search implements store.Searcher. It looks at narrow parts of the newest rows of
// each table, and asks List for those alone that may match.
func (s *Store) Search(ctx context.Context, f store.Filter, budget int) (tasks []store.Task, last store.ID, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, store.MaxPage)
	if listed(&f) {
		if tasks, err = s.List(ctx, f); err == nil && len(tasks) == f.Limit {
			last = tasks[len(tasks)-1].ID
		}
		return tasks, last, err
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
			found, err := s.List(ctx, page)
			if err != nil {
				return nil, last, err
			}
			if tasks = append(tasks, found...); len(tasks) == f.Limit {
				return tasks, tasks[len(tasks)-1].ID, nil
			}
		}
		if budget -= rows; last.IsZero() || budget <= 0 || time.Since(begun) > lookTime {
			return tasks, last, nil
		}
	}
}

// listed reports whether List reads no more rows than it returns: by id and by
// workflow, and among those that run.
func listed(f *store.Filter) bool {
	return len(f.IDs) > 0 || !f.Workflow.IsZero() || len(f.States) == 1 && f.States[0] == store.Running
}

// look returns the ids below cursor that may match, newest first, and the id down
// to which it has looked; zero: to the end.
func (s *Store) look(ctx context.Context, f *store.Filter, cursor store.ID, rows int) (ids []store.ID, floor store.ID, err error) {
	most := max(4*f.Limit, 200)
	for _, t := range lookTables {
		if len(f.States) > 0 && !slices.ContainsFunc(f.States, func(state store.State) bool { return slices.Contains(t.states, state) }) {
			continue
		}
		text, args := s.lookText(f, t.name, t.state, cursor, rows, most)
		err := s.queryText(ctx, text, func(raw [][]byte) error {
			end, hits := store.ID{}, idsOf(raw[2])
			switch {
			case len(hits) == most:
				end = hits[most-1]
			case int(int64Of(raw[0])) == rows:
				end = idOf(raw[1])
			}
			if bytes.Compare(end[:], floor[:]) > 0 {
				floor = end
			}
			ids = append(ids, hits...)
			return nil
		}, args...)
		if err != nil {
			return nil, floor, err
		}
	}
	slices.SortFunc(ids, func(a, b store.ID) int { return bytes.Compare(b[:], a[:]) })
	ids = slices.Compact(ids)
	// What lies below the floor has not been looked at everywhere.
	if i := slices.IndexFunc(ids, func(id store.ID) bool { return bytes.Compare(id[:], floor[:]) < 0 }); i >= 0 {
		ids = ids[:i]
	}
	return ids, floor, nil
}

// lookText has the conditions that an index helps with among those that choose the
// rows to look at, and the others among those that choose from them.
func (s *Store) lookText(f *store.Filter, table, state string, cursor store.ID, rows, most int) (text string, args []any) {
	base, rest := *f, *f
	base.States, base.Queues, base.Kinds, base.Tags, base.From, base.Until = nil, nil, nil, nil, time.Time{}, time.Time{}
	rest.Tenants, rest.Key, rest.Fingerprint, rest.Before = nil, "", "", store.ID{}
	if table == "task" {
		rest.States = nil // what a task of the log is now only the views know
	}
	if base.Before = cursor; len(base.Tenants) != 1 {
		base.Tenants, rest.Tenants = nil, f.Tenants
	}
	first, args := s.where(&base)
	second, more := s.where(&rest)
	for i := len(more); i > 0; i-- {
		second = strings.ReplaceAll(second, "$"+strconv.Itoa(i), "$"+strconv.Itoa(i+len(args)))
	}
	// The way of an index: a tenant of a task is never empty text.
	first = strings.ReplaceAll(first, "coalesce(s.tenant, '') = any($1)", "s.tenant = ($1::text[])[1]")
	text = strings.NewReplacer("{state}", state, "{table}", table, "{base}", first, "{rest}", second,
		"{rows}", strconv.Itoa(rows), "{most}", strconv.Itoa(most)).Replace(s.sql["look"])
	return text, append(args, more...)
}
