package query

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// SurveyBudget is how many tasks are looked through for a page, to find out which
// tenants and which workflows there are: no engine keeps a list of either.
const SurveyBudget = 2000

// look passes tasks within bounds to each until budget tasks are looked through. looked is how many it passed; more is
// where to go on; zero: that was all.
func look(
	ctx context.Context, client *tusk.Client, within Bounds, f tusk.Filter, budget int,
	each func(tusk.TaskInfo) (enough bool),
) (looked int, more tusk.ID, err error) {
	if !narrow(&f, within) {
		return 0, more, nil
	}
	s := sized{kept: PageBytes * 3 / 4} // what is loaded is garbage soon, so less of it at a time
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

// TenantSum is what a survey found of a tenant.
type TenantSum struct {
	Name   string
	Queues []string
	Counts map[string]int64 // unfinished tasks that were looked at, by state
	Oldest time.Time        // when the first of them was enqueued
}

// Tenants sums up the newest unfinished tasks by tenant. Names that are known
// otherwise are there in any case. whole says that no task was left out.
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

// WorkflowSum is what is told of a workflow in a list.
type WorkflowSum struct {
	ID     tusk.ID
	Kinds  []string // of its tasks, in alphabetical order
	States map[string]int64
	Tasks  int
	Most   bool // there are more tasks than were counted
	Newest time.Time
	Began  time.Time // when the oldest of the counted tasks was enqueued
	Ended  time.Time // when the last of them ended; zero: some have not
}

// Took is how long the workflow took; zero: it goes on, or not all of it was counted.
func (sum *WorkflowSum) Took() time.Duration {
	if sum.Ended.IsZero() || sum.Most {
		return 0
	}
	return sum.Ended.Sub(sum.Began)
}

// MaxWorkflows is how many workflows a list has at a time.
const MaxWorkflows = 25

// Workflows lists the workflows that the newest tasks belong to, those first that
// got a task last: those with a task that f chooses. more is where to go on; zero: there
// are no others.
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
	first, err := client.List(ctx, tusk.Filter{IDs: []tusk.ID{id}}) // of a pipeline's run, or a task with children
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
