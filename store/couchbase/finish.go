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
	for _, round := range rounds(outcomes) {
		err := each(len(round), func(i int) error {
			w := &work{}
			err := s.finishOne(ctx, w, outcomes[round[i]])
			if err == nil {
				works[round[i]] = w
			} else if err == errLost {
				err = nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
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

// rounds has outcomes of the same task judged one after another.
func rounds(outcomes []store.Outcome) (all [][]int) {
	seen := map[store.ID]int{}
	for i := range outcomes {
		n := seen[outcomes[i].Task.ID]
		seen[outcomes[i].Task.ID]++
		if n == len(all) {
			all = append(all, nil)
		}
		all[n] = append(all[n], i)
	}
	return all
}

func (s *Store) finishOne(ctx context.Context, w *work, o store.Outcome) error {
	r := taskRef(o.Task.ID)
	if d := s.lent.take(o.Task); d != nil {
		w.have = map[ref]*doc{r: d}
	}
	then := make([]store.NewTask, len(o.Then))
	for i := range then {
		then[i] = trimmed(o.Then[i])
	}
	o.Then = then
	return s.do(ctx, w, func(b *rules.Batch) error {
		lost, err := b.Finish([]*store.Outcome{&o})
		if err == nil && len(lost) > 0 {
			err = errLost
		}
		return err
	})
}
