package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Faults of mutants that are too long for a line: finishing and keeping.

func eachOutcome(m *mutant, change func(*store.Outcome)) func(context.Context, []store.Outcome) ([]store.ID, error) {
	return func(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
		outcomes = slices.Clone(outcomes)
		for i := range outcomes {
			change(&outcomes[i])
		}
		return m.Store.Finish(ctx, outcomes)
	}
}

func (m *mutant) anyToken(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	return eachOutcome(m, func(o *store.Outcome) {
		task := *o.Task
		if task.Lease = m.leaseOf(ctx, task.ID); !task.Lease.IsZero() {
			o.Task = &task
		}
	})(ctx, outcomes)
}

func (m *mutant) silently(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	_, err := m.Store.Finish(ctx, outcomes)
	return nil, err
}

func (m *mutant) allLost(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	lost, err := m.Store.Finish(ctx, outcomes)
	if len(lost) > 0 {
		lost = nil
		for _, o := range outcomes {
			lost = append(lost, o.Task.ID)
		}
	}
	return lost, err
}

func (m *mutant) stopAtLost(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	for _, o := range outcomes {
		if len(lost) > 0 {
			lost = append(lost, o.Task.ID)
		} else if lost, err = m.Store.Finish(ctx, []store.Outcome{o}); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

func discardedIsCompleted(o *store.Outcome) {
	if o.State == store.Discarded {
		o.State = store.Completed
	}
}

// checkThenFinish checks the lease first and writes later.
func (m *mutant) checkThenFinish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	var open []store.Outcome
	for _, o := range outcomes {
		if m.leaseOf(ctx, o.Task.ID) == o.Task.Lease {
			open = append(open, o)
		} else {
			lost = append(lost, o.Task.ID)
		}
	}
	time.Sleep(time.Millisecond)
	_, err = m.Store.Finish(ctx, open)
	return lost, err
}

func leading(
	m *mutant, change func(*store.Candidate),
) func(context.Context, store.Candidate) (store.Leadership, error) {
	return func(ctx context.Context, c store.Candidate) (store.Leadership, error) {
		change(&c)
		return m.Store.Lead(ctx, c)
	}
}

func (m *mutant) everybodyLeads() func(context.Context, store.Candidate) (store.Leadership, error) {
	var latest int64
	return func(ctx context.Context, c store.Candidate) (store.Leadership, error) {
		l, err := m.Store.Lead(ctx, c)
		m.mu.Lock()
		defer m.mu.Unlock()
		if latest = max(latest, l.Term); l.Term == 0 && c.TTL > 0 {
			l.Term = latest
		}
		return l, err
	}
}

// term returns the current term, or takes the leadership if nobody leads.
func (m *mutant) term(ctx context.Context) int64 {
	for term := int64(1); term < 1000; term++ {
		if _, err := m.Store.Prune(ctx, term, store.Retention{}, 0); err == nil {
			return term
		}
	}
	l, _ := m.Store.Lead(ctx, store.Candidate{ID: NewID(), TTL: time.Millisecond})
	return l.Term
}

func (m *mutant) admitEarly(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	waiting, _ := m.Store.List(ctx, store.Filter{States: []store.State{store.Scheduled, store.Retryable}})
	m.Store.Edit(ctx, store.Edit{IDs: idsOfTasks(waiting), Change: store.Change{Op: store.Retry}})
	return m.Store.Admit(ctx, term, limit)
}

func (m *mutant) namelessAdmit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	did, err := m.Store.Admit(ctx, term, limit)
	did.Queues = nil
	return did, err
}

func (m *mutant) robLiving(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	if _, err := m.Store.Rescue(ctx, term, limit); err != nil {
		return nil, err
	}
	return m.Store.List(ctx, store.Filter{States: []store.State{store.Running}, Limit: limit})
}

func (m *mutant) rescueOnce() func(context.Context, int64, int) ([]store.Task, error) {
	seen := map[store.Token]bool{}
	return func(ctx context.Context, term int64, limit int) ([]store.Task, error) {
		tasks, err := m.Store.Rescue(ctx, term, limit)
		m.mu.Lock()
		defer m.mu.Unlock()
		news := slices.DeleteFunc(slices.Clone(tasks), func(t store.Task) bool { return seen[t.Lease] })
		for _, t := range tasks {
			seen[t.Lease] = true
		}
		return news, err
	}
}

func keeping(m *mutant, change func(*store.Retention)) func(context.Context, int64, store.Retention, int) (int, error) {
	return func(ctx context.Context, term int64, keep store.Retention, limit int) (int, error) {
		change(&keep)
		return m.Store.Prune(ctx, term, keep, limit)
	}
}

func keepNothing(k *store.Retention) {
	for _, kept := range []*time.Duration{&k.Completed, &k.Cancelled, &k.Discarded} {
		*kept = max(*kept, time.Nanosecond)
	}
}

func snoozedIsRetried(o *store.Outcome) {
	if o.State == store.Scheduled {
		o.State = store.Retryable
	}
}

func (m *mutant) blindAdmit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	did, err := m.Store.Admit(ctx, term, limit)
	did.Next = -1
	return did, err
}

func (m *mutant) anybodyResigns() func(context.Context, store.Candidate) (store.Leadership, error) {
	var leader store.ID
	return func(ctx context.Context, c store.Candidate) (store.Leadership, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if c.TTL == 0 {
			c.ID = leader
		}
		l, err := m.Store.Lead(ctx, c)
		if l.Term != 0 {
			leader = c.ID
		}
		return l, err
	}
}

// releaseAnyway also deletes what has come back.
func (m *mutant) releaseAnyway(ctx context.Context, receipt []byte) ([]store.ID, error) {
	back, err := m.Store.Release(ctx, receipt)
	if err == nil {
		_, err = m.Store.Edit(ctx, store.Edit{IDs: back, Change: store.Change{Op: store.Delete}})
	}
	return back, err
}

// grantTwice says that each task was given its turn, whether it waited for it or not.
func (m *mutant) grantTwice(ctx context.Context, term int64, ids []store.ID) (int, error) {
	_, err := m.Store.Grant(ctx, term, ids)
	return len(ids), err
}

// followAlways never stops keeping ends.
func (m *mutant) followAlways(ctx context.Context, _ bool) (string, error) {
	return m.Store.Follow(ctx, true)
}

// updateAnyway rewrites documents whatever their versions are.
func (m *mutant) updateAnyway(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range puts {
		r := &puts[i].Record
		found, err := m.Store.Records(ctx, store.RecordFilter{Kind: r.Kind, Names: []string{r.Name}})
		if err != nil {
			return nil, err
		}
		for _, stored := range found {
			r.Version = stored.Version
		}
	}
	return m.Store.UpdateRecords(ctx, term, puts)
}
