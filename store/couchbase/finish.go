package couchbase

import (
	"context"
	"errors"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var errLost = errors.New("the lease is not open")

// Finish implements store.Leaser. Each outcome is one write of its task where nothing follows from it.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	defer says(&err, "finish")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	works := make([]*work, len(outcomes))
	task := func(i int) store.ID { return outcomes[i].Task.ID } // of one they are judged one after another
	err = eachOf(len(outcomes), task, func(i int) error {
		w := &work{}
		err := s.finishOne(ctx, w, outcomes[i])
		if err == errLost {
			return nil
		}
		works[i] = w
		return err
	})
	if err != nil {
		return nil, err
	}
	var accepted []*work
	var ends []*rules.End
	for i, w := range works {
		if w == nil {
			lost = append(lost, outcomes[i].Task.ID)
			continue
		}
		accepted, ends = append(accepted, w), append(ends, w.batch.Ends...)
	}
	if err := s.finishUp(ctx, accepted...); err != nil {
		return nil, err
	}
	return lost, s.account(ctx, ends)
}

func (s *Store) finishOne(ctx context.Context, w *work, o store.Outcome) error {
	r := taskRef(o.Task.ID)
	if d := s.lent.take(o.Task); d != nil {
		w.have = map[ref]*doc{r: d}
	}
	o.Then = trimmed(o.Then)
	return s.do(ctx, w, func(b *rules.Batch) error {
		lost, err := b.Finish([]*store.Outcome{&o})
		if err == nil && len(lost) > 0 {
			err = errLost
		}
		return err
	})
}
