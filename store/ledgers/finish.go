package ledgers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// mark stores the number of the ledger that tasks were claimed from, plus one, in those bits of store.Task.Piece that
// the engine does not use.
func mark(tasks []store.Task, no int) {
	for i := range tasks {
		tasks[i].Piece |= int32(no+1) << postgres.PieceBits
	}
}

// placeOfOutcome returns the ledger that has an attempt, or false if this process does not know it.
func (s *Store) placeOfOutcome(o *store.Outcome) (no int, known bool) {
	if no = int(o.Task.Piece>>postgres.PieceBits) - 1; no >= 0 {
		return no, true
	}
	return s.leases.place(o.Task.Lease)
}

// Finish implements store.Leaser. If only some outcomes were written, a store.HeldError names the others.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	sent := make([]map[store.ID]store.ID, len(all))
	parts, unknown, wait := s.partsOf(ctx, all, outcomes, sent, s.parentsOf)
	defer s.finished(ctx, all, outcomes, sent)
	f := finishing{lost: make([][]store.ID, len(all)), errs: make([]error, len(all)), parts: parts, wait: wait}
	var done sync.WaitGroup
	for no, part := range parts {
		if len(part) > 0 {
			done.Go(func() { f.lost[no], f.errs[no] = finishAt(ctx, all[no], part) })
		}
	}
	done.Wait()
	lost, err := finishAnywhere(all, unknown, func(l *ledger, part []store.Outcome) ([]store.ID, error) {
		return finishAt(ctx, l, part)
	})
	if err == nil && len(lost) > 0 {
		err = s.complete(ctx, all)
	}
	return f.end(lost, unknown, err)
}

const (
	mostFollowUps  = 64               // limit of concurrent follow-ups
	followUpWithin = 15 * time.Second // timeout of a follow-up
)

// finished tells other ledgers which attempts have ended, and delivers the letters that came with the outcomes. It
// waits only briefly for this follow-up, but does not cancel it, because that would close connections to servers that
// are only slow. The leader does what fails or is left out here.
func (s *Store) finished(
	ctx context.Context, all []*ledger, outcomes []store.Outcome, sent []map[store.ID]store.ID,
) {
	posted := slices.ContainsFunc(sent, func(mail map[store.ID]store.ID) bool { return len(mail) > 0 })
	if !posted && !s.far.known.Load() {
		return
	}
	ids := idsOf(outcomes)
	if !posted && len(s.far.wanted(ids)) == 0 {
		return
	}
	select {
	case s.followUps <- struct{}{}:
	default:
		return
	}
	over := make(chan struct{})
	started := s.start(func() {
		defer close(over)
		defer func() { <-s.followUps }()
		within, cancel := context.WithTimeout(s.life, followUpWithin)
		defer cancel()
		for no, mail := range sent {
			if len(mail) > 0 {
				_, _ = s.sendAll(within, all, all[no], slices.Collect(maps.Values(mail)))
			}
		}
		s.tell(within, all, ids)
	})
	if !started {
		<-s.followUps
		return
	}
	wait := time.NewTimer(suspectAfter)
	defer wait.Stop()
	select {
	case <-over:
	case <-wait.C:
	case <-ctx.Done():
	}
}

func finishAt(ctx context.Context, l *ledger, outcomes []store.Outcome) ([]store.ID, error) {
	return ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.ID, error) {
		return e.Finish(ctx, outcomes)
	})
}

// partsOf splits outcomes by ledger. unknown are outcomes whose ledger this process does not know. Outcomes in wait
// have tasks or needs that could not be placed. sent receives the letters that come with the outcomes of each ledger.
func (s *Store) partsOf(
	ctx context.Context, all []*ledger, outcomes []store.Outcome, sent []map[store.ID]store.ID, parents sight,
) (parts [][]store.Outcome, unknown []store.Outcome, wait waiting) {
	parts = make([][]store.Outcome, len(all))
	if no, is := s.inOne(outcomes); is && no < len(all) {
		parts[no] = outcomes
		return parts, nil, wait
	}
	for i, o := range outcomes {
		no, known := s.placeOfOutcome(&o)
		if len(o.Then) > 0 || len(o.Needs) > 0 {
			var err error
			if no, known, err = s.besideOutcome(ctx, all, &o, no, known, sent, parents); err != nil {
				wait.tasks, wait.err = append(wait.tasks, o.Task.ID), errors.Join(wait.err, err)
				continue
			}
		}
		if known && no < len(all) {
			if parts[no] == nil {
				parts[no] = make([]store.Outcome, 0, len(outcomes)-i)
			}
			parts[no] = append(parts[no], o)
		} else {
			unknown = append(unknown, o)
		}
	}
	return parts, unknown, wait
}

// waiting lists the outcomes that could not be written yet, and the reason.
type waiting struct {
	tasks []store.ID
	err   error
}

