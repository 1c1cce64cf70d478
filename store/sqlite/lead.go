package sqlite

import (
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// lead is a way to find tasks along one index in the order of ids. A list follows one or more leads and merges what it
// finds.
type lead struct {
	from   string // the tables, and the index
	where  string // the condition that the index answers
	order  string
	values []any // of the parameters in where
}

const byID = "order by t.id desc"

func byIndex(index, column string, value any) lead {
	return lead{"from tusk_task t indexed by " + index, column + " = ?", byID, []any{value}}
}

// few is the maximum number of tasks that a list reads one by one rather than along an index in the order of ids.
const few = 20_000

// lead chooses the index with the fewest tasks that do not match.
func (l *list) lead() ([]lead, error) {
	f := &l.filter
	switch {
	case len(f.IDs) > 0:
		return []lead{byIDs(f.IDs)}, nil
	case f.Key != "":
		return []lead{byIndex("tusk_task_key", "t.key", f.Key)}, nil
	case !f.Workflow.IsZero():
		return []lead{byIndex("tusk_task_workflow", "t.workflow", f.Workflow)}, nil
	case len(f.Tags) > 0:
		return []lead{{"from tusk_tag g cross join tusk_task t indexed by tusk_task_id on t.id = g.id", "g.tag = ?",
			"order by g.id desc", []any{f.Tags[0]}}}, nil
	case f.Fingerprint != "":
		return l.byFailure()
	}
	for _, try := range []func() ([]lead, error){l.byState, l.byTenant, l.byTime, l.byKind} {
		if leads, err := try(); leads != nil || err != nil {
			return leads, err
		}
	}
	return []lead{{"from tusk_task t indexed by tusk_task_id", "t.id >= ?", byID, []any{[]byte{}}}}, nil
}

// byIDs finds tasks by their ids, newest first, so that no args are read of tasks that do not fit on the page.
func byIDs(ids []store.ID) lead {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b store.ID) int { return slices.Compare(b[:], a[:]) })
	return lead{
		"from json_each(coalesce(?, '[]')) j cross join tusk_task t indexed by tusk_task_id on t.id = unhex(j.value)", "true",
		byID,
		[]any{inHex(slices.Compact(ids))}}
}

func (l *list) byFailure() ([]lead, error) {
	leads := []lead{}
	err := l.each(l.ctx, "list.failures", func(r row) error {
		leads = append(leads, byIndex("tusk_task_failure", "t.failure", r.int(0)))
		return nil
	}, l.filter.Fingerprint)
	return leads, err
}

// byState finds tasks by state, if few tasks are in these states. Most tasks are completed or, in the worst case,
// available: these states are in no index of their own.
func (l *list) byState() ([]lead, error) {
	states := slices.Clone(l.filter.States)
	slices.Sort(states)
	states = slices.Compact(states)
	var leads []lead
	var live []store.ID
	for _, state := range states {
		switch state {
		case store.Completed:
			return nil, nil
		case store.Available, store.Running:
			ids, some, err := l.live(state)
			if err != nil || !some {
				return nil, err
			}
			live = append(live, ids...)
		default:
			// The number must be part of the text so that SQLite recognizes the index.
			leads = append(leads, lead{"from tusk_task t indexed by tusk_task_state", fmt.Sprintf("t.state = %d", state), byID,
				nil})
		}
	}
	if len(live) > 0 || len(states) > 0 && len(leads) == 0 {
		leads = append(leads, byIDs(live))
	}
	return leads, nil
}

// live returns the tasks in the log that are available, or running. It returns false if there are too many.
func (l *list) live(state store.State) (ids []store.ID, some bool, err error) {
	count, find := "list.available", "list.available.ids"
	if state == store.Running {
		count, find = "list.running", "list.running.ids"
	}
	r, err := one(l.ctx, l.session, count)
	if err != nil || r.int(0) > few {
		return nil, false, err
	}
	err = l.each(l.ctx, find, func(r row) error {
		if id := r.id(0); l.filter.Before.IsZero() || slices.Compare(id[:], l.filter.Before[:]) < 0 {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, true, err
}

func (l *list) byTenant() ([]lead, error) {
	var leads []lead
	for _, tenant := range l.filter.Tenants {
		if tenant == "" {
			return nil, nil // tasks without a tenant are in no index
		}
		leads = append(leads, byIndex("tusk_task_tenant", "t.tenant", tenant))
	}
	return leads, nil
}

// byTime finds the tasks of a short period. Rows are numbered from 1, in the order in which they were enqueued, so
// byTime finds the ends of the period by bisection. Restored tasks have lower numbers, in no order.
func (l *list) byTime() ([]lead, error) {
	if l.filter.From.IsZero() && l.filter.Until.IsZero() {
		return nil, nil
	}
	r, err := one(l.ctx, l.session, "list.ends")
	if err != nil || r == nil || r.null(0) {
		return nil, err
	}
	first, from, until := r.int(0), max(r.int(0), 1), r.int(1)+1
	if !l.filter.From.IsZero() {
		if from, err = l.halve(from, until, l.filter.From.Add(-slack)); err != nil {
			return nil, err
		}
	}
	if !l.filter.Until.IsZero() {
		if until, err = l.halve(from, until, l.filter.Until.Add(slack)); err != nil {
			return nil, err
		}
	}
	restored := max(1-first, 0)
	if max(until-from, 0)+restored > sortable {
		return nil, nil
	}
	leads := []lead{byNum(from, until)}
	if restored > 0 {
		leads = append(leads, byNum(first, 1))
	}
	return leads, nil
}

func byNum(from, until int64) lead {
	return lead{"from tusk_task t not indexed", "t.num >= ? and t.num < ?", byID, []any{from, until}}
}

const (
	// slack is how much the order of rows may differ from the order of their times, if a process has started after the
	// clock was set back; see stamp.
	slack = 2 * stampEvery * time.Microsecond
	// sortable is how many rows of a short period are read and sorted. That is quick, because only one page of them is
	// kept.
	sortable = 10 * few
)

// halve returns the first row in [from, until) that was enqueued at the given instant or later.
func (l *list) halve(from, until int64, at time.Time) (int64, error) {
	for from < until {
		middle := from + (until-from)/2
		r, err := one(l.ctx, l.session, "list.from", middle)
		switch {
		case err != nil:
			return 0, err
		case r == nil || r.int(0) >= until || r.int(1) >= micros(at):
			until = middle
		default:
			from = r.int(0) + 1
		}
	}
	return from, nil
}

// byKind finds the tasks of some queues and kinds.
func (l *list) byKind() ([]lead, error) {
	var leads []lead
	for _, kind := range l.kinds {
		leads = append(leads, byIndex("tusk_task_kind", "t.kind", kind))
	}
	return leads, nil
}
