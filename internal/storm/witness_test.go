//go:build unix

package storm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// witness is a store that records what an engine is asked and what it answers.
type witness struct {
	store.Store
	log *history
}

// witnessed wraps a store with a witness.
func witnessed(s store.Store, log *history) store.Store {
	w := &witness{s, log}
	if x, ok := s.(store.Exchanger); ok {
		return exchangingWitness{w, x}
	}
	return w
}

// Unwrap makes capabilities visible to store.As.
func (w *witness) Unwrap() store.Store { return w.Store }

// doubt returns what an error leaves open.
func doubt(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, store.ErrNotCommitted), errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrWorkerDead),
		errors.Is(err, store.ErrConflict):
		return errNone
	}
	return "unknown: " + err.Error()
}

func (w *witness) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	call := w.log.call(event{Op: opEnqueue, Items: itemsOfNew(tasks)})
	results, err := w.Store.Enqueue(ctx, tasks)
	w.log.write(event{Op: opEnqueued, Call: call, Err: doubt(err), Items: itemsOfResults(results)})
	return results, err
}

func (w *witness) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if len(p.Tasks) == 0 && p.Term == 0 {
		return w.Store.PutRecord(ctx, p)
	}
	call := w.log.call(event{Op: opEnqueue, Term: p.Term, Items: itemsOfNew(p.Tasks)})
	version, results, err := w.Store.PutRecord(ctx, p)
	w.log.write(event{Op: opEnqueued, Call: call, Err: doubt(err), Items: itemsOfResults(results)})
	return version, results, err
}

func (w *witness) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	calls := make([]int64, len(puts))
	for i := range puts {
		if len(puts[i].Tasks) > 0 {
			calls[i] = w.log.call(event{Op: opEnqueue, Term: term, Items: itemsOfNew(puts[i].Tasks)})
		}
	}
	updated, err := w.Store.UpdateRecords(ctx, term, puts)
	for i := range puts {
		if len(puts[i].Tasks) == 0 {
			continue
		}
		e, failed := event{Op: opEnqueued, Call: calls[i]}, err
		if err == nil && updated[i].Version == 0 {
			failed = store.ErrConflict
		} else if err == nil {
			e.Items = itemsOfResults(updated[i].Enqueued)
		}
		e.Err = doubt(failed)
		w.log.write(e)
	}
	return updated, err
}

func (w *witness) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	call, asked := w.log.calls.Add(1), instant() // an empty claim leaves no line
	tasks, err := w.Store.Claim(ctx, r)
	w.claimed(event{Call: call, Asked: asked}, r, tasks, err)
	return tasks, err
}

// asStored is the text of claims whose task was leased as it was stored.
const asStored = "as it was stored"

// Park implements store.Parker.
func (w *witness) Park(p *store.Parked) (recall func()) {
	call, inner := w.log.calls.Add(1), *p
	inner.Answer = func(tasks []store.Task, sent time.Time, err error) {
		w.claimed(event{Call: call, Asked: instant() - int64(time.Since(sent)), Text: asStored}, p.Request, tasks, err)
		p.Answer(tasks, sent, err)
	}
	return store.Park(w.Store, &inner)
}

func (w *witness) claimed(e event, r store.ClaimRequest, tasks []store.Task, err error) {
	if err != nil && len(tasks) > 0 {
		w.log.write(event{Op: opFault, Err: "I4", Text: fmt.Sprintf("a claim failed and gave %d tasks: %v", len(tasks), err)})
	} else if len(tasks) > 0 {
		items := make([]item, len(tasks))
		for i := range tasks {
			items[i] = itemOfClaimed(&tasks[i])
			items[i].Token = tasks[i].Lease.String()
		}
		e.Op, e.Who, e.Token, e.Items = opClaimed, r.Worker.String(), r.Token.String(), items
		w.log.write(e)
	}
}

func (w *witness) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	stops, err := w.Store.Extend(ctx, b)
	if _, held := heldIn(err); (err == nil || held) && b.TTL > 0 {
		w.log.write(event{Op: opBeat, Who: b.Worker.ID.String()})
	}
	return stops, err
}

func (w *witness) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	call := w.finish(outcomes)
	lost, err := w.Store.Finish(ctx, outcomes)
	w.finished(call, lost, err)
	return lost, err
}

