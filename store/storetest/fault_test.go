package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Faults of mutants that are too long for a line: enqueueing, claiming and beats.

func eachNew(m *mutant, change func(*store.NewTask)) func(context.Context, []store.NewTask) ([]store.Enqueued, error) {
	return func(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
		tasks = slices.Clone(tasks)
		for i := range tasks {
			change(&tasks[i])
		}
		return m.Store.Enqueue(ctx, tasks)
	}
}

func conflictIs(this, that store.OnConflict) func(*store.NewTask) {
	return func(n *store.NewTask) {
		if n.OnConflict == this {
			n.OnConflict = that
		}
	}
}

func (m *mutant) backToFront(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	tasks = slices.Clone(tasks)
	slices.Reverse(tasks)
	results, err := m.Store.Enqueue(ctx, tasks)
	slices.Reverse(results)
	return results, err
}

// sharedKeys skips a task if an unfinished task of another queue has its key.
func (m *mutant) sharedKeys(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	for _, n := range tasks {
		if n.Key != "" {
			held, _ := m.Store.List(ctx, store.Filter{Key: n.Key, States: []store.State{store.Available}})
			if len(held) > 0 && held[0].Queue != n.Queue {
				results = append(results, store.Enqueued{ID: held[0].ID, Result: store.Skipped})
				continue
			}
		}
		one, err := m.Store.Enqueue(ctx, []store.NewTask{n})
		if err != nil {
			return nil, err
		}
		results = append(results, one...)
	}
	return results, nil
}

func (m *mutant) forgetReruns(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	results, err := m.Store.Enqueue(ctx, tasks)
	for _, r := range results {
		if r.Result == store.Awaiting {
			m.Store.Edit(ctx, store.Edit{IDs: []store.ID{r.ID}, Change: store.Change{Op: store.Delete}})
		}
	}
	return results, err
}

func (m *mutant) firstRerunOnly(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	for _, n := range tasks {
		waiting, _ := m.Store.List(ctx, store.Filter{Key: n.Key, States: []store.State{store.Pending}})
		if n.OnConflict == store.Rerun && len(waiting) > 0 {
			results = append(results, store.Enqueued{ID: waiting[0].ID, Result: store.Awaiting})
			continue
		}
		one, err := m.Store.Enqueue(ctx, []store.NewTask{n})
		if err != nil {
			return nil, err
		}
		results = append(results, one...)
	}
	return results, nil
}

func asking(
	m *mutant, change func(*store.ClaimRequest),
) func(context.Context, store.ClaimRequest) ([]store.Task, error) {
	return func(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
		r.Queues = slices.Clone(r.Queues)
		change(&r)
		return m.Store.Claim(ctx, r)
	}
}

func eachClaimed(m *mutant, change func(*store.Task)) func(context.Context, store.ClaimRequest) ([]store.Task, error) {
	return func(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
		tasks, err := m.Store.Claim(ctx, r)
		for i := range tasks {
			change(&tasks[i])
		}
		return tasks, err
	}
}

// claimsAgain claims on a repeated request if the first one claimed nothing.
func (m *mutant) claimsAgain(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	tasks, err := m.Store.Claim(ctx, r)
	if err != nil || len(tasks) > 0 || !r.Again {
		return tasks, err
	}
	r.Again = false
	return m.Store.Claim(ctx, r)
}

func (m *mutant) strangersClaim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	tasks, err := m.Store.Claim(ctx, r)
	if errors.Is(err, store.ErrWorkerDead) {
		m.Store.Extend(ctx, store.Beat{Worker: store.Worker{ID: r.Worker}, TTL: time.Minute})
		return m.Store.Claim(ctx, r)
	}
	return tasks, err
}

func beating(m *mutant, change func(*store.Beat)) func(context.Context, store.Beat) ([]store.Stop, error) {
	return func(ctx context.Context, b store.Beat) ([]store.Stop, error) {
		b.Notes = slices.Clone(b.Notes)
		change(&b)
		return m.Store.Extend(ctx, b)
	}
}

