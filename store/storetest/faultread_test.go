package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Faults of mutants that are too long for a line: reading, editing and recording.

func filtering(m *mutant, change func(*store.Filter)) func(context.Context, store.Filter) ([]store.Task, error) {
	return func(ctx context.Context, f store.Filter) ([]store.Task, error) {
		change(&f)
		return m.Store.List(ctx, f)
	}
}

func untilIncluded(f *store.Filter) {
	if !f.Until.IsZero() {
		f.Until = f.Until.Add(time.Millisecond)
	}
}

func (m *mutant) listed(change func([]store.Task)) func(context.Context, store.Filter) ([]store.Task, error) {
	return func(ctx context.Context, f store.Filter) ([]store.Task, error) {
		tasks, err := m.Store.List(ctx, f)
		change(tasks)
		return tasks, err
	}
}

func latestAttempts(tasks []store.Task) {
	for _, t := range tasks {
		if t.Detail != nil && len(t.Detail.Attempts) > 1 {
			t.Detail.Attempts = t.Detail.Attempts[len(t.Detail.Attempts)-1:]
		}
	}
}

func (m *mutant) offByOne(ctx context.Context) ([]store.Count, error) {
	counts, err := m.Store.Count(ctx)
	for i := range counts {
		counts[i].Tasks++
	}
	return counts, err
}

func (m *mutant) neverOld(ctx context.Context) ([]store.Count, error) {
	counts, err := m.Store.Count(ctx)
	for i := range counts {
		counts[i].Oldest = 0
	}
	return counts, err
}

func (m *mutant) statistics(change func(*store.Stat)) func(context.Context, store.StatsFilter) ([]store.Stat, error) {
	return func(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
		stats, err := m.Store.Stats(ctx, f)
		for i := range stats {
			change(&stats[i])
		}
		return stats, err
	}
}

func (m *mutant) grouped(
	change func(*store.ErrorGroup)) func(context.Context, store.ErrorFilter) ([]store.ErrorGroup, error) {
	return func(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
		groups, err := m.Store.Errors(ctx, f)
		for i := range groups {
			change(&groups[i])
		}
		return groups, err
	}
}

func (m *mutant) idleWorkers(ctx context.Context) ([]store.Worker, error) {
	workers, err := m.Store.Workers(ctx)
	for i := range workers {
		workers[i].Running = 0
	}
	return workers, err
}

// editRunning ends a running task in order to change it.
func (m *mutant) editRunning(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited, err := m.Store.Edit(ctx, e)
	for i, one := range edited {
		if one.Result != store.Refused || one.State != store.Running {
			continue
		}
		if found, _ := m.Store.List(ctx, store.Filter{IDs: []store.ID{one.ID}}); len(found) == 1 {
			m.Store.Finish(ctx, []store.Outcome{to(store.Available, &found[0])})
		}
		again, _ := m.Store.Edit(ctx, store.Edit{IDs: []store.ID{one.ID}, Change: e.Change})
		edited[i] = again[0]
	}
	return edited, err
}

func (m *mutant) cancelFinished(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited, err := m.Store.Edit(ctx, e)
	for i, one := range edited {
		if e.Change.Op == store.Cancel && one.Result == store.Refused {
			m.Store.Edit(ctx, store.Edit{IDs: []store.ID{one.ID}, Change: store.Change{Op: store.Retry}})
			again, _ := m.Store.Edit(ctx, store.Edit{IDs: []store.ID{one.ID}, Change: e.Change})
			edited[i] = again[0]
		}
	}
	return edited, err
}

// pretend reports that it changed every task, but does nothing.
func (m *mutant) pretend(op store.Op) func(context.Context, store.Edit) ([]store.Edited, error) {
	return func(ctx context.Context, e store.Edit) ([]store.Edited, error) {
		if e.Change.Op != op {
			return m.Store.Edit(ctx, e)
		}
		edited := make([]store.Edited, len(e.IDs))
		for i, id := range e.IDs {
			edited[i] = store.Edited{ID: id, Result: store.Changed}
		}
		return edited, nil
	}
}

