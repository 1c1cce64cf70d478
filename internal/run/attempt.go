// Package run runs attempts: one handler call each, with its context, its
// deadline and its notes, safe from panics.
//
// It may touch handlers and channels, and cannot reach a database. Tasks come in
// from package claim; how each attempt ended goes out, by way of package
// lifecycle, to package finish.
package run

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// The most that one attempt may log.
const (
	maxLogLines = 1000
	maxLogBytes = 256 << 10
)

// Attempt is a claimed task, from the claim to its outcome.
type Attempt struct {
	Task *store.Task

	claim *claimed // that it came with

	mu       sync.Mutex
	parent   context.Context // nil until the handler runs
	ctx      context.Context // nil until the handler asks its context for something
	cancel   context.CancelCauseFunc
	stopped  error // why it was stopped
	over     bool  // it has ended
	progress *store.Progress
	fresh    bool // the progress has not been stored
	output   []byte
	logs     []store.LogLine // not known to be stored
	logLines int
	logBytes int
	then     []store.NewTask // to enqueue with the outcome
	children int             // how many of those are to be waited for
	inTx     bool
	begun    time.Time
}

// Left counts the tasks of the same claim that package finish has not been told of.
func (a *Attempt) Left() *atomic.Int64 { return &a.claim.left }

// Age is how long ago the handler began.
func (a *Attempt) Age() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.begun)
}

// Since is how long ago the task was claimed.
func (a *Attempt) Since() time.Duration { return time.Since(a.claim.at) }

// Stop ends the attempt's context with a cause. An attempt that has not begun
// will end with it at once. The first cause stays.
func (a *Attempt) Stop(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped != nil {
		return
	}
	a.stopped = cause
	if a.cancel != nil {
		a.cancel(cause)
	}
}

// StopWaiting is Stop for an attempt whose handler has not begun.
func (a *Attempt) StopWaiting(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parent == nil && a.stopped == nil {
		a.stopped = cause
	}
}

// Stopped returns the cause of a Stop, or nil.
func (a *Attempt) Stopped() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped
}

// begin returns the context of the handler, unless the attempt was stopped.
func (a *Attempt) begin(ctx context.Context, now time.Time) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped != nil {
		return nil, a.stopped
	}
	a.begun, a.parent = now, ctx
	return (*handlerContext)(a), nil
}

// end ends the handler's context, if anybody has one.
func (a *Attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.cancel != nil {
		a.cancel(nil)
	}
}

// held reports whether the attempt has not ended.
func (a *Attempt) held() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.over
}

// SetProgress notes how far the handler is.
func (a *Attempt) SetProgress(p store.Progress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress, a.fresh = &p, true
}

// SetOutput notes the task's output, which is stored with the outcome.
func (a *Attempt) SetOutput(output []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.output = output
}

// Log notes one line. The last line that is kept says that the rest is not.
func (a *Attempt) Log(at time.Time, level, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.logLines >= maxLogLines || a.logBytes >= maxLogBytes {
		return
	}
	a.logLines++
	a.logBytes += len(text)
	if a.logLines == maxLogLines || a.logBytes >= maxLogBytes {
		level, text = "WARN", "log is full: further lines of this attempt are not kept"
	}
	line := store.LogLine{At: at.UTC().Round(time.Millisecond), Attempt: a.Task.Attempt, Level: level, Text: text}
	a.logs = append(a.logs, line)
}

// Interim returns what the handler noted and the store does not know yet, or nil.
// Noted says that it is stored; until then it is returned again.
func (a *Attempt) Interim() *store.Note {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.fresh && len(a.logs) == 0 {
		return nil
	}
	note := store.Note{ID: a.Task.ID, Lease: a.Task.Lease, Logs: a.logs}
	if a.fresh {
		note.Progress = a.progress
	}
	return &note
}

// Noted says that a note which Interim returned is stored.
func (a *Attempt) Noted(note *store.Note) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.logs = a.logs[len(note.Logs):]
	if note.Progress == a.progress {
		a.fresh = false
	}
}

// Final returns the note that goes with the outcome, or nil.
func (a *Attempt) Final() *store.Note {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.progress == nil && a.output == nil && len(a.logs) == 0 {
		return nil
	}
	return &store.Note{Progress: a.progress, Output: a.output, Logs: a.logs}
}

// SetThen notes what is to be enqueued when the attempt has completed.
func (a *Attempt) SetThen(tasks []store.NewTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then, a.children = tasks, 0
}

// AddChild notes a task to be enqueued and waited for, and counts them.
func (a *Attempt) AddChild(child store.NewTask) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then = append(a.then, child)
	a.children++
	return a.children
}

// Then returns what is to be enqueued, and which of it is to be waited for.
func (a *Attempt) Then() (tasks []store.NewTask, children []store.Need) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.children > 0 {
		for _, n := range a.then {
			children = append(children, store.Need{Task: n.ID, OnFailure: store.ContinueOnFailure})
		}
	}
	return a.then, children
}

// SetInTx remembers that the handler finished the task in its own transaction.
func (a *Attempt) SetInTx() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inTx = true
}

// InTx reports whether the handler finished the task in its own transaction.
func (a *Attempt) InTx() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inTx
}
