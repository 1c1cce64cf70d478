package query

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// SurveyBudget is how many tasks are read for a page in order to find the tenants or workflows. No engine keeps a
// list of them.
const SurveyBudget = 2000

// look passes tasks within bounds to each, until it returns true or budget tasks have been read. looked is how many
// it passed; more is where to continue, or zero if there is nothing more.
func look(
	ctx context.Context, client *tusk.Client, within Bounds, f tusk.Filter, budget int,
	each func(tusk.TaskInfo) (enough bool),
) (looked int, more tusk.ID, err error) {
	if !narrow(&f, within) {
		return 0, more, nil
	}
	s := sized{kept: PageBytes * 3 / 4} // loaded tasks become garbage soon, so load fewer at a time
	f.NoArgs = true
	for s.tasks < budget {
		f.Limit = min(s.step(budget-s.tasks), store.MaxPage)
		tasks, next, err := client.Search(ctx, f, ListBudget)
		if err != nil {
			return looked, more, err
		}
		for _, t := range tasks {
			if s.add(&t, false); !within.Sees(t.Queue, t.Tenant) {
				continue
			}
			if looked++; each(t) {
				return looked, t.ID, nil
			}
		}
		if more = next; next.IsZero() || len(tasks) < f.Limit {
			break
		}
		f.Before = next
	}
	return looked, more, nil
}

// TenantSum is what a survey found about a tenant.
type TenantSum struct {
	Name   string
	Queues []string
	Counts map[string]int64 // the unfinished tasks that were read, by state
	Oldest time.Time        // when the oldest of them was enqueued
}

// Tenants sums up the newest unfinished tasks by tenant. The known names are always included. whole says that no task
// was left out.
func Tenants(
	ctx context.Context, client *tusk.Client, within Bounds, known []string, budget int,
) (tenants []TenantSum, looked int, whole bool, err error) {
	byName := map[string]*TenantSum{}
	find := func(name string) *TenantSum {
		if byName[name] == nil {
			byName[name] = &TenantSum{Name: name, Counts: map[string]int64{}}
		}
		return byName[name]
	}
	for _, name := range known {
		find(name)
	}
	unfinished := slices.DeleteFunc(store.States(), store.State.Finished)
	looked, more, err := look(ctx, client, within, tusk.Filter{States: unfinished}, budget, func(t tusk.TaskInfo) bool {
		if t.Tenant != "" {
			sum := find(t.Tenant)
			sum.Counts[t.State.String()]++
			sum.Oldest = t.EnqueuedAt
			if !slices.Contains(sum.Queues, t.Queue) {
				sum.Queues = append(sum.Queues, t.Queue)
			}
		}
		return false
	})
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name].Queues)
		tenants = append(tenants, *byName[name])
	}
	return tenants, looked, more.IsZero(), err
}

// WorkflowSum is the summary of a workflow in a list.
type WorkflowSum struct {
	ID     tusk.ID
	Kinds  []string // of its tasks, in alphabetical order
	States map[string]int64
	Tasks  int
	Most   bool // not all tasks were counted
	Newest time.Time
	Began  time.Time // when the oldest of the counted tasks was enqueued
	Ended  time.Time // when the last of them ended; zero if some have not
}

// Took returns how long the workflow took, or zero if it has not ended or not all tasks were counted.
func (sum *WorkflowSum) Took() time.Duration {
	if sum.Ended.IsZero() || sum.Most {
		return 0
	}
	return sum.Ended.Sub(sum.Began)
}

// MaxWorkflows is the largest number of workflows on a page.
const MaxWorkflows = 25

// Workflows lists the workflows of the newest tasks that f selects, those with the newest tasks first. more is where
// to continue, or zero if there are no others.
func Workflows(
	ctx context.Context, client *tusk.Client, within Bounds, f tusk.Filter, budget int,
) (flows []WorkflowSum, looked int, more tusk.ID, err error) {
	var ids []tusk.ID
	looked, more, err = look(ctx, client, within, f, budget, func(t tusk.TaskInfo) bool {
		if !t.Workflow.IsZero() && !slices.Contains(ids, t.Workflow) {
			ids = append(ids, t.Workflow)
		}
		return len(ids) == MaxWorkflows
	})
	if err != nil {
		return nil, looked, more, err
	}
	for _, id := range ids {
		sum, err := workflow(ctx, client, within, id)
		if err != nil {
			return nil, looked, more, err
		}
		flows = append(flows, sum)
	}
	slices.SortStableFunc(flows, func(a, b WorkflowSum) int { return b.Newest.Compare(a.Newest) })
	return flows, looked, more, nil
}

func workflow(ctx context.Context, client *tusk.Client, within Bounds, id tusk.ID) (WorkflowSum, error) {
	sum := WorkflowSum{ID: id, States: map[string]int64{}}
	count := func(t tusk.TaskInfo) bool {
		if within.Sees(t.Queue, t.Tenant) && (t.ID != id || t.Workflow.IsZero()) {
			sum.add(&t)
		}
		return false
	}
	_, more, err := look(ctx, client, within, tusk.Filter{Workflow: id}, store.MaxPage, count)
	if err != nil {
		return sum, err
	}
	sum.Most = !more.IsZero()
	// The first task of a pipeline's run, or a task with children, need not be a member of its workflow.
	first, err := client.List(ctx, tusk.Filter{IDs: []tusk.ID{id}})
	if err != nil {
		return sum, err
	}
	for _, t := range first {
		count(t)
	}
	slices.Sort(sum.Kinds)
	for state, n := range sum.States {
		if s, err := store.ParseState(state); n > 0 && (err != nil || !s.Finished()) {
			sum.Ended = time.Time{}
		}
	}
	return sum, nil
}

func (sum *WorkflowSum) add(t *tusk.TaskInfo) {
	sum.Tasks++
	sum.States[t.State.String()]++
	if t.EnqueuedAt.After(sum.Newest) {
		sum.Newest = t.EnqueuedAt
	}
	if sum.Began.IsZero() || t.EnqueuedAt.Before(sum.Began) {
		sum.Began = t.EnqueuedAt
	}
	if t.FinishedAt.After(sum.Ended) {
		sum.Ended = t.FinishedAt
	}
	if !slices.Contains(sum.Kinds, t.Kind) {
		sum.Kinds = append(sum.Kinds, t.Kind)
	}
}