func (w *witness) finish(outcomes []store.Outcome) (call int64) {
	items := make([]item, len(outcomes))
	var then []store.NewTask
	for i := range outcomes {
		o := &outcomes[i]
		items[i] = item{ID: o.Task.ID, Token: o.Task.Lease.String(), State: o.State.String(), Attempt: o.Attempt,
			Crashes: o.Crashes,
			Rescue:  strings.HasPrefix(o.Error, "worker ") && strings.HasSuffix(o.Error, " died")}
		if items[i].Rescue {
			items[i].Part, items[i].Claimed = o.Task.Worker.String(), o.Task.ClaimedAt.UnixNano()
		}
		then = append(then, o.Then...)
	}
	if len(then) > 0 { // children: whether they are stored depends on the outcome
		w.log.call(event{Op: opEnqueue, Text: "then", Items: itemsOfNew(then)})
	}
	return w.log.call(event{Op: opFinish, Items: items})
}

// heldIn returns the tasks that a user's open transaction holds.
func heldIn(err error) ([]store.ID, bool) {
	if held := (*store.HeldError)(nil); errors.As(err, &held) {
		return held.Tasks, true
	}
	return nil, false
}

func (w *witness) finished(call int64, lost []store.ID, err error) {
	answer := event{Op: opFinished, Call: call, Err: doubt(err)}
	for _, id := range lost {
		answer.Items = append(answer.Items, item{ID: id})
	}
	if held, ok := heldIn(err); ok { // all others are written
		answer.Err = ""
		for _, id := range held {
			answer.Items = append(answer.Items, item{ID: id, State: leftOut(err)})
		}
	}
	w.log.write(answer)
}

// unclear is the state of outcomes that a call left out, when a lost answer leaves open whether they are written.
const unclear = "unclear"

func leftOut(err error) string {
	if errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrNotCommitted) {
		return unclear
	}
	return ""
}

// exchangingWitness is the witness of an engine that ends an attempt and claims in one round trip.
type exchangingWitness struct {
	*witness
	store.Exchanger
}

func (w exchangingWitness) Exchange(ctx context.Context, o store.Outcome, r store.ClaimRequest) store.Exchanged {
	ended, call, asked := w.finish([]store.Outcome{o}), w.log.calls.Add(1), instant()
	x := w.Exchanger.Exchange(ctx, o, r)
	var lost []store.ID
	if x.Lost {
		lost = append(lost, o.Task.ID)
	}
	w.finished(ended, lost, x.FinishErr)
	w.claimed(event{Call: call, Asked: asked}, r, x.Tasks, x.ClaimErr)
	return x
}

func (w *witness) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	items := make([]item, len(e.IDs))
	for i, id := range e.IDs {
		items[i].ID = id
	}
	call := w.log.call(event{Op: opEdit, Text: e.Change.Op.String(), Items: items})
	results, err := w.Store.Edit(ctx, e)
	for i, r := range results {
		items[i].State = r.Result.String()
	}
	w.log.write(event{Op: opEdited, Call: call, Text: e.Change.Op.String(), Err: doubt(err), Items: items})
	return results, err
}

func (w *witness) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	answer, err := w.Store.Lead(ctx, c)
	if err == nil && answer.Term != 0 {
		w.log.write(event{Op: opLed, Who: c.ID.String(), Term: answer.Term})
	}
	return answer, err
}

// chore records the term of a chore and whether the chore was accepted.
func (w *witness) chore(name string, term int64, do func() (did bool, err error)) error {
	call := w.log.calls.Add(1)
	asked := event{Op: opChore, Call: call, Text: name, Term: term}
	w.log.write(asked)
	did, err := do()
	if err == nil && did {
		w.log.write(event{Op: opChored, Call: call, Text: name, Term: term})
	}
	return err
}

func (w *witness) Admit(ctx context.Context, term int64, limit int) (a store.Admitted, err error) {
	err = w.chore("admit", term, func() (bool, error) {
		a, err = w.Store.Admit(ctx, term, limit)
		return a.Count+a.Cancelled > 0, err
	})
	return a, err
}

func (w *witness) Grant(ctx context.Context, term int64, ids []store.ID) (n int, err error) {
	err = w.chore("grant", term, func() (bool, error) {
		n, err = w.Store.Grant(ctx, term, ids)
		return n > 0, err
	})
	return n, err
}

func (w *witness) Rescue(ctx context.Context, term int64, limit int) (tasks []store.Task, err error) {
	err = w.chore("rescue", term, func() (bool, error) {
		tasks, err = w.Store.Rescue(ctx, term, limit)
		return len(tasks) > 0, err
	})
	return tasks, err
}

func itemsOfNew(tasks []store.NewTask) []item {
	items := make([]item, len(tasks))
	for i := range tasks {
		items[i] = itemOfNew(&tasks[i])
	}
	return items
}

func itemsOfResults(results []store.Enqueued) []item {
	items := make([]item, len(results))
	for i, r := range results {
		items[i] = item{ID: r.ID, State: r.Result.String()}
	}
	return items
}
