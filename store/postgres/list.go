package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// List implements store.Reader. If no single statement finds the tasks without reading many
// others, List searches for them.
func (s *Store) List(ctx context.Context, f store.Filter) (tasks []store.Task, err error) {
	if listed(&f) {
		return s.list(ctx, f)
	}
	f.Limit = pageOf(f.Limit)
	for limit := f.Limit; ; {
		page, last, err := s.Search(ctx, f, math.MaxInt)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		tasks = append(tasks, page...)
		if f.Before, f.Limit = last, limit-len(tasks); last.IsZero() || f.Limit == 0 {
			return tasks, nil
		}
	}
}

// pageOf returns the maximum number of tasks of a page for the limit of a filter.
func pageOf(limit int) int {
	if limit <= 0 {
		limit = 100
	}
	return min(limit, store.MaxPage)
}

// list is List by one statement.
func (s *Store) list(ctx context.Context, f store.Filter) ([]store.Task, error) {
	where, args := s.where(&f)
	var tasks []store.Task
	list := step{text: s.listText(&f, where, pageOf(f.Limit)), args: args, row: func(raw [][]byte) error {
		var t store.Task
		readTask(&t, raw)
		t.Lease, t.Queue = idOf(raw[17]), string(raw[19])
		t.State, t.Reason, t.FinishedAt = stateOf(raw[20]), string(raw[21]), timeOf(raw[22])
		if worker := idOf(raw[18]); t.State == store.Running {
			t.Worker = worker
		} else if worker != (store.ID{}) && f.Detail {
			t.Detail = completedBy(&t, worker)
		}
		tasks = append(tasks, t)
		return nil
	}}
	steps := []step{list}
	if len(f.IDs) > 0 {
		steps = s.pinned(list)
	}
	err := s.read(ctx, steps)
	if err == nil && f.Detail && len(tasks) > 0 {
		err = s.addDetails(ctx, tasks, f.NoStates)
	}
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return tasks, nil
}

// places are the views of tasks, with the states that tasks have there.
var places = []struct {
	view   string
	states []store.State
}{
	{"waiting_tasks", []store.State{store.Scheduled, store.Pending, store.Retryable}},
	// completed tasks are here if more than the completion has to be kept
	{"dead_tasks", []store.State{store.Completed, store.Cancelled, store.Discarded}},
	{"running_tasks", []store.State{store.Running}},
	{"available_tasks", []store.State{store.Available}},
	{"completed_tasks", []store.State{store.Completed}},
}

// manyIDs is the number of ids from which several tasks may have been completed by one flush.
const manyIDs = 16

// listText returns SQL that reads the newest tasks of each place that may have
// tasks of the filter's states, and takes the newest of these. Tasks that the
// filter names are read one by one.
func (s *Store) listText(f *store.Filter, where string, limit int) string {
	end := "\norder by id desc\nlimit " + strconv.Itoa(limit)
	list := strings.TrimSpace(s.sql["list"])
	if f.NoArgs {
		list = strings.Replace(list, "s.args", "null::bytea as args", 1)
	}
	if len(f.IDs) > 0 {
		of := "list_of_few"
		if len(f.IDs) >= manyIDs {
			of = "list_of_many"
		}
		return list + " " + s.sql[of] + " s" + where + end
	}
	var parts []string
	for _, p := range places {
		if len(f.States) == 0 || slices.ContainsFunc(f.States, func(state store.State) bool {
			return slices.Contains(p.states, state)
		}) {
			parts = append(parts, "("+list+" "+s.program+"."+p.view+" s"+where+end+")")
		}
	}
	return "select * from (\n" + strings.Join(parts, "\nunion all\n") + ") s" + end
}

// where returns the conditions of a filter as a clause, and the arguments.
func (s *Store) where(f *store.Filter) (text string, args []any) {
	var c conditions
	if len(f.IDs) > 0 {
		c.arg(uuidsOf(f.IDs))
	}
	c.of(f)
	return c.text(), c.args
}
