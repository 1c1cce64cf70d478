// Package run runs attempts: one handler call each, with its context, its
// deadline and its notes, safe from panics.
//
// It may touch handlers and channels, and cannot reach a database. Tasks come in
// from package claim; how each attempt ended goes out, by way of package
// lifecycle, to package finish.
package run

import (
	"context"
	"slices"
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

	mu      sync.Mutex
	ctx     context.Context         // nil until the handler runs; the claim's until the handler asks its own for something
	cancel  context.CancelCauseFunc // nil: ctx is the claim's
	stopped error                   // why it was stopped
	over    bool                    // it has ended
	// Its handler was given up and ran on.
	forsaken bool
	counted  bool // as a hung handler
	inTx     bool
	begun    time.Duration // after the claim
	said     *said         // nil: its handler said nothing
	watch    *watch        // nil: nothing bounds it

	goroutine uint64 // that its handler runs in
	call      *Call  // that it shares with others; nil: with none
}

// said is what the handler of an attempt said. Most say nothing.
type said struct {
	progress *store.Progress
	fresh    bool // the progress has not been stored
	output   []byte
	logs     []store.LogLine // not known to be stored
	logLines int
	logBytes int
	children []store.NewTask // to enqueue with the outcome, and to be waited for if it is a wait
	next     []store.NewTask // to enqueue when the attempt has completed
}

// say returns where to note what the handler says. The lock is held.
func (a *Attempt) say() *said {
	if a.said == nil {
		a.said = new(said)
	}
	return a.said
}

// Left counts the tasks of the same claim that package finish has not been told of.
func (a *Attempt) Left() *atomic.Int64 { return &a.claim.left }

// Age is how long ago the handler began.
func (a *Attempt) Age() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Since() - a.begun
}

// Followed reports whether all attempts of the claim are followed.
func (a *Attempt) Followed() bool { return a.claim.followed }

// Since is how long ago the task was claimed.
func (a *Attempt) Since() time.Duration { return time.Since(a.claim.at) }

// Stop ends the attempt's context with a cause. An attempt that has not begun
// will end with it at once. The first cause stays.
func (a *Attempt) Stop(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(cause)
}

// stop is Stop. The lock is held.
func (a *Attempt) stop(cause error) {
	if a.stopped != nil {
		return
	}
	a.stopped = cause
	if a.cancel != nil {
		a.cancel(cause)
	}
}

// stopWaiting is Stop for an attempt whose handler has not begun.
func (a *Attempt) stopWaiting(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil && a.stopped == nil {
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
func (a *Attempt) begin(after time.Duration) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped != nil {
		return nil, a.stopped
	}
	a.begun, a.ctx = after, a.claim.ctx
	return (*handlerContext)(a), nil
}

// Context returns the context of the handler, which has begun.
func (a *Attempt) Context() context.Context { return (*handlerContext)(a) }

// end ends the handler's context, if anybody has one. It reports whether the attempt had
// not been given up.
func (a *Attempt) end() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.cancel != nil {
		a.cancel(nil)
	}
	if a.watch != nil {
		a.watch.timer.Stop()
	}
	return !a.forsaken
}

func (a *Attempt) isForsaken() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.forsaken
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
	s := a.say()
	s.progress, s.fresh = &p, true
	a.signOfLife()
}

// SetOutput notes the task's output, which is stored with the outcome.
func (a *Attempt) SetOutput(output []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say().output = output
}

// Log notes one line. The last line that is kept says that the rest is not.
func (a *Attempt) Log(at time.Time, level, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signOfLife()
	s := a.say()
	if s.logLines >= maxLogLines || s.logBytes >= maxLogBytes {
		return
	}
	s.logLines++
	s.logBytes += len(text)
	if s.logLines == maxLogLines || s.logBytes >= maxLogBytes {
		level, text = "WARN", "log is full: further lines of this attempt are not kept"
	}
	line := store.LogLine{At: at.UTC().Round(time.Millisecond), Attempt: a.Task.Attempt, Level: level, Text: text}
	s.logs = append(s.logs, line)
}

// Interim returns what the handler noted and the store does not know yet, or nil.
// Noted says that it is stored; until then it is returned again. Once the handler has
// begun to finish the task in its own transaction there is none: that transaction
// brings the note and holds its row. If it is rolled back, Final has everything.
func (a *Attempt) Interim() *store.Note {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.said
	if s == nil || a.inTx || !s.fresh && len(s.logs) == 0 {
		return nil
	}
	note := store.Note{ID: a.Task.ID, Lease: a.Task.Lease, Logs: s.logs}
	if s.fresh {
		note.Progress = s.progress
	}
	return &note
}

// Noted says that a note which Interim returned is stored.
func (a *Attempt) Noted(note *store.Note) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.say()
	s.logs = s.logs[len(note.Logs):]
	if note.Progress == s.progress {
		s.fresh = false
	}
}

// Final returns the note that goes with the outcome, or nil.
func (a *Attempt) Final() *store.Note {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.said
	if s == nil || s.progress == nil && s.output == nil && len(s.logs) == 0 {
		return nil
	}
	return &store.Note{Progress: s.progress, Output: s.output, Logs: s.logs}
}

// SetNext notes what is to be enqueued when the attempt has completed, after its children.
func (a *Attempt) SetNext(tasks []store.NewTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say().next = tasks
}

// AddChild notes a task to be enqueued and waited for, and counts them.
func (a *Attempt) AddChild(child store.NewTask) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.say()
	s.children = append(s.children, child)
	return len(s.children)
}

// Then returns what is to be enqueued when the attempt has completed.
func (a *Attempt) Then() []store.NewTask {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil {
		return nil
	}
	return slices.Concat(a.said.children, a.said.next)
}

// Children returns what is to be enqueued when the attempt waits for it.
func (a *Attempt) Children() (tasks []store.NewTask, needs []store.Need) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil {
		return nil, nil
	}
	for _, n := range a.said.children {
		needs = append(needs, store.Need{Task: n.ID, OnFailure: store.ContinueOnFailure})
	}
	return a.said.children, needs
}

// SetInTx remembers whether the handler finishes the task in its own transaction.
func (a *Attempt) SetInTx(inTx bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inTx = inTx
}

// InTx reports whether the handler finished the task in its own transaction.
func (a *Attempt) InTx() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inTx
}
