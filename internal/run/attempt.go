// Package run runs attempts: one handler call each, with its context, its deadline and its notes,
// safe from panics.
//
// It may use handlers and channels, and cannot reach a database. Tasks come from package claim. The end of each
// attempt goes through package lifecycle to package finish.
package run

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Limits on what one attempt may log.
const (
	maxLogLines = 1000
	maxLogBytes = 256 << 10
)

// Attempt is a claimed task, from the claim to its outcome.
type Attempt struct {
	Task *store.Task

	claim *claimed // the claim that it belongs to

	mu      sync.Mutex
	ctx     context.Context         // nil until the handler runs; the claim's context until the handler uses its own
	cancel  context.CancelCauseFunc // ends ctx, or a wait before it; nil while ctx is the claim's
	stopped error                   // why it was stopped
	over    bool                    // it has ended
	// forsaken is set if its handler was abandoned and is still running.
	forsaken bool
	counted  bool // as a hung handler
	inTx     bool
	movesOn  bool          // another stage receives the handler's output
	begun    time.Duration // after the claim
	said     *said         // nil if its handler recorded nothing
	watch    *watch        // nil if nothing limits it
	waitsFor string        // what its handler waits for, see WaitsFor

	goroutine uint64 // in which its handler runs
	call      *Call  // shared with other attempts; nil if it is alone
}

// said holds what the handler of an attempt recorded. Most handlers record nothing.
type said struct {
	progress *store.Progress
	fresh    bool // the progress is not stored yet
	output   []byte
	logs     []store.LogLine // not known to be stored
	logged   time.Time       // the time of the last line
	logLines int
	logBytes int
	steps    *steps          // nil unless they are in use
	stepped  bool            // the task has steps
	children []store.NewTask // to enqueue with the outcome; an attempt that ends with a wait waits for them
	next     []store.NewTask // to enqueue when the attempt has completed
}

// say returns where to record what the handler reports. The lock must be held.
func (a *Attempt) say() *said {
	if a.said == nil {
		a.said = new(said)
	}
	return a.said
}

// Left is the number of tasks of the same claim without an outcome in package finish.
func (a *Attempt) Left() *atomic.Int64 { return &a.claim.left }

// Age returns the time since the handler began.
func (a *Attempt) Age() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Since() - a.begun
}

// Followed reports whether all attempts of the claim are traced.
func (a *Attempt) Followed() bool { return a.claim.followed }

// Since returns the time since the task was claimed.
func (a *Attempt) Since() time.Duration { return time.Since(a.claim.at) }

// Stop ends the attempt's context with a cause. If the attempt has not begun, it ends with that
// cause as soon as it begins. Later causes are ignored.
func (a *Attempt) Stop(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(cause)
}

// stop is Stop. The lock must be held.
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
	if a.ctx == nil {
		a.stop(cause)
	}
}

// onStop sets what a stop calls before the handler has begun. Nil means nothing.
func (a *Attempt) onStop(cancel context.CancelCauseFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel = cancel; cancel != nil && a.stopped != nil {
		cancel(a.stopped)
	}
}

// Stopped returns the cause of a Stop, or nil.
func (a *Attempt) Stopped() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped
}

// begin returns the handler's context, or the cause if the attempt was stopped.
func (a *Attempt) begin(after time.Duration) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped != nil {
		return nil, a.stopped
	}
	a.begun, a.ctx = after, a.claim.ctx
	return (*handlerContext)(a), nil
}

// Context returns the handler's context. The handler must have begun.
func (a *Attempt) Context() context.Context { return (*handlerContext)(a) }

// end ends the handler's context, if the handler has used it. It reports whether the attempt had not been abandoned.
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

// SetProgress records the handler's progress. Less than 0 % and NaN, which cannot be stored, count as 0 %; more than
// 100 % counts as 100 %.
func (a *Attempt) SetProgress(p store.Progress) {
	if !(p.Percent > 0) {
		p.Percent = 0
	}
	p.Percent = min(p.Percent, 100)
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.say()
	s.progress, s.fresh = &p, true
	a.signOfLife()
}

// SetOutput records the task's output, which is stored with the outcome.
func (a *Attempt) SetOutput(output []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say().output = output
}

// Log records one line. When the log is full, a last line says so and further lines are dropped.
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
	s.logs = append(s.logs, a.line(at, level, text))
}

// line returns a log line. Its time is later than that of the previous line, so two equal lines are one line that was
// stored twice. The lock must be held.
func (a *Attempt) line(at time.Time, level, text string) store.LogLine {
	s := a.say()
	if at = at.UTC().Round(time.Millisecond); !at.After(s.logged) {
		at = s.logged.Add(time.Microsecond)
	}
	s.logged = at
	return store.LogLine{At: at, Attempt: a.Task.Attempt, Level: level, Text: text}
}

// Interim returns what the handler recorded and is not stored yet, or nil. It returns the same again until Noted is
// called. Once the handler has begun to finish the task in its own transaction, Interim returns nil, because that
// transaction stores the note and holds the task's row. If it is rolled back, Final has everything.
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

// Noted says that a note from Interim is stored. A second call has no effect.
func (a *Attempt) Noted(note *store.Note) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.say()
	if s.steps != nil {
		s.steps.noted(note.Logs)
		s.forgetSteps()
	}
	for stored := note.Logs; len(stored) > 0; stored = stored[1:] { // others may have stored the first ones
		if n := len(stored); n <= len(s.logs) && slices.Equal(stored, s.logs[:n]) {
			s.logs = s.logs[n:]
			break
		}
	}
	if note.Progress == s.progress {
		s.fresh = false
	}
}

// Final returns the note that goes with the outcome, or nil. It omits progress that is already stored: another
// process may have stored newer progress since.
func (a *Attempt) Final() *store.Note {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.said
	if s == nil || !s.fresh && s.output == nil && len(s.logs) == 0 {
		return nil
	}
	note := &store.Note{Output: s.output, Logs: s.logs}
	if s.fresh {
		note.Progress = s.progress
	}
	return note
}

// SetNext sets the tasks to enqueue after the children when the attempt has completed.
func (a *Attempt) SetNext(tasks []store.NewTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say().next = tasks
}

// AddChild adds a child task to enqueue and wait for. It returns the number of children.
func (a *Attempt) AddChild(child store.NewTask) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.say()
	s.children = append(s.children, child)
	return len(s.children)
}

// Then returns the tasks to enqueue when the attempt has completed.
func (a *Attempt) Then() []store.NewTask {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil {
		return nil
	}
	return slices.Concat(a.said.children, a.said.next)
}

// Children returns the tasks to enqueue when the attempt waits for them, and the needs that make it
// wait.
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

// SetInTx records whether the handler finishes the task in its own transaction.
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

// SetMovesOn records that the task is a stage of a pipeline and that another stage receives its output.
func (a *Attempt) SetMovesOn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.movesOn = true
}

// MovesOn reports whether another stage of a pipeline receives the output of the handler.
func (a *Attempt) MovesOn() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.movesOn
}
