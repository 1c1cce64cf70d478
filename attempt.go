package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/claim"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// How a worker handles one attempt, from its slot to its outcome.

var (
	errExpired  = errors.New("expired before it could start")
	errLate     = errors.New("its deadline passed before it could start")
	errAway     = fmt.Errorf("the database was out of reach for most of the lease: %w", ErrLeaseLost)
	errUnproved = errors.New("CompleteTx was called, but its transaction was not committed")
)

// runAttempt is the body of an attempt. run.Slots calls it.
func (w *Worker) runAttempt(ctx context.Context, a *run.Attempt) error {
	if expired(a.Task) {
		return errExpired
	}
	if err := lifecycle.Damaged(a.Task); err != nil {
		return err
	}
	if w.events.any.Load() {
		w.events.send(Event{Kind: EventStarted, Task: *a.Task})
	}
	args, err := w.args(ctx, a.Task)
	if err != nil {
		return err
	}
	d := delivery{task: a.Task, args: args, attempt: a, client: w.client}
	if len(a.Task.Settings) > 0 {
		d.info = new(TaskInfo)
		if err := d.info.read(a.Task); err != nil {
			return err
		}
		if late(a.Task, d.info.Deadline) {
			return errLate
		}
	}
	if beginsRun(a.Task) {
		if err := w.client.awaitRun(ctx, w.mux.pipelineOf(a.Task.Kind), a.Task); err != nil {
			return err
		}
	}
	if a.Task.Crashes > 0 {
		w.suspects.begin(ctx, a.Task)
	}
	handle := w.handle
	if w.follow != nil && (a.Followed() || d.info != nil && len(d.info.TraceContext) > 0) {
		handle = w.follow
	}
	if handle == nil {
		return w.dispatch(ctx, d)
	}
	t := &Task[json.RawMessage]{Args: args, attempt: a, client: w.client}
	if err := d.describe(&t.TaskInfo); err != nil {
		return err
	}
	return handle(ctx, t)
}

// hasLastChance reports whether one more death of its worker puts a task into quarantine. Such tasks start one at a
// time, so that the death counts against the one that caused it.
func hasLastChance(a *run.Attempt) bool { return a.Task.Crashes == lifecycle.MaxCrashes-1 }

// args returns the args of a task for its handler. Large args are not read if the handler takes a stream.
func (w *Worker) args(ctx context.Context, t *store.Task) (json.RawMessage, error) {
	content, err := w.client.argsOf(t)
	if err != nil {
		return nil, err
	}
	if h := w.mux.handlers[t.Kind]; content.Large() && (h == nil || h.streams) {
		return t.Args, nil
	}
	return content.Bytes(ctx)
}

// dispatch calls the handler. Middleware is wrapped around dispatch.
func (w *Worker) dispatch(ctx context.Context, d delivery) error {
	h := w.mux.handlers[d.task.Kind]
	if h == nil {
		w.log.Warn("run: no handler for this kind, handing the task back", "kind", d.task.Kind, "task", d.task.ID)
		return w.strangers.meet(ctx, d.task)
	}
	return h.run(ctx, d)
}

// limits returns the task's own limits, or else its handler's, or else the worker's. A deadline before the timeout
// replaces it.
func (w *Worker) limits(a *run.Attempt) (l run.Limits) {
	var deadline time.Time
	if len(a.Task.Settings) > 0 {
		if s, err := lifecycle.DecodeSettings(a.Task.Settings); err == nil {
			l.Time, l.Stall, deadline = s.Timeout, s.Stall, s.DeadlineOf(a.Task)
		}
	}
	if h := w.mux.handlers[a.Task.Kind]; h != nil {
		setDefault(&l.Time, h.timeout)
		setDefault(&l.Stall, h.stall)
	}
	setDefault(&l.Time, w.config.Timeout)
	setDefault(&l.Stall, w.config.StallTimeout)
	if !deadline.IsZero() {
		if left := deadline.Sub(a.Task.ClaimedAt) - a.Since(); l.Time == 0 || left < l.Time {
			l.Time, l.Cause = left, ErrDeadline
			return l
		}
	}
	if l.Time > 0 {
		l.Cause = fmt.Errorf("%w after %s", ErrTimeout, duration.Text(l.Time))
	}
	return l
}

func expired(t *store.Task) bool {
	return !t.ExpiresAt.IsZero() && t.ClaimedAt.After(t.ExpiresAt)
}

// late reports whether a task was claimed at or after its deadline.
func late(t *store.Task, deadline time.Time) bool {
	return !deadline.IsZero() && !t.ClaimedAt.Before(deadline)
}

// written reports outcomes that the store has accepted or refused.
func (w *Worker) written(outcomes []store.Outcome, lost map[store.ID]bool) {
	w.claimMore()
	if len(lost) > 0 {
		lost = w.client.refused(outcomes, lost)
	}
	w.client.ended(outcomes, lost)
	w.logFailures(outcomes, lost)
	if !w.events.any.Load() && len(lost) == 0 {
		return
	}
	for i := range outcomes {
		o := &outcomes[i]
		e := eventOf(o)
		if lost[o.Task.ID] {
			if e.Kind = EventLost; o.Error == errUnproved.Error() {
				e.Kind, e.Error = EventCompleted, ""
			} else {
				w.log.Warn("finish: refused, the lease is not open", "task", o.Task.ID, "kind", o.Task.Kind)
			}
		}
		w.events.send(e)
	}
}

