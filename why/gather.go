package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/store"
)

// Limits on what is read: tasks per query, groups of tasks that wait for turns, and the first tasks
// of each group.
const (
	looked     = 250
	turnGroups = 1000
	turnHeads  = 100
)

// Task returns a task and the reasons why it does not run. The error is tusk.ErrNotFound if it does
// not exist.
func Task(ctx context.Context, client *tusk.Client, id tusk.ID) (*tusk.TaskInfo, []Reason, error) {
	t, err := client.Get(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	f, err := Gather(ctx, client, *t, nil)
	if err != nil {
		return nil, nil, err
	}
	return t, Explain(f), nil
}

// Gather reads what Explain needs about a task that Client.Get returned. sees reports which other
// tasks may be named; nil means all. If it is set, totals over other tasks are left out.
func Gather(
	ctx context.Context, client *tusk.Client, t tusk.TaskInfo, sees func(queue, tenant string) bool,
) (Facts, error) {
	g := gatherer{client: client, facts: Facts{Now: time.Now(), Task: t, Leads: true, Bounded: sees != nil}, sees: sees}
	if sees == nil {
		g.sees = everything
	}
	steps := []func(context.Context) error{g.needs, g.key}
	if !t.State.Finished() {
		steps = append(steps, g.health, g.workers, g.served, g.paused, g.limits)
	}
	if t.State == store.Scheduled {
		steps = append(steps, g.run)
	}
	if t.State == store.Pending && t.Turn {
		steps = append(steps, g.turns)
	}
	if t.State == store.Pending || t.State == store.Available {
		steps = append(steps, g.holders)
	}
	if t.State == store.Available {
		steps = append(steps, g.ahead)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return g.facts, fmt.Errorf("why: %w", err)
		}
	}
	return g.facts, nil
}

type gatherer struct {
	client *tusk.Client
	facts  Facts
	sees   func(queue, tenant string) bool
}

func everything(queue, tenant string) bool { return true }

// list returns the matching tasks that may be named, without the task itself.
func (g *gatherer) list(ctx context.Context, f tusk.Filter) ([]tusk.TaskInfo, error) {
	f.NoArgs = true // they may have 16 MiB each
	found, err := g.client.List(ctx, f)
	return slices.DeleteFunc(found, func(t tusk.TaskInfo) bool {
		return t.ID == g.facts.Task.ID || !g.sees(t.Queue, t.Tenant)
	}), err
}

func (g *gatherer) health(ctx context.Context) error {
	e, ok := store.As[store.Examiner](g.client.Store())
	if !ok {
		return nil
	}
	h, err := e.Examine(ctx)
	g.facts.Now, g.facts.Leads = h.Now, h.Leader.Held
	return err
}

func (g *gatherer) workers(ctx context.Context) (err error) {
	g.facts.Workers, err = g.client.Workers(ctx)
	return err
}

// served checks whether an endpoint is called with the tasks of the task's queue.
func (g *gatherer) served(ctx context.Context) error {
	records, err := g.client.Store().Records(ctx, store.RecordFilter{Kind: "endpoint"})
	g.facts.Served = slices.ContainsFunc(records, func(r store.Record) bool { return r.Name == g.facts.Task.Queue })
	return err
}

func (g *gatherer) paused(ctx context.Context) (err error) {
	g.facts.Paused, err = g.client.Paused(ctx, g.facts.Task.Queue)
	return err
}

func (g *gatherer) limits(ctx context.Context) error {
	all, err := g.client.Limits(ctx)
	if l, ok := all[g.facts.Task.Queue]; ok {
		g.facts.Limits = &l
	}
	return err
}

