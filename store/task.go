package store

import (
	"fmt"
	"time"
)

// State says where a task is in its life.
//
//	scheduled ─┐                  ┌─▶ completed
//	pending   ─┼▶ available ─▶ running ─▶ cancelled
//	retryable ─┘      ▲           ├─▶ discarded
//	     ▲            └───────────┤
//	     └────────────────────────┘
type State int8

// The eight states. A task in one of the last three is finished: it moves again
// only when somebody retries it by hand.
const (
	Scheduled State = iota + 1 // its run time has not come
	Pending                    // waits for what it needs, for its turn, or for a running task of its key to end
	Available                  // may be claimed
	Running                    // claimed; its lease is open
	Retryable                  // failed, and waits for its next attempt
	Completed                  // done
	Cancelled                  // called off
	Discarded                  // gave up: a dead letter; its Reason says why
)

var stateNames = [...]string{"", "scheduled", "pending", "available", "running", "retryable", "completed", "cancelled",
	"discarded"}

// States lists all states in the order of a task's life.
func States() []State {
	return []State{Scheduled, Pending, Available, Running, Retryable, Completed, Cancelled, Discarded}
}

// ParseState reads a state's name.
func ParseState(name string) (State, error) {
	for _, s := range States() {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("unknown state %q: want one of %v", name, States())
}

// Finished reports whether the state is one of completed, cancelled, discarded.
func (s State) Finished() bool { return s >= Completed && s <= Discarded }

func (s State) String() string {
	if s < Scheduled || s > Discarded {
		return fmt.Sprintf("state(%d)", int8(s))
	}
	return stateNames[s]
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) (err error) {
	*s, err = ParseState(string(text))
	return err
}

// NewTask is a task as its producer describes it. The layer above has checked
// it: names and sizes are within bounds, Args is valid JSON.
type NewTask struct {
	ID       ID // minted by the caller, never used before
	Kind     string
	Queue    string
	Tenant   string // empty: no tenant
	Priority int16  // lower runs sooner
	Args     []byte // JSON, kept byte for byte
	Tags     []string

	RunAt     time.Time     // not before this instant; zero: at once
	Delay     time.Duration // not before the engine's now plus this; added to RunAt when both are set
	ExpiresAt time.Time     // not to be started after this instant; zero: never expires
	ExpiresIn time.Duration // the same, from the engine's now

	// Key is the task's natural identity: at most one task of a (queue, tenant, key)
	// is unfinished at any time. The empty tenant is a tenant like any other. Empty: none.
	Key        string
	OnConflict OnConflict
	SourceTime time.Time // when the key's source changed; for Rerun. Zero: newer than all

	// Needs are tasks that must end first: this one is pending until then. Each was
	// enqueued before, or comes earlier in the same call; one that does not exist
	// counts as failed.
	Needs []Need
	// Workflow groups tasks, so that List finds them. Zero: none.
	Workflow ID

	// Turn has the task wait for its turn once it could run: it is pending until
	// Grant names it. The turns of a queue are counted by tenant and Partition.
	Turn      bool
	Partition string

	// Settings is what only the layer above reads: limits of attempts and time,
	// the retry policy, the user's metadata. Engines hand it back unread. Nil is
	// the usual value and costs nothing.
	Settings []byte
}

// ScheduleKeys begins the keys of the tasks of schedules, which are stored together with a
// record. No other key begins so.
const ScheduleKeys = "schedule:"

// Need is a task that must end before another may run.
type Need struct {
	Task      ID
	OnFailure OnFailure
}

// OnFailure says what becomes of a task when one that it needs ends cancelled or
// discarded, or is deleted. A completed one is always what was needed. A task that has completed or
// was discarded, and is retried, does not need again what has been deleted since.
type OnFailure int8

const (
	CancelOnFailure   OnFailure = iota // it is cancelled, by the next Admit, and so are those that need it
	ContinueOnFailure                  // the end was all it needed
	WaitOnFailure                      // it stays pending: somebody may retry what it needs
)

// Met reports whether a task in a state, which is 0 when there is none, has ended as
// it was needed.
func (n Need) Met(state State) bool {
	return state == Completed || n.OnFailure == ContinueOnFailure && (state == 0 || state.Finished())
}

// Dooms reports whether a task in a state cancels the one that needs it.
func (n Need) Dooms(state State) bool {
	return n.OnFailure == CancelOnFailure && (state == 0 || state == Cancelled || state == Discarded)
}

// Reason is that of a task which was cancelled because the one that it needs is in a
// state.
func (n Need) Reason(state State) string {
	if state == 0 {
		return fmt.Sprintf("needs task %v, which does not exist", n.Task)
	}
	return fmt.Sprintf("needs task %v, which is %v", n.Task, state)
}

// NeedState is a need and what has become of it.
type NeedState struct {
	Need
	State State // of the needed task; 0: there is no such task
}

// OnConflict says what an enqueue does when its key has a task already.
type OnConflict int8

const (
	// Skip leaves the unfinished task alone and reports its id.
	Skip OnConflict = iota
	// Replace gives a task that has not started the new args, kind, tags,
	// settings, priority, run time and expiry. A running task is left alone.
	Replace
	// Rerun is for work that must follow its source ("document changed, index it
	// again"). An enqueue whose source time is not newer than the newest one
	// known for the key changes nothing. A newer one replaces a task that has
	// not started; while the task runs it is remembered, and however many are,
	// the newest alone runs once after the running attempt has ended, whatever
	// that attempt came to: if it was to be retried, snoozed or handed back it is
	// cancelled as superseded instead.
	Rerun
	// Once is Skip, and leaves a key alone whose task has ended as well, for as long as
	// that one's history is kept.
	Once
)

// Task is a task as an engine knows it.
type Task struct {
	ID       ID
	Kind     string
	Queue    string
	Tenant   string
	Priority int16
	Args     []byte
	Tags     []string
	Key      string
	Workflow ID
	Settings []byte

	Turn      bool // it runs only in its turn
	Partition string

	State   State
	Attempt int    // the latest attempt, counted from 1 at its claim; 0: never claimed
	Crashes int    // attempts in a row that ended with the death of their worker
	Reason  string // why it was discarded or cancelled

	EnqueuedAt time.Time
	RunAt      time.Time // when it may run, or might have run first
	ExpiresAt  time.Time // zero: never
	ClaimedAt  time.Time // of the latest attempt; zero: never claimed
	FinishedAt time.Time // zero: not finished

	Lease  Token // the open lease; zero unless running
	Worker ID    // who holds the lease
	Stray  bool  // set by Rescue alone: the worker lives, and does not know of the lease

	// Piece is what the engine likes to know again when the attempt ends, of where it
	// found the task: set by Claim alone, and of no meaning to others. Without it Finish
	// does the same.
	Piece int32

	// Damage says what of the stored task cannot be read; empty: nothing. Such a task is
	// handed out as any other, without that part, and is to be discarded.
	Damage string

	// Filled in by List only when its Filter asks for Detail.
	Detail *Detail
}

// Detail is what a page about a single task shows besides the task.
type Detail struct {
	Attempts        []Attempt // oldest first; the failed and the latest one at least
	Output          []byte    // JSON that the handler recorded
	Progress        *Progress
	Logs            []LogLine // oldest first
	CancelRequested bool      // running, and told to stop
	Needs           []NeedState
	Changed         *LastChange // nil: nobody has changed it while it waited
}

// LastChange says when a task was last changed while it waited, and how. An edit after which
// the task is as it was before, and an enqueue that is skipped, change nothing.
type LastChange struct {
	At  time.Time `json:"at"` // by the engine's clock
	How How       `json:"how"`
}

// How names what a task was changed by.
type How string

const (
	WasReprioritized How = "reprioritized"
	WasMoved         How = "moved"
	WasRescheduled   How = "rescheduled"
	WasRetried       How = "retried"  // told to run at once, or again
	WasReplaced      How = "replaced" // an enqueue with its key gave it new values
)

// Attempt is one ended run of a task.
type Attempt struct {
	Number      int
	Worker      ID
	StartedAt   time.Time
	EndedAt     time.Time
	Outcome     State  // where the task went
	Error       string // empty: none
	Trace       string // stack of a panic
	Fingerprint string // groups like errors; see ErrorGroup
}

// Progress is how far a running handler says it is.
type Progress struct {
	Percent float64 `json:"percent"` // 0 to 100
	Message string  `json:"message,omitempty"`
}

// LogLine is one line that a handler logged about its task.
type LogLine struct {
	At      time.Time `json:"at"` // by the worker's clock: for people, not for decisions
	Attempt int       `json:"attempt"`
	Level   string    `json:"level"`
	Text    string    `json:"text"`
}
