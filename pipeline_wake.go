package tusk

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// How a run of a pipeline that waits for another one learns of its end.

const (
	mostEndedRuns = 1000 // maximum number of ended runs to look at later; runs that wait for others look by themselves
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

// ended receives stored outcomes. In the background, one run after the other, it makes the runs look again that waited
// for one that has ended. Refused outcomes do not count.
func (c *Client) ended(outcomes []store.Outcome, lost map[ID]bool) {
	r := &c.endedRuns
	for i := range outcomes {
		o := &outcomes[i]
		if !endsRun(o) || lost[o.Task.ID] {
			continue
		}
		r.mu.Lock()
		if len(r.all) < mostEndedRuns {
			r.all = append(r.all, endedRun{o.Task.Kind, o.Task.Tenant, o.Task.Key})
		}
		if !r.busy {
			r.busy = true
			go c.wakeRuns()
		}
		r.mu.Unlock()
	}
}

// endsRun reports whether an outcome may end a run, or let the run that waits for it begin.
func endsRun(o *store.Outcome) bool {
	t := o.Task
	goesOn := func(next store.NewTask) bool { return next.Key == t.Key }
	return (o.State.Finished() || o.State == store.Retryable) && t.Key != "" && !ReservedKey(t.Key) &&
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
		if err := c.wakeRunsAfter(of); err != nil {
			c.config.Logger.Warn("run: those that wait for another run of their key look by themselves", "kind", of.kind,
				"error", err)
		}
	}
}

// wakeRunsAfter makes the runs that wait for a run with the same key look again.
func (c *Client) wakeRunsAfter(of endedRun) error {
	ctx, cancel := context.WithTimeout(context.Background(), wakeWithin)
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
		States: []store.State{store.Scheduled}, NoArgs: true, Limit: len(queues)})
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
