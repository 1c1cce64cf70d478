package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// Finish implements store.Leaser. Outcomes with more than the end of their attempt are written separately.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if err := s.mayWork(ctx); err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	rest, lost := eachOnce(outcomes)
	e := ending{s: s, lost: lost}
	for _, part := range partsOf(rest) {
		e.flush(ctx, part)
	}
	if e.failed != nil && !e.written {
		return nil, fmt.Errorf("finish: %w", e.failed)
	}
	if err = errors.Join(heldError(e.held), e.failed); err != nil {
		err = fmt.Errorf("finish: %w", err)
	}
	return e.lost, err
}

// ending is the progress of a call of Finish.
type ending struct {
	s          *Store
	lost, held []store.ID
	written    bool // some outcomes were accepted: a caller that repeated all would find those lost
	failed     error
}

func (e *ending) hold(outcomes []*store.Outcome) {
	for _, o := range outcomes {
		e.held = append(e.held, o.Task.ID)
	}
}

// fail records why outcomes were not written. They are retried like held ones.
func (e *ending) fail(outcomes []*store.Outcome, why error) {
	e.failed = why
	e.hold(outcomes)
}

func heldError(held []store.ID) error {
	if len(held) == 0 {
		return nil
	}
	return &store.HeldError{Tasks: held}
}

// partsOf splits outcomes into parts that are each written together. Usually there is one part.
func partsOf(outcomes []*store.Outcome) [][]*store.Outcome {
	if !slices.ContainsFunc(outcomes, hasExtras) {
		return [][]*store.Outcome{outcomes}
	}
	var plain, more []*store.Outcome
	for _, o := range outcomes {
		if hasExtras(o) {
			more = append(more, o)
		} else {
			plain = append(plain, o)
		}
	}
	return [][]*store.Outcome{plain, more}
}

// flush writes outcomes by one call of a function such as finish_plain, finish_lease, finish or finish_more.
// If the function finds tasks that are lost or held, it writes nothing, and flush calls it again without
// them. If it waits too long for a lock, flush writes the halves one after the other, so that other outcomes
// do not wait for the lock that one of them needs.
func (e *ending) flush(ctx context.Context, rest []*store.Outcome) {
	s := e.s
	for len(rest) > 0 && e.failed == nil {
		f := flushOf(rest)
		if done, err := s.finishFailed(ctx, f); done {
			e.written = true
			return
		} else if err != nil && !isBusy(err) {
			e.fail(rest, err)
			return
		}
		name, args, x, err := s.callOf(ctx, f, rest)
		if err != nil {
			e.fail(rest, err)
			return
		}
		var lost, held []store.ID
		gone, apart := map[attempt]bool{}, false
		err = s.query(ctx, name, func(raw [][]byte) error {
			switch id := store.ID(idOf(raw[1])); {
			case raw[1] == nil && raw[2] != nil: // another transaction holds a key
				n, err := strconv.Atoi(string(raw[3]))
				if err != nil || n > len(f.keyedEnds) {
					apart = true // the key belongs to a task to enqueue
					return err
				}
				o := f.keyedEnds[n-1]
				held, gone[attempt{o.Task.ID, o.Task.Lease}] = append(held, o.Task.ID), true
			case raw[3] != nil:
				s.ring(string(raw[3]))
			case raw[2] == nil:
				apart = true // a task is cancelled instead of going on, so its tasks must be dropped
			case raw[2][0] != 0:
				held, gone[attempt{id, idOf(raw[0])}] = append(held, id), true
			default:
				lost, gone[attempt{id, idOf(raw[0])}] = append(lost, id), true
			}
			return nil
		}, args...)
		switch {
		case isBusy(err) && ctx.Err() == nil || apart && err == nil:
			e.flushApart(ctx, rest)
			return
		case err != nil:
			e.fail(rest, err)
			return
		case len(gone) == 0:
			e.written = true
			s.ringDue(f.odds)
			if x != nil {
				s.ringFor(x.survey)
				s.settle(ctx, x.doubts)
			}
			return
		}
		e.lost, e.held = append(e.lost, lost...), append(e.held, held...)
		rest = slices.DeleteFunc(rest, func(o *store.Outcome) bool { return gone[attempt{o.Task.ID, o.Task.Lease}] })
	}
	e.hold(rest) // empty, unless others have failed
}

// callOf returns the statement that writes a flush, its parameters, and the extras of the outcomes, or nil if there
// are none.
func (s *Store) callOf(
	ctx context.Context, f *flush, outcomes []*store.Outcome,
) (name string, args []any, x *extras, err error) {
	name, args = f.call()
	list := finalNotes(outcomes)
	switch {
	case !hasExtras(outcomes[0]):
	case len(f.odds) == 0 && len(list) == 0 && !slices.ContainsFunc(outcomes, bringsMore):
		if name == "finish" {
			queues, keys, ids := f.keys()
			args = append(f.runs(), queues, keys, ids)
		}
		name, args = name+"_turns", append(args, idsOfAll(outcomes))
	default:
		x = extrasOf(outcomes)
		if err := s.nameLanes(ctx, ownSession{s}, x.survey, true); err != nil {
			return "", nil, nil, err
		}
		name, args = "finish_more", append(f.args(), x.args()...)
	}
	if len(list) > 0 {
		n, err := notesOf(list)
		if err != nil {
			return "", nil, nil, err
		}
		if x == nil {
			name, args = "finish", f.args()
		}
		name, args = name+"_noted", append(args, n.ids, n.progress, n.outputs, n.logs)
	}
	return name, args, x, nil
}

