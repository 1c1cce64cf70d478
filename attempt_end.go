package tusk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// How the end of an attempt becomes an outcome.

// ended passes on the outcome of an attempt, if it has one.
func (w *Worker) ended(a *run.Attempt, r run.Result) {
	if a.Task.Crashes > 0 {
		w.suspects.end(a.Task)
	}
	if r.Hung { // the error is the limit that the handler reached
		w.hung(a, causeOf(a, r.Err), r)
	}
	if out, ok := w.judge(a, r); ok {
		w.finish.Add(out, r.Ended, a.Left())
	} else {
		w.events.send(Event{Kind: EventLost, Task: *a.Task, Ran: r.Ran})
		w.finish.Drop(a.Task.Lease, a.Left())
	}
	w.claimMore()
}

// judge returns the outcome of an attempt, and false if its lease was lost. It runs code of the user after the
// handler has returned: the methods of its error and the function of WithRetry. If that panics, the attempt failed
// with the panic, and the task's own policy applies.
func (w *Worker) judge(a *run.Attempt, r run.Result) (out store.Outcome, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.Err = fmt.Errorf("panic: %v, in deciding about the handler's error %T: %v", p, r.Err, r.Err)
			r.Trace = string(debug.Stack()) + r.Trace
			out, ok = w.outcome(a, r, nil)
		}
	}()
	var retry lifecycle.RetryFunc
	if h := w.mux.handlers[a.Task.Kind]; h != nil {
		retry = h.retry
	}
	return w.outcome(a, r, retry)
}

// outcome is judge without its guard. retry is the handler's own policy; nil means the task's.
func (w *Worker) outcome(a *run.Attempt, r run.Result, retry lifecycle.RetryFunc) (out store.Outcome, ok bool) {
	err := causeOf(a, r.Err)
	switch {
	case errors.Is(err, errAway): // accepted if the lease is still held; the attempt does not count
		out = lifecycle.After(a.Task, lifecycle.Settings{}, lifecycle.End{Err: ErrShutdown, Ran: r.Ran}, 0)
	case errors.Is(a.Stopped(), ErrLeaseLost) && errors.Is(err, ErrLeaseLost):
		return out, false
	default:
		out = w.decide(a, err, r, retry)
		addTasks(&out, a)
	}
	out.Note = noteOf(a, out.State)
	return out, true
}

// noteOf returns the note that goes with the outcome of an attempt, or nil.
func noteOf(a *run.Attempt, to State) *store.Note {
	if to == store.Completed {
		return a.Completing()
	}
	return a.Final()
}

// addTasks adds to an outcome the tasks that its attempt enqueues.
func addTasks(out *store.Outcome, a *run.Attempt) {
	switch out.State {
	case store.Completed:
		out.Then = a.Then()
	case store.Pending:
		out.Then, out.Needs = a.Children()
	}
}

func (w *Worker) decide(a *run.Attempt, err error, r run.Result, retry lifecycle.RetryFunc) store.Outcome {
	switch {
	case errors.Is(err, errExpired):
		return lifecycle.Expired(a.Task)
	case errors.Is(err, errLate):
		return lifecycle.Late(a.Task)
	}
	if a.InTx() && err == nil {
		err = errUnproved // if the transaction was committed, the store refuses this outcome, as it should
	}
	settings, problem := lifecycle.DecodeSettings(a.Task.Settings)
	if err == nil {
		err = problem
	}
	end := lifecycle.End{Err: err, Trace: r.Trace, Hung: r.Hung, Ran: r.Ran, Retry: retry}
	if err == nil {
		return lifecycle.After(a.Task, settings, end, 0)
	}
	children, _ := a.Children()
	end.Children = len(children) > 0
	out := lifecycle.After(a.Task, settings, end, rand.Float64())
	out.KeepTurn = a.Task.Turn && lifecycle.Blocks(&out, err) && w.client.keepsTurn(a.Task.Queue)
	return out
}

// causeOf determines whether a handler failed by itself or because it was stopped. A handler that returned nil has
// succeeded, even if it was told to stop.
func causeOf(a *run.Attempt, err error) error {
	cause := a.Stopped()
	switch {
	case err == nil || cause == nil:
		return err
	case (errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrStalled)) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, cause):
		return err // the handler failed by itself
	}
	return cause
}