// inOne returns the ledger of all outcomes, if there is only one and no outcome brings or needs other tasks.
func (s *Store) inOne(outcomes []store.Outcome) (no int, is bool) {
	for i := range outcomes {
		o := &outcomes[i]
		at, known := s.placeOfOutcome(o)
		if !known || i > 0 && at != no || len(o.Then) > 0 || len(o.Needs) > 0 {
			return 0, false
		}
		no = at
	}
	return no, len(outcomes) > 0
}

// besideOutcome finds the ledger of an outcome that brings other tasks or makes its task wait for some. It replaces
// tasks that belong elsewhere by letters, and adds these to sent.
func (s *Store) besideOutcome(
	ctx context.Context, all []*ledger, o *store.Outcome, no int, known bool, sent []map[store.ID]store.ID,
	parents sight,
) (int, bool, error) {
	if !known {
		found, err := s.whereAre(ctx, all, []store.ID{o.Task.ID})
		if err != nil {
			return 0, false, err
		}
		at, is := found[o.Task.ID]
		if no, known = at.no, is; !known {
			return 0, false, nil
		}
	}
	then, mail, err := s.wrapUp(len(all), no, o.Then)
	if err != nil {
		return 0, false, err
	}
	heard, err := heardBefore(ctx, all, no, then, o.Needs, mail, parents)
	if err == nil && len(heard) > 0 {
		parts := make([][]postgres.Elsewhere, len(all))
		parts[no] = heard
		err = s.hear(ctx, all, parts)
	}
	if err != nil {
		return 0, false, err
	}
	o.Then = then
	for task, letter := range mail {
		if sent[no] == nil {
			sent[no] = map[store.ID]store.ID{}
		}
		sent[no][task] = letter
	}
	return no, known, nil
}

// finishAnywhere offers each outcome first to the ledger that its task's id points to, and then to all others. An
// outcome is lost if all ledgers have answered and none accepted it.
func finishAnywhere(
	all []*ledger, outcomes []store.Outcome, finish func(l *ledger, part []store.Outcome) ([]store.ID, error),
) (lost []store.ID, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	ids, by := make([]store.ID, len(outcomes)), map[store.ID][]store.Outcome{}
	for i, o := range outcomes {
		ids[i], by[o.Task.ID] = o.Task.ID, append(by[o.Task.ID], o)
	}
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	left := map[store.ID]int{} // number of outcomes not accepted, by task
	for id, list := range by {
		left[id] = len(list)
	}
	err = inStages(all, ids, func(l *ledger, ids []store.ID) ([]store.ID, error) {
		var part []store.Outcome
		for _, id := range ids {
			part = append(part, by[id]...)
		}
		refused, err := finish(l, part)
		held := new(store.HeldError)
		if err != nil && !errors.As(err, &held) {
			return ids, err
		}
		times := map[store.ID]int{}
		for _, id := range slices.Concat(refused, held.Tasks) {
			times[id]++
		}
		for _, id := range ids {
			if times[id] < len(by[id]) { // the task is in this ledger
				left[id] = times[id]
			}
		}
		return slices.DeleteFunc(slices.Clone(ids), func(id store.ID) bool { return times[id] < len(by[id]) }), err
	})
	for id, n := range left {
		for range n {
			lost = append(lost, id)
		}
	}
	return lost, err
}

// finishing holds the answers of the ledgers to a Finish.
type finishing struct {
	parts [][]store.Outcome
	lost  [][]store.ID
	errs  []error
	wait  waiting
}

// end combines the answers. lost and err are the result for outcomes whose ledger was unknown.
func (f *finishing) end(lost []store.ID, unknown []store.Outcome, err error) ([]store.ID, error) {
	waits := f.wait.tasks
	written := len(unknown) > 0 && (err == nil || len(lost) < len(unknown))
	for no, part := range f.parts {
		held := new(store.HeldError)
		switch {
		case len(part) == 0:
		case f.errs[no] == nil:
			written = true
		case errors.As(f.errs[no], &held):
			written, waits = true, append(waits, held.Tasks...)
		default:
			waits = append(waits, idsOf(part)...)
		}
	}
	failed := errors.Join(append(f.errs, f.wait.err, err)...)
	if err != nil { // a ledger that did not answer may have them
		waits, lost = append(waits, lost...), nil
	}
	if failed != nil && !written {
		return nil, failed
	}
	lost = slices.Concat(append(f.lost, lost)...)
	if len(waits) > 0 {
		return lost, heldError(failed, waits)
	}
	return lost, nil
}

func idsOf(outcomes []store.Outcome) []store.ID {
	ids := make([]store.ID, len(outcomes))
	for i := range outcomes {
		ids[i] = outcomes[i].Task.ID
	}
	return ids
}
