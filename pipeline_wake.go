package tusk

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// How a waiting run of a pipeline is notified that the run before it has ended.

const (
	mostEndedRuns = 1000 // maximum number of ended runs to process later; runs that wait for others check by themselves
	wakeWithin    = 5 * time.Second
)

// endedRun is a run that another run with its key may have waited for.
type endedRun struct{ kind, tenant, key string }

// endedRuns are the runs that have ended recently.
type endedRuns struct {
	mu   sync.Mutex
	all  []endedRun
	busy bool // wakeRuns is running
}

// ended receives stored outcomes. If they end runs, the runs that wait for these check again, in the background and
// one after the other. Refused outcomes do not count.
func (c *Client) ended(outcomes []store.Outcome, lost map[ID]bool) {
	r := &c.endedRuns
	for i := range outcomes {
		o := &outcomes[i]
		if endsRun(o) && (!lost[o.Task.ID] || o.Error == errUnproved.Error()) { // CompleteTx has stored its end before
			r.add(o.Task)
		}
	}
	c.wakeSoon()
}

// add records the run of a task that has ended.
func (r *endedRuns) add(t *store.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) < mostEndedRuns {
		r.all = append(r.all, endedRun{t.Kind, t.Tenant, t.Key})
	}
}

// wakeSoon makes wakeRuns run in the background if runs have ended.
func (c *Client) wakeSoon() {
	r := &c.endedRuns
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) > 0 && !r.busy {
		r.busy = true
		go c.wakeRuns()
	}
}

// edit applies an operator's change. If it ends runs, the runs that wait for these check again. It returns once they
// do, because the process may be about to exit. If they cannot be found, they check by themselves.
func (c *Client) edit(ctx context.Context, e store.Edit) ([]Edited, error) {
	var runs []store.Task
	if e.Change.Op == store.Cancel || e.Change.Op == store.Delete {
		runs = c.runsOf(ctx, e.IDs)
	}
	edited, err := c.store.Edit(ctx, e)
	for i := range edited {
		if edited[i].Result != store.Changed {
			id := edited[i].ID
			runs = slices.DeleteFunc(runs, func(t store.Task) bool { return t.ID == id })
		}
	}
	if len(edited) == 0 {
		runs = nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeWithin)
	defer cancel()
	for i := range runs {
		if i >= runsAtOnce || ctx.Err() != nil {
			c.endedRuns.add(&runs[i])
		} else if err := c.wakeRunsAfter(ctx, endedRun{runs[i].Kind, runs[i].Tenant, runs[i].Key}); err != nil {
			c.config.Logger.Warn("run: those that wait for a cancelled run look by themselves", "error", err)
		}
	}
	c.wakeSoon()
	return edited, err
}

// runsOf returns those tasks whose end may end a run that another one waits for.
func (c *Client) runsOf(ctx context.Context, ids []ID) []store.Task {
	if any, err := c.pipelines.any(ctx, c); len(ids) == 0 || !any || err != nil {
		return nil
	}
	tasks, err := c.store.List(ctx, store.Filter{IDs: ids, NoArgs: true, Limit: len(ids)})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(tasks, func(t store.Task) bool {
		return t.Key == "" || ReservedKey(t.Key) || !strings.Contains(t.Kind, ".") || t.State.Finished()
	})
}

// wakingStore makes the changes of operations wake runs, too.
type wakingStore struct {
	store.Store
	client *Client
}

// Unwrap returns the store, for its capabilities.
func (s wakingStore) Unwrap() store.Store { return s.Store }

// Edit implements store.Editor.
func (s wakingStore) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	return s.client.edit(ctx, e)
}

// endsRun reports whether an outcome may end a run, or let the run that waits for it begin.
func endsRun(o *store.Outcome) bool {
	t := o.Task
	goesOn := func(next store.NewTask) bool { return next.Key == t.Key }
	// A task that is handed back or put off may have been cancelled meanwhile; its engine then ends it.
	ends := o.State.Finished() || o.State == store.Retryable || o.State == store.Available ||
		o.State == store.Scheduled && !o.Unbegun
	return ends && t.Key != "" && !ReservedKey(t.Key) &&
		strings.Contains(t.Kind, ".") && !slices.ContainsFunc(o.Then, goesOn)
}

// wakeRuns calls wakeRunsAfter for the ended runs until none is left.
func (c *Client) wakeRuns() {
	r := &c.endedRuns
	for {
		r.mu.Lock()
		if len(r.all) == 0 {
			r.all, r.busy = nil, false
			r.mu.Unlock()
			return
		}
		of := r.all[0]
		r.all = r.all[1:]
		r.mu.Unlock()
		if err := c.wakeRunsAfter(context.Background(), of); err != nil {
			c.config.Logger.Warn("run: those that wait for another run of their key look by themselves", "kind", of.kind,
				"error", err)
		}
	}
}

// wakeRunsAfter makes the runs that wait for a run with the same key check again.
func (c *Client) wakeRunsAfter(ctx context.Context, of endedRun) error {
	ctx, cancel := context.WithTimeout(ctx, wakeWithin)
	defer cancel()
	p, _, err := c.pipelines.find(ctx, c, of.kind)
	if err != nil || p == nil {
		return err
	}
	queues := p.Queues()
	if len(queues) == 1 {
		return nil // see runAhead
	}
	tasks, err := c.store.List(ctx, store.Filter{Key: of.key, Tenants: []string{of.tenant}, Queues: queues,
		States: []store.State{store.Scheduled}, NoArgs: true, Detail: true, Limit: len(queues)})
	var ids []ID
	for i := range tasks {
		if t := &tasks[i]; awaitsRun(t) && p.has(t.Kind) {
			ids = append(ids, t.ID)
		}
	}
	if err != nil || len(ids) == 0 {
		return err
	}
	_, err = c.store.Edit(ctx, store.Edit{IDs: ids, Change: Change{Op: store.Reschedule}})
	return err
}