// openLeases gives every note the current lease of its task.
func (m *mutant) openLeases(notes []store.Note) {
	for i := range notes {
		if lease := m.leaseOf(context.Background(), notes[i].ID); !lease.IsZero() {
			notes[i].Lease = lease
		}
	}
}

func (m *mutant) keepsRefusedNotes(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	lost, err := m.Store.Finish(ctx, outcomes)
	if len(lost) == 0 {
		return lost, err
	}
	var notes []store.Note
	for _, o := range outcomes {
		if o.Note != nil && slices.Contains(lost, o.Task.ID) {
			n := *o.Note
			n.ID = o.Task.ID
			notes = append(notes, n)
		}
	}
	m.openLeases(notes)
	_, _ = m.Store.Extend(ctx, store.Beat{Worker: store.Worker{ID: NewID()}, TTL: time.Minute, Notes: notes})
	return lost, err
}

func (m *mutant) leaseOf(ctx context.Context, id store.ID) store.Token {
	found, _ := m.Store.List(ctx, store.Filter{IDs: []store.ID{id}})
	if len(found) == 0 {
		return store.Token{}
	}
	return found[0].Lease
}

func (m *mutant) firstBeatOnly(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	workers, _ := m.Store.Workers(ctx)
	if b.TTL > 0 && len(b.Notes) == 0 && slices.ContainsFunc(workers, func(w store.Worker) bool {
		return w.ID == b.Worker.ID
	}) {
		return nil, nil
	}
	return m.Store.Extend(ctx, b)
}

func (m *mutant) reviving(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	stops, err := m.Store.Extend(ctx, b)
	if errors.Is(err, store.ErrWorkerDead) {
		err = nil
	}
	return stops, err
}

func (m *mutant) told(change func([]store.Stop) []store.Stop) func(context.Context, store.Beat) ([]store.Stop, error) {
	return func(ctx context.Context, b store.Beat) ([]store.Stop, error) {
		stops, err := m.Store.Extend(ctx, b)
		return change(stops), err
	}
}

func (m *mutant) toldOnce() func(context.Context, store.Beat) ([]store.Stop, error) {
	told := map[store.Stop]bool{}
	return m.told(func(stops []store.Stop) (news []store.Stop) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range stops {
			if !told[s] {
				news = append(news, s)
			}
			told[s] = true
		}
		return news
	})
}

// sharedSlices shows later changes by the caller to the slice.
func (m *mutant) sharedSlices() (func(context.Context, []store.NewTask) ([]store.Enqueued, error),
	func(context.Context, store.Filter) ([]store.Task, error)) {
	given := map[store.ID][]byte{}
	enqueue := func(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range tasks {
			if n.Key == "" {
				given[n.ID] = n.Args
			}
		}
		return m.Store.Enqueue(ctx, tasks)
	}
	list := m.listed(func(tasks []store.Task) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i := range tasks {
			if args, ok := given[tasks[i].ID]; ok {
				tasks[i].Args = args
			}
		}
	})
	return enqueue, list
}

// firstAnswers repeats answers unchanged, whatever has happened since.
func (m *mutant) firstAnswers() func(context.Context, store.ClaimRequest) ([]store.Task, error) {
	answers := map[store.Token][]store.Task{}
	return func(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if first := answers[r.Token]; r.Again && len(first) > 0 {
			return first, nil
		}
		tasks, err := m.Store.Claim(ctx, r)
		answers[r.Token] = tasks
		return tasks, err
	}
}

func (m *mutant) unforgiving(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	workers, _ := m.Store.Workers(ctx)
	for _, w := range workers {
		if w.ID == b.Worker.ID && time.Now().After(w.ExpiresAt) {
			return nil, store.ErrWorkerDead
		}
	}
	return m.Store.Extend(ctx, b)
}
