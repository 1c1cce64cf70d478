package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var _ store.Archiver = (*Store)(nil)

// Due implements store.Archiver. Pages follow the places of tasks, which only grow.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (due store.Due, err error) {
	if err := ctx.Err(); err != nil {
		return due, fmt.Errorf("due: %w", err)
	}
	after := int64(0)
	if from != "" {
		if after, err = strconv.ParseInt(from, 10, 64); err != nil {
			return due, fmt.Errorf("due: the cursor %q is none", from)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.old(keep, after)
	if len(old) > limit {
		old = old[:limit]
		due.Next = strconv.FormatInt(old[limit-1].at, 10)
	}
	for _, t := range old {
		answer := t.answer(true)
		answer.Detail.Needs = s.needStates(t.task)
		due.Tasks = append(due.Tasks, answer)
	}
	due.Receipt = rules.Receipt(due.Tasks)
	return due, nil
}

// old returns, in order, the finished tasks after a place whose retention is over.
func (s *Store) old(keep store.Retention, after int64) (old []placed) {
	now := clock()
	for of, list := range s.finished {
		kept := keep.Of(of.queue, of.state)
		for _, t := range list {
			if kept > 0 && !t.gone() && t.at > after && !t.FinishedAt.After(now.Add(-kept)) {
				old = append(old, t)
			}
		}
	}
	slices.SortFunc(old, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	return old
}

// Release implements store.Archiver.
func (s *Store) Release(ctx context.Context, receipt []byte) ([]store.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	ends, err := rules.ReadReceipt(receipt)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batch(clock())
	back, err := b.Release(ends)
	if err == nil {
		s.apply(b)
	}
	return back, err
}
