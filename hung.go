package tusk

import (
	"fmt"

	"github.com/tuskqueue/tusk/internal/run"
)

// How a worker handles handlers that ignore the end of their contexts.

// Hung returns the number of handlers that ignore the end of their contexts. Their attempts have already ended.
func (w *Worker) Hung() int { return w.slots.Hung() }

// hung reports an attempt that ended although its handler still runs.
func (w *Worker) hung(a *run.Attempt, err error, r run.Result) {
	w.events.send(Event{Kind: EventHung, Task: *a.Task, Error: err.Error(), Ran: r.Ran})
	if !r.Counted {
		return
	}
	w.log.Warn("run: a handler hangs: it ignores the end of its context, and the attempt ends without it",
		append(about(a), "because", err, "ran", r.Ran, "hung", w.Hung(), "stack", r.Trace)...)
	if most := w.config.MaxHung; most > 0 && w.Hung() >= most {
		select {
		case w.overrun <- struct{}{}:
		default:
		}
	}
}

// returned reports a hung handler that has returned after all. It no longer owns its task.
func (w *Worker) returned(a *run.Attempt, r run.Result) {
	w.log.Info("run: a hung handler has returned, nobody waits for its result",
		append(about(a), "ran", r.Ran, "error", fmt.Sprint(r.Err))...) // Sprint: its methods may panic
}

func about(a *run.Attempt) []any {
	return []any{"task", a.Task.ID, "kind", a.Task.Kind, "queue", a.Task.Queue, "attempt", a.Task.Attempt}
}
