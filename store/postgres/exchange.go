package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Exchanger = (*Store)(nil)

// Exchange implements store.Exchanger. It calls the procedure exchange once if the outcome is a
// plain completion of a task without a key, and the request is for one new task.
func (s *Store) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) store.Exchanged {
	if r.Limit != 1 || r.Again || !isPlain(&o) || hasExtras(&o) || o.Note != nil || o.Task.Key != "" ||
		s.mayWork(ctx) != nil {
		return s.oneByOne(ctx, o, r)
	}
	s.claims.Add(1)
	a := askFor(&r)
	x := swap{ask: a, likely: s.likely(a), ended: &o}
	err := s.swap(ctx, &x)
	switch {
	case errors.Is(err, errRolledBack), isBusy(err): // the claim may have been committed before
		r.Again = true
		both := s.oneByOne(ctx, o, r)
		if isBusy(err) && both.ClaimErr == nil && len(both.Tasks) == 0 { // it had not claimed
			r.Again = false
			both.Tasks, both.ClaimErr = s.Claim(ctx, r)
		}
		return both
	case err != nil:
		err = fmt.Errorf("exchange: %w", err)
		if !errors.Is(err, store.ErrWorkerDead) {
			return store.Exchanged{ClaimErr: err, FinishErr: err}
		}
	}
	both := store.Exchanged{Tasks: x.tasks, ClaimErr: err}
	if !x.finished {
		lost, err := s.Finish(ctx, []store.Outcome{o})
		both.Lost, both.FinishErr = len(lost) > 0, err
	}
	return both
}

// oneByOne does an exchange in two calls.
func (s *Store) oneByOne(ctx context.Context, o store.Outcome, r store.ClaimRequest) (x store.Exchanged) {
	lost, err := s.Finish(ctx, []store.Outcome{o})
	x.Lost, x.FinishErr = len(lost) > 0, err
	x.Tasks, x.ClaimErr = s.Claim(ctx, r)
	return x
}

// swap is a call of the procedure exchange.
type swap struct {
	ask    *ask
	likely int64          // the lane that probably has the task; 0 if unknown
	ended  *store.Outcome // nil if no attempt ended

	tasks    []store.Task // none or one
	finished bool
}

// swap calls the procedure once. If it fails after the claim, it must not be repeated unchanged.
func (s *Store) swap(ctx context.Context, x *swap) error {
	args := []any{[16]byte(x.ask.Worker), [16]byte(x.ask.Token), x.ask.queues, x.ask.lock, x.likely, nil, nil,
		nil, nil, nil}
	if x.ended != nil {
		f := flushOf([]*store.Outcome{x.ended})
		args = append(args[:5], f.tokens[0], f.lanes[0], f.firsts, f.ago, f.stats)
	}
	x.tasks = nil
	var lane int64
	began := time.Now()
	err := s.queryOnce(ctx, s.sql["exchange"], func(raw [][]byte) error {
		switch {
		case raw[1] != nil:
			x.tasks = make([]store.Task, 1)
			lane = readTask(&x.tasks[0], raw)
			x.ask.lent(&x.tasks[0], lane)
		case raw[0] != nil:
			s.passedOver(x.ask, int64Of(raw[0]))
		}
		x.finished = len(raw[17]) > 0 && raw[17][0] != 0
		s.ring(textsOf(raw[18])...)
		return nil
	}, args...)
	if err == nil {
		s.near.claims.add(time.Since(began))
		s.lane.Store(lane)
		s.near.took(x.ask.ClaimRequest, x.tasks)
	}
	return err
}

// likely returns the lane that probably has the next task: the lane of the last claimed task, if
// the claim requests only its queue. Otherwise it returns 0.
func (s *Store) likely(a *ask) int64 {
	lane := s.lane.Load()
	if len(a.queues) != 1 || lane&^0xffff != a.queues[0] {
		return 0
	}
	return lane
}
