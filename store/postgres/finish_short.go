package postgres

import (
	"context"

	"github.com/tuskqueue/tusk/store"
)

// finishShort ends a single attempt whose task is to be tried again by plain statements in one trip, which costs less
// than the function finish. It reports false, and has written nothing, if that function has to look closer.
func (s *Store) finishShort(ctx context.Context, f *flush, rest []*store.Outcome) (done bool, err error) {
	var steps []step
	switch {
	case hasExtras(rest[0]) || f.counts != nil || len(f.keyedEnds) > 0:
		return false, nil
	case len(f.odds) == 1 && len(rest) == 1:
		steps = s.failed(f)
	}
	if steps == nil {
		return false, nil
	}
	steps[1] = steps[1].into(func([][]byte) error {
		done = true
		return nil
	})
	err = s.repeat(ctx, func() error {
		done = false
		return s.takeOnce(ctx, steps)
	})
	if done = done && err == nil; done {
		s.ringDue(f.odds)
	}
	return done, err
}

// failed returns the steps that end a single attempt whose task is to be tried again, or nil if it is another end.
func (s *Store) failed(f *flush) []step {
	o := f.odds[0]
	if o.State != store.Retryable || o.Error == "" || o.Note != nil {
		return nil
	}
	id, token, ago := [16]byte(o.Task.ID), [16]byte(o.Task.Lease), f.ago
	if ago != nil {
		ago = []int32{} // of no completion
	}
	return []step{
		s.do("pin_end"),
		s.do("finish_failed", token, f.lanes[0], id, max(o.Delay, 0).Microseconds(), max(o.Ago, 0).Microseconds(), o.Attempt,
			o.Crashes, clean(o.Error), clean(o.Trace), clean(o.Fingerprint), f.stats, ago),
		s.do("still_failed", id, token),
	}
}
