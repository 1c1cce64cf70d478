package postgres

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// needColumns returns the needs of tasks in columns: the number of the task, from 1,
// the parent, and what to do if the parent fails.
func needColumns(tasks []store.NewTask) []any {
	of, parents, policies := []int32{}, uuids{}, []int16{}
	for i := range tasks {
		for _, n := range tasks[i].Needs {
			of, parents, policies = append(of, int32(i+1)), append(parents, n.Task), append(policies, int16(n.OnFailure))
		}
	}
	return []any{of, parents, policies}
}

// settle checks the parents of enqueued tasks after the commit. A parent may have ended at
// the same moment, so that its worker did not see the child and the enqueue did not see the
// end. A parent whose end is not visible yet is left to Admit, and so is everything that
// fails here.
func (s *Store) settle(ctx context.Context, children uuids) {
	if len(children) == 0 {
		return
	}
	for wait := time.Millisecond; wait < 10*time.Millisecond; wait *= 2 {
		doubts := 0
		err := s.write(ctx, s.pinned(s.do("settle_children", children).into(func(raw [][]byte) error {
			s.ring(string(raw[0]))
			return nil
		}), s.do("doubts_left", children).into(func(raw [][]byte) error {
			doubts = int(int32Of(raw[0]))
			return nil
		})))
		if err != nil || doubts == 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// inDoubt returns the tasks that need tasks of other calls.
func inDoubt(tasks []store.NewTask) (children uuids) {
	var own map[store.ID]bool
	for i := range tasks {
		for _, n := range tasks[i].Needs {
			if own == nil {
				own = newIDs(tasks)
			}
			if !own[n.Task] {
				children = append(children, tasks[i].ID)
				break
			}
		}
	}
	return children
}

// newIDs returns the ids of tasks that are certain to be stored under them.
func newIDs(tasks []store.NewTask) map[store.ID]bool {
	ids := make(map[store.ID]bool, len(tasks))
	for i := range tasks {
		if tasks[i].Key == "" {
			ids[tasks[i].ID] = true
		}
	}
	return ids
}

// extras are what outcomes contain in addition to the ends of their attempts.
type extras struct {
	tasks       []store.NewTask // to enqueue
	survey      *survey         // of these tasks
	children    uuids           // tasks that become pending
	of          []int32         // the number of the child, from 1, for each need
	parents     uuids
	policies    []int16
	yield, keep uuids // tasks that give back their turns, and those among them that keep them if they run again
	going       []*store.Outcome
	doubts      uuids
}

// hasExtras reports whether an outcome contains more than the end of an attempt.
func hasExtras(o *store.Outcome) bool { return o.Task.Turn || bringsMore(o) }

// bringsMore reports whether an outcome contains tasks or needs. hasExtras also counts a
// turn.
func bringsMore(o *store.Outcome) bool { return len(o.Then) > 0 || o.State == store.Pending }

// goesOn reports whether an outcome contains tasks that must be dropped if its task is
// cancelled instead of running again.
func goesOn(o *store.Outcome) bool { return len(o.Then) > 0 && !o.State.Finished() }

func extrasOf(outcomes []*store.Outcome) *extras {
	x := &extras{children: uuids{}, of: []int32{}, parents: uuids{}, policies: []int16{}, yield: uuids{}, keep: uuids{}}
	for _, o := range outcomes {
		x.tasks = append(x.tasks, o.Then...)
		if goesOn(o) {
			x.going = append(x.going, o)
		}
		if o.Task.Turn {
			x.yield = append(x.yield, o.Task.ID)
			if o.State == store.Available || o.KeepTurn && (o.State == store.Retryable || o.State == store.Scheduled) {
				x.keep = append(x.keep, o.Task.ID)
			}
		}
	}
	x.survey = surveyOf(x.tasks)
	x.doubts = x.survey.doubts
	own := newIDs(x.tasks)
	for _, o := range outcomes {
		if o.State != store.Pending {
			continue
		}
		x.children = append(x.children, o.Task.ID)
		doubt := false
		for _, n := range o.Needs {
			x.of = append(x.of, int32(len(x.children)))
			x.parents, x.policies = append(x.parents, n.Task), append(x.policies, int16(n.OnFailure))
			doubt = doubt || !own[n.Task]
		}
		if doubt {
			x.doubts = append(x.doubts, o.Task.ID)
		}
	}
	return x
}

// args returns the last parameters of the functions finish_more and finish_tx.
func (x *extras) args() []any {
	n := len(x.going)
	going, tokens, queues, keys := make(uuids, n), make(uuids, n), make([]int64, n), make([]*string, n)
	for i, o := range x.going {
		t := o.Task
		going[i], tokens[i], queues[i], keys[i] = t.ID, t.Lease, hashOf(t.Queue), orNull(tenantKey(t.Tenant, t.Key))
	}
	args := append(columns(x.tasks), needColumns(x.tasks)...)
	return append(args, x.children, x.of, x.parents, x.policies, x.yield, x.keep, going, tokens, queues, keys)
}
