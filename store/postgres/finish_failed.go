package postgres

import (
	"context"

	"github.com/tuskqueue/tusk/store"
)

// finishFailed ends a single attempt whose task is to be retried, by plain statements in one round trip. It
// reports false, and has written nothing, if the function finish is needed.
func (s *Store) finishFailed(ctx context.Context, f *flush) (done bool, err error) {
	if len(f.firsts) != 1 || f.counts != nil || len(f.odds) != 1 {
		return false, nil
	}
	o := f.odds[0]
	if o.State != store.Retryable || o.Error == "" || o.Task.Key != "" || o.Note != nil || hasExtras(o) {
		return false, nil
	}
	id, token, ago := [16]byte(o.Task.ID), [16]byte(o.Task.Lease), f.ago
	if ago != nil {
		ago = []int32{} // nothing was completed
	}
	steps := []step{
		s.do("pin_end"),
		s.do("finish_failed", token, f.lanes[0], id, max(o.Delay, 0).Microseconds(), max(o.Ago, 0).Microseconds(), o.Attempt,
			o.Crashes, clean(o.Error), clean(o.Trace), clean(o.Fingerprint), f.stats, ago).into(func([][]byte) error {
			done = true
			return nil
		}),
		s.do("still_failed", id, token),
	}
	err = s.repeat(ctx, func() error {
		done = false
		return s.takeOnce(ctx, steps)
	})
	if err == nil && done {
		s.ringDue(f.odds)
	}
	return done && err == nil, err
}