// ringDue notifies the leader of tasks that will soon be retried.
func (s *Store) ringDue(outcomes []*store.Outcome) {
	first := store.Soon
	for _, o := range outcomes {
		if !o.State.Finished() {
			first = min(first, o.Delay)
		}
	}
	if name := bell.DueIn(first); name != "" {
		s.ring(name)
	}
}

func idsOfAll(outcomes []*store.Outcome) uuids {
	ids := make(uuids, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.Task.ID
	}
	return ids
}

// flushApart writes each half of a batch separately, because some outcomes are held or have tasks that must be
// dropped. A single outcome is held.
func (e *ending) flushApart(ctx context.Context, outcomes []*store.Outcome) {
	if len(outcomes) == 1 {
		e.hold(outcomes)
		return
	}
	half := (len(outcomes) + 1) / 2
	e.flush(ctx, outcomes[:half:half])
	e.flush(ctx, outcomes[half:])
}

// attempt identifies an attempt, for which only one finish is accepted.
type attempt struct {
	id    store.ID
	lease store.Token
}

// eachOnce returns the first outcome for each task and token, sorted by lease, lane
// and id. The tasks of further outcomes are lost.
func eachOnce(outcomes []store.Outcome) (once []*store.Outcome, lost []store.ID) {
	once = make([]*store.Outcome, len(outcomes))
	for i := range outcomes {
		once[i] = &outcomes[i]
	}
	slices.SortStableFunc(once, byLease)
	kept := once[:0]
	for _, o := range once {
		if n := len(kept); n > 0 && kept[n-1].Task.ID == o.Task.ID && kept[n-1].Task.Lease == o.Task.Lease {
			lost = append(lost, o.Task.ID)
		} else {
			kept = append(kept, o)
		}
	}
	return kept, lost
}

func byLease(a, b *store.Outcome) int {
	x, y := a.Task, b.Task
	if x.Lease != y.Lease {
		return bytes.Compare(x.Lease[:], y.Lease[:])
	}
	if x.Queue != y.Queue {
		return cmp.Compare(x.Queue, y.Queue)
	}
	if x.Priority != y.Priority {
		return cmp.Compare(x.Priority, y.Priority)
	}
	return bytes.Compare(x.ID[:], y.ID[:])
}

func finalNotes(outcomes []*store.Outcome) (list []store.Note) {
	for _, o := range outcomes {
		if o.Note != nil {
			n := *o.Note
			n.ID, n.Lease = o.Task.ID, o.Task.Lease
			list = append(list, n)
		}
	}
	return list
}

// writeNotes stores notes by the named statement, to which it passes from as further parameters. It returns the
// tasks that a user's transaction holds. Their notes are not stored.
func (s *Store) writeNotes(
	ctx context.Context, name string, list []store.Note, from ...any,
) (held []store.ID, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	n, err := notesOf(list)
	if err != nil {
		return nil, err
	}
	err = s.query(ctx, name, func(raw [][]byte) error {
		places := arrayOf(raw[0])
		for range places.n {
			held = append(held, n.ids[int32Of(places.next())-1])
		}
		return nil
	}, append([]any{n.ids, n.tokens, n.progress, n.outputs, n.logs}, from...)...)
	return held, err
}

// finishTx ends attempts in an open transaction, with one statement for each.
func (s *Store) finishTx(ctx context.Context, tx session, outcomes []store.Outcome) (lost []store.ID, err error) {
	rest, lost := eachOnce(outcomes)
	accepted := rest[:0]
	for _, o := range rest {
		done, name, err := s.finishOne(ctx, tx, o)
		if err != nil {
			return nil, translate(err)
		}
		if name != "" {
			s.ringAfter(&news{s: s, have: &survey{queues: []string{name}, now: true}})
		}
		if done {
			accepted = append(accepted, o)
		} else {
			lost = append(lost, o.Task.ID)
		}
	}
	list := finalNotes(accepted)
	if len(list) == 0 {
		return lost, nil
	}
	n, err := notesOf(list)
	if err != nil {
		return nil, err
	}
	return lost, translate(tx.exec(ctx, s.sql["add_notes"], n.ids, n.progress, n.outputs, n.logs))
}

// finishOne ends one attempt in an open transaction, and returns the names to ring. It reports false if the attempt is
// lost.
func (s *Store) finishOne(ctx context.Context, tx session, o *store.Outcome) (done bool, name string, err error) {
	sums := newStats()
	sums.count(o)
	t := o.Task
	args := []any{[16]byte(t.Lease), laneOf(t.Queue, t.Priority), [16]byte(t.ID), int16(o.State), o.Delay.Microseconds(),
		o.Attempt, o.Crashes, clean(o.Reason), clean(o.Error), clean(o.Trace), clean(o.Fingerprint),
		max(o.Ago, 0).Microseconds(), sums.encode(), tenantKey(t.Tenant, t.Key), isPlain(o)}
	text := s.sql["finish_tx"]
	if hasExtras(o) {
		x := extrasOf([]*store.Outcome{o})
		if err := s.nameLanes(ctx, tx, x.survey, false); err != nil {
			return false, "", err
		}
		text, args = s.sql["finish_tx_more"], append(args, x.args()...)
	}
	s.trips.Add(1)
	err = tx.each(ctx, func(scan func(...any) error) error { return scan(&done, &name) }, text, args...)
	return done, name, err
}
