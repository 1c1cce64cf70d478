package ledgers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Enqueue implements store.Enqueuer. Tasks of several ledgers are stored in several
// transactions. Tasks that may live anywhere go to another ledger when theirs is away.
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
	switch {
	case places.free:
		return enqueueAnywhere(ctx, all, places.at[0], tasks)
	case places.together():
		return enqueueAt(ctx, all[places.at[0]], tasks)
	}
	return enqueueApart(ctx, all, places.at, tasks)
}

// enqueueAt stores tasks in one ledger.
func enqueueAt(ctx context.Context, l *ledger, tasks []store.NewTask) ([]store.Enqueued, error) {
	results, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Enqueued, error) {
		return e.Enqueue(ctx, tasks)
	})
	l.s.turns.heat(l.no, err == nil)
	if errors.Is(err, errAway) {
		err = fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	return results, err
}

// enqueueAnywhere stores tasks in a ledger, or in the next one that is not away.
func enqueueAnywhere(
	ctx context.Context, all []*ledger, first int, tasks []store.NewTask,
) (results []store.Enqueued, err error) {
	for k := range all {
		results, err = enqueueAt(ctx, all[(first+k)%len(all)], tasks)
		if err == nil || !errors.Is(err, store.ErrNotCommitted) || !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return results, err
}

// enqueueApart stores each task in its ledger. When some ledgers fail and others do not,
// it is unknown which tasks are stored.
func enqueueApart(ctx context.Context, all []*ledger, at []int, tasks []store.NewTask) ([]store.Enqueued, error) {
	parts, index := make([][]store.NewTask, len(all)), make([][]int, len(all))
	for i, no := range at {
		parts[no], index[no] = append(parts[no], tasks[i]), append(index[no], i)
	}
	results, errs := make([]store.Enqueued, len(tasks)), make([]error, len(all))
	var done sync.WaitGroup
	for no, part := range parts {
		if len(part) == 0 {
			continue
		}
		done.Go(func() {
			var got []store.Enqueued
			got, errs[no] = enqueueAt(ctx, all[no], part)
			for k := range got {
				results[index[no][k]] = got[k]
			}
		})
	}
	done.Wait()
	stored, failed := false, errors.Join(errs...)
	for no, err := range errs {
		stored = stored || len(parts[no]) > 0 && !errors.Is(err, store.ErrNotCommitted)
	}
	switch {
	case failed == nil:
		return results, nil
	case !stored:
		return nil, failed
	case errors.Is(failed, store.ErrUnavailable):
		return nil, fmt.Errorf("enqueue: %w: some of the tasks are stored: %v", store.ErrUnavailable, failed)
	}
	return nil, fmt.Errorf("enqueue: some of the tasks are stored: %v", failed)
}