// logFailures logs failed attempts, each once and without the task's args.
func (w *Worker) logFailures(outcomes []store.Outcome, lost map[store.ID]bool) {
	for i := range outcomes {
		o := &outcomes[i]
		if o.Error == "" || lost[o.Task.ID] {
			continue
		}
		about := []any{"task", o.Task.ID, "kind", o.Task.Kind, "queue", o.Task.Queue, "attempt", o.Task.Attempt,
			"error", o.Error}
		switch o.State {
		case store.Retryable:
			w.log.Info("attempt failed", append(about, "again_in", o.Delay.Round(time.Millisecond))...)
		case store.Discarded:
			w.log.Warn("task discarded", about...)
		}
	}
}

// claimMore wakes the claimer when there is room again. Otherwise it would wait for its next poll.
func (w *Worker) claimMore() {
	if n, _ := w.room(); n <= 0 {
		return
	}
	if _, most := w.queues.open(); len(most) > 0 { // a queue at its per-worker limit may have room again
		w.source.Wake()
	} else {
		w.source.Freed()
	}
}

// asks returns the queues of the next claims: each queue with a per-worker limit by itself, and all others together.
func (w *Worker) asks() []claim.Ask {
	open, most := w.queues.open()
	open = slices.DeleteFunc(open, func(q string) bool { return !w.strangers.takes(q) })
	if len(most) == 0 {
		return []claim.Ask{{Queues: open}}
	}
	asks := []claim.Ask{{}}
	for _, q := range open {
		limit := most[q]
		if limit == 0 {
			asks[0].Queues = append(asks[0].Queues, q)
		} else if left := limit - w.slots.HeldOf(q); left > 0 {
			asks = append(asks, claim.Ask{Queues: []string{q}, Most: left})
		}
	}
	if len(asks[0].Queues) == 0 {
		asks = asks[1:]
	}
	return asks
}

// ready reports whether a handler could begin with a task of a queue at once.
func (w *Worker) ready(queue string) bool {
	return w.slots.Held() < w.config.Concurrency && !w.slots.Refuses() && !w.finish.Full() && w.queues.fresh() &&
		slices.ContainsFunc(w.asks(), func(a claim.Ask) bool { return a.Most == 0 && slices.Contains(a.Queues, queue) })
}

// claimPause is the pause between small claims while more slots are about to become free.
const claimPause = 5 * time.Millisecond

// room returns how many more tasks the worker can take and, if none, when to ask again. It returns zero while enough
// tasks are read ahead. It also returns zero while only a few slots are free and more will be in a moment, so that
// claims come in batches.
func (w *Worker) room() (n int, after time.Duration) {
	held, ahead := w.slots.Held(), w.readAhead()
	if w.finish.Full() || held-w.config.Concurrency > ahead/2 {
		return 0, w.config.Poll
	}
	n = max(w.config.Concurrency+ahead-held, 0)
	if pause := claimPause - w.slots.Taken(); pause > 0 && n <= w.config.Concurrency/8 && w.slots.Ending(claimPause) > 0 {
		return 0, pause
	}
	return n, w.config.Poll
}

// readAhead limits how long a task waits inside the worker.
func (w *Worker) readAhead() int {
	const longestWait = 20 * time.Millisecond
	mean := w.slots.Mean()
	if mean == 0 {
		return 0
	}
	return min(w.config.ReadAhead, int(int64(longestWait)*int64(w.config.Concurrency)/int64(mean)))
}

// take runs claimed tasks. From now on the worker must send heartbeats in time.
func (w *Worker) take(tasks []store.Task, asked time.Time) {
	w.strangers.leaveTo(tasks, func(kind string) bool { return w.mux.handlers[kind] != nil }, w.config.Poll)
	w.slots.Take(tasks, asked)
	w.heart.Stir()
	if id := w.ID(); tasks[0].Worker != id { // the answer came late: no heartbeat extends these leases
		for _, a := range w.slots.All() {
			if a.Task.Worker != id {
				a.Stop(errAway)
			}
		}
	}
}

// holds returns all leases. It reads the parts in the order in which tasks pass through them, so that it does not miss
// a task that moves on in the meantime.
func (w *Worker) holds() []store.Token {
	return slices.Concat(w.source.Asked(), w.slots.Tokens(), w.finish.Tokens())
}

func (w *Worker) notes() []store.Note {
	var notes []store.Note
	for _, a := range w.slots.All() {
		if n := a.Interim(); n != nil {
			notes = append(notes, *n)
		}
	}
	return notes
}

func (w *Worker) noted(notes []store.Note) {
	for i := range notes {
		if a := w.slots.Find(notes[i].ID, notes[i].Lease); a != nil {
			a.Noted(&notes[i])
		}
	}
}

func (w *Worker) stop(stops []store.Stop) {
	for _, s := range stops {
		if a := w.slots.Find(s.ID, s.Lease); a != nil {
			w.slots.Cancel(a, ErrCancelled)
		}
	}
}

func (w *Worker) lost() {
	for _, a := range w.slots.All() {
		a.Stop(ErrLeaseLost)
	}
}

func (w *Worker) away() {
	for _, a := range w.slots.All() {
		a.Stop(errAway)
	}
}