func (g *gatherer) turns(ctx context.Context) error {
	all, err := g.client.Store().Turns(ctx, 0, turnGroups, turnHeads)
	if err != nil {
		return err
	}
	g.facts.Turns = slices.DeleteFunc(all, func(t store.Turns) bool { return t.Queue != g.facts.Task.Queue })
	records, err := g.client.Store().Records(ctx, store.RecordFilter{Kind: allot.StateKind})
	if err != nil {
		return err
	}
	book, err := allot.OpenBook(g.facts.Task.Queue, records)
	g.facts.Rates = book.Usage
	return err
}

// needs removes the needed tasks that may not be named.
func (g *gatherer) needs(ctx context.Context) error {
	if !g.facts.Bounded || g.facts.Task.Detail == nil {
		return nil
	}
	detail, seen := *g.facts.Task.Detail, map[tusk.ID]bool{}
	for part := range slices.Chunk(detail.Needs, looked) {
		f := tusk.Filter{Limit: looked}
		for _, n := range part {
			f.IDs = append(f.IDs, n.Task)
		}
		found, err := g.list(ctx, f)
		if err != nil {
			return err
		}
		for _, t := range found {
			seen[t.ID] = true
		}
	}
	detail.Needs = slices.DeleteFunc(slices.Clone(detail.Needs), func(n store.NeedState) bool { return !seen[n.Task] })
	g.facts.Task.Detail = &detail
	return nil
}

// key finds another unfinished task with the same key.
func (g *gatherer) key(ctx context.Context) error {
	t := &g.facts.Task
	if t.Key == "" {
		return nil
	}
	found, err := g.list(ctx, tusk.Filter{Queues: []string{t.Queue}, Tenants: []string{t.Tenant}, Key: t.Key, Limit: 10,
		States: []tusk.State{store.Scheduled, store.Pending, store.Available, store.Running, store.Retryable}})
	for i := range found {
		if g.facts.Key == nil || found[i].State == store.Running {
			g.facts.Key = &found[i]
		}
	}
	return err
}

// run finds the pipeline run that the task waits for.
func (g *gatherer) run(ctx context.Context) error {
	ahead, err := g.client.RunAhead(ctx, &g.facts.Task)
	if ahead != nil && g.sees(ahead.Queue, ahead.Tenant) {
		g.facts.Run = ahead
	}
	return err
}

// holders finds running tasks of the task's queue, those that have run longest first.
func (g *gatherer) holders(ctx context.Context) error {
	if g.facts.Limits == nil {
		return nil
	}
	found, err := g.list(ctx, tusk.Filter{Queues: []string{g.facts.Task.Queue}, States: []tusk.State{store.Running},
		Limit: looked})
	slices.SortFunc(found, func(a, b tusk.TaskInfo) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	g.facts.Holders = found
	return err
}

// ahead finds available tasks of the task's queue that are claimed before it. It looks among the
// newest, some of which may have a higher priority, and among those just before the task.
func (g *gatherer) ahead(ctx context.Context) error {
	t := &g.facts.Task
	seen := map[tusk.ID]bool{}
	for _, before := range []tusk.ID{{}, t.ID} {
		found, err := g.client.List(ctx, tusk.Filter{Queues: []string{t.Queue}, States: []tusk.State{store.Available},
			Before: before, Limit: looked, NoArgs: true})
		if err != nil {
			return err
		}
		for _, o := range found {
			if !seen[o.ID] && g.sees(o.Queue, o.Tenant) &&
				(o.Priority < t.Priority || o.Priority == t.Priority && older(&o, t)) {
				g.facts.Ahead = append(g.facts.Ahead, o)
			}
			seen[o.ID] = true
		}
		g.facts.More = g.facts.More || len(found) == looked
	}
	slices.SortFunc(g.facts.Ahead, func(a, b tusk.TaskInfo) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.RunAt.Compare(b.RunAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return nil
}

// older reports whether a task became available before another task of its priority.
func older(a, b *tusk.TaskInfo) bool {
	if !a.RunAt.Equal(b.RunAt) {
		return a.RunAt.Before(b.RunAt)
	}
	return slices.Compare(a.ID[:], b.ID[:]) < 0
}
