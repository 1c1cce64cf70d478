package couchbase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Finish implements store.Leaser. The outcomes of one sheet are one write, and so is each other outcome from which
// nothing follows. If only some outcomes can be written, perhaps because a node is away, a HeldError names the others,
// so that the caller repeats only these.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	defer says(&err, "finish")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := func(i int) ref {
		r := taskRef(outcomes[i].Task.ID)
		if outcomes[i].Task.Piece != 0 {
			r, _ = block(r.ID)
		}
		return r
	}
	groups := grouped(len(outcomes), in)
	works := make([]*work, len(groups))
	refused, errs := tryEach(len(groups), func(i int) ([]store.ID, error) {
		var some []*store.Outcome
		for _, at := range groups[i] {
			some = append(some, &outcomes[at])
		}
		works[i] = &work{}
		return s.finish(ctx, works[i], in(groups[i][0]), some)
	})
	var done []*work
	var ends []*rules.End
	held := new(store.HeldError)
	for i, w := range works {
		if errs[i] == nil {
			done, ends = append(done, w), append(ends, w.batch.Ends...)
			continue
		}
		err, refused[i] = cmp.Or(err, errs[i]), nil
		for _, at := range groups[i] {
			held.Tasks = append(held.Tasks, outcomes[at].Task.ID)
		}
	}
	if len(done) == 0 {
		return nil, err
	}
	s.finishLater(ctx, done, ends)
	if err != nil {
		err = fmt.Errorf("%w: %w", err, held)
	}
	return slices.Concat(refused...), err
}

// finishWithin is how long Finish takes for what follows from accepted outcomes.
const finishWithin = 5 * time.Second

// finishLater does what follows from accepted outcomes: it appends tasks to lanes, tells children, and counts. If it
// fails, the outcomes remain accepted, and the sweep does the rest, except for the statistics.
func (s *Store) finishLater(ctx context.Context, done []*work, ends []*rules.End) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	if err := errors.Join(s.finishUp(ctx, done...), s.account(ctx, ends)); err != nil {
		slog.Default().Warn("couchbase: outcomes are accepted, and what follows from them is left to the sweep",
			"error", err)
	}
}

// finish ends the attempt of a task, or attempts of tasks in a sheet. The handle's copy of the document may be out of
// date, so finish reads it again before it refuses an outcome.
func (s *Store) finish(ctx context.Context, w *work, r ref, outcomes []*store.Outcome) (lost []store.ID, err error) {
	w.have = s.lent.take(r, outcomes)
	err = s.do(ctx, w, func(b *rules.Batch) error {
		_, err := w.load(r) // so that the tasks of a sheet are not read one by one
		if err == nil {
			lost, err = b.Finish(outcomes)
		}
		w.torn = w.torn || len(lost) > 0 && len(w.have) > 0
		return err
	})
	if err == nil {
		s.lent.keep(w.docs[r])
	}
	return lost, err
}
