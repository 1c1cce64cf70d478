package ledgers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Enqueue implements store.Enqueuer. It stores tasks of several ledgers in separate transactions. Tasks that can be
// stored anywhere go to another ledger if theirs is away.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w: %w", store.ErrNotCommitted, err)
	}
	places, err := s.placesOf(ctx, all, tasks)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w: %w", store.ErrNotCommitted, err)
	}
	if err := s.hear(ctx, all, places.far); err != nil {
		return nil, fmt.Errorf("enqueue: %w: %w", store.ErrNotCommitted, err)
	}
	switch {
	case places.free:
		return enqueueAnywhere(ctx, all, places.at[0], tasks)
	case places.together():
		return enqueueAt(ctx, all[places.at[0]], tasks)
	}
	results, _, err := enqueueApart(ctx, all, places, tasks, (*postgres.Store).Enqueue)
	return results, err
}

// enqueueAt stores tasks in one ledger.
func enqueueAt(ctx context.Context, l *ledger, tasks []store.NewTask) ([]store.Enqueued, error) {
	return putAt(ctx, l, tasks, (*postgres.Store).Enqueue)
}

// put is a method of an engine that stores tasks.
type put func(e *postgres.Store, ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error)

func putAt(ctx context.Context, l *ledger, tasks []store.NewTask, by put) ([]store.Enqueued, error) {
	results, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Enqueued, error) {
		return by(e, ctx, tasks)
	})
	l.s.turns.heat(l.no, err == nil)
	if errors.Is(err, errAway) {
		err = fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	return results, err
}

// enqueueAnywhere stores tasks in the ledger first, or in the next one that is not away and, if possible, has not just
// come back. If it is unknown whether a ledger has stored them, they are put into a letter.
func enqueueAnywhere(
	ctx context.Context, all []*ledger, first int, tasks []store.NewTask,
) (results []store.Enqueued, err error) {
	for k := range all {
		if !all[(first+k)%len(all)].settles() {
			first += k
			break
		}
	}
	for k := range all {
		l := all[(first+k)%len(all)]
		results, err = enqueueAt(ctx, l, tasks)
		if err == nil || !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			break
		}
		if !errors.Is(err, store.ErrNotCommitted) {
			if writeDoubt(ctx, all, l, tasks, err) == nil {
				results, err = added(tasks), nil
			}
			break
		}
	}
	return results, err
}

func added(tasks []store.NewTask) []store.Enqueued {
	results := make([]store.Enqueued, len(tasks))
	for i := range tasks {
		results[i] = store.Enqueued{ID: tasks[i].ID, Result: store.Added}
	}
	return results
}

// enqueueApart stores each task in its ledger, round by round. If only some ledgers fail, it is unknown which tasks are
// stored. done marks those that certainly are.
func enqueueApart(
	ctx context.Context, all []*ledger, p *placed, tasks []store.NewTask, by put,
) (results []store.Enqueued, done []bool, err error) {
	results, done = make([]store.Enqueued, len(tasks)), make([]bool, len(tasks))
	stored := false
	for round := range p.rounds() {
		errs := make([]error, len(all))
		var group sync.WaitGroup
		for no, l := range all {
			index := p.part(no, round)
			if len(index) == 0 {
				continue
			}
			group.Go(func() {
				part := make([]store.NewTask, len(index))
				for k, i := range index {
					part[k] = tasks[i]
				}
				var got []store.Enqueued
				got, errs[no] = putAt(ctx, l, part, by)
				for k := range got {
					results[index[k]], done[index[k]] = got[k], errs[no] == nil
				}
			})
		}
		group.Wait()
		for no, err := range errs {
			stored = stored || len(p.part(no, round)) > 0 && !errors.Is(err, store.ErrNotCommitted)
		}
		if err = errors.Join(errs...); err != nil {
			break
		}
	}
	switch {
	case err == nil:
		return results, done, nil
	case !stored:
		return nil, done, err
	case errors.Is(err, store.ErrUnavailable):
		return results, done, fmt.Errorf("enqueue: %w: some of the tasks are stored: %v", store.ErrUnavailable, err)
	}
	return results, done, fmt.Errorf("enqueue: some of the tasks are stored: %v", err)
}
