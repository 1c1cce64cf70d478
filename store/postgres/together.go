package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	fewTogether      = 16          // tasks of a call that may share a transaction
	togetherPatience = time.Second // how long to wait for transactions in progress
	togetherGrace    = 50 * time.Millisecond
)

// enqueueing is a call of Enqueue that may share a transaction.
type enqueueing struct {
	tasks []store.NewTask
	have  *survey
}

// enqueueTogether stores a few plain tasks in one transaction with those of concurrent calls. It
// reports false if the caller has to store them separately, for example if a lane has no name
// yet, because an open transaction may be about to name it.
//
// If the context of a caller ends, the shared transaction continues for the others. After a
// moment, that caller gets an error that leaves open whether its tasks are stored.
func (s *Store) enqueueTogether(ctx context.Context, tasks []store.NewTask, have *survey) (done bool, err error) {
	if !have.plain || len(tasks) > fewTogether || !s.known.isHome() || !s.haveNames(have) {
		return false, nil
	}
	e := &enqueueing{tasks, have}
	if ctx.Done() == nil {
		return s.enqueueing.Do(ctx, e, len(tasks), nil, s.addTogether)
	}
	type answer struct {
		done bool
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		done, err := s.enqueueing.Do(ctx, e, len(tasks), nil, s.addTogether)
		answered <- answer{done, err}
	}()
	select {
	case a := <-answered:
		return a.done, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answered:
		return a.done, a.err
	case <-time.After(togetherGrace):
		return true, fmt.Errorf("not answered: %w", ctx.Err())
	}
}

func (s *Store) haveNames(have *survey) bool {
	for _, lane := range have.lanes {
		if !s.known.hasName(lane) {
			return false
		}
	}
	return true
}

// addTogether stores the tasks of calls in one transaction. It reports false if there are several
// calls and nothing was stored, because one of them may be the cause.
func (s *Store) addTogether(ctx context.Context, all []*enqueueing) (done bool, err error) {
	tasks, have := all[0].tasks, all[0].have
	if len(all) > 1 {
		tasks = nil
		for _, e := range all {
			tasks = append(tasks, e.tasks...)
		}
		have = surveyOf(tasks)
	}
	err = s.repeat(ctx, func() error {
		_, err := s.commit(ctx, tasks, have)
		return s.noted(err)
	})
	if len(all) > 1 && errors.Is(err, store.ErrNotCommitted) {
		return false, nil
	}
	return true, err
}