func (m *mutant) stopAtMissing(ctx context.Context, e store.Edit) (edited []store.Edited, err error) {
	missing := false
	for _, id := range e.IDs {
		one := []store.Edited{{ID: id, Result: store.Missing}}
		if !missing {
			if one, err = m.Store.Edit(ctx, store.Edit{IDs: []store.ID{id}, Change: e.Change}); err != nil {
				return nil, err
			}
		}
		missing = one[0].Result == store.Missing
		edited = append(edited, one...)
	}
	return edited, nil
}

func editing(m *mutant, change func(*store.Change)) func(context.Context, store.Edit) ([]store.Edited, error) {
	return func(ctx context.Context, e store.Edit) ([]store.Edited, error) {
		change(&e.Change)
		return m.Store.Edit(ctx, e)
	}
}

func putting(
	m *mutant, change func(*store.PutRecord),
) func(context.Context, store.PutRecord) (int64, []store.Enqueued, error) {
	return func(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
		change(&p)
		return m.Store.PutRecord(ctx, p)
	}
}

func (m *mutant) lastWriterWins(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	all, _ := m.Store.Records(ctx, store.RecordFilter{Kind: p.Record.Kind})
	p.Record.Version = 0
	for _, r := range all {
		if r.Name == p.Record.Name {
			p.Record.Version = r.Version
		}
	}
	return m.Store.PutRecord(ctx, p)
}

func (m *mutant) enqueueAnyway(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	version, results, err := m.Store.PutRecord(ctx, p)
	if err != nil {
		m.Store.Enqueue(ctx, p.Tasks)
	}
	return version, results, err
}

func (m *mutant) unordered(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	all, err := m.Store.Records(ctx, f)
	slices.Reverse(all)
	return all, err
}

func (m *mutant) recordsOf(
	change func(*store.RecordFilter),
) func(context.Context, store.RecordFilter) ([]store.Record, error) {
	return func(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
		change(&f)
		return m.Store.Records(ctx, f)
	}
}

func (m *mutant) oneKind() (func(context.Context, store.RecordFilter) ([]store.Record, error),
	func(context.Context, store.PutRecord) (int64, []store.Enqueued, error)) {
	records := func(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
		kind := f.Kind
		f.Kind = ""
		all, err := m.Store.Records(ctx, f)
		for i := range all {
			all[i].Kind = kind
		}
		return all, err
	}
	return records, putting(m, func(p *store.PutRecord) { p.Record.Kind = "" })
}

func (m *mutant) countFinished(ctx context.Context) ([]store.Count, error) {
	counts, err := m.Store.Count(ctx)
	finished, _ := m.Store.List(
		ctx, store.Filter{States: []store.State{store.Completed, store.Cancelled, store.Discarded}})
	for _, t := range finished {
		counts = append(counts, store.Count{Queue: t.Queue, State: t.State, Tasks: 1})
	}
	return counts, err
}

func (m *mutant) failures(
	change func(*store.ErrorFilter),
) func(context.Context, store.ErrorFilter) ([]store.ErrorGroup, error) {
	return func(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
		change(&f)
		return m.Store.Errors(ctx, f)
	}
}

func (m *mutant) youngestFirst(ctx context.Context) ([]store.Worker, error) {
	workers, err := m.Store.Workers(ctx)
	slices.Reverse(workers)
	return workers, err
}

func (m *mutant) answersBackToFront(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited, err := m.Store.Edit(ctx, e)
	slices.Reverse(edited)
	return edited, err
}

func (m *mutant) refuseRunning(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	edited, err := m.Store.Edit(ctx, e)
	for i := range edited {
		if edited[i].Result == store.Requested {
			edited[i].Result = store.Refused
		}
	}
	return edited, err
}

func (m *mutant) undated(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	all, err := m.Store.Records(ctx, f)
	for i := range all {
		all[i].UpdatedAt = time.Time{}
	}
	return all, err
}

func (m *mutant) leaderlessEnqueue(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	version, results, err := m.Store.PutRecord(ctx, p)
	if errors.Is(err, store.ErrNotLeader) {
		m.Store.Enqueue(ctx, p.Tasks)
	}
	return version, results, err
}
