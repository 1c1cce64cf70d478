package store

import (
	"fmt"
	"slices"
	"time"
)

// Enqueued says what became of a NewTask. ID is that of the task which now
// stands for it: its own, or that of the task with its key: the unfinished one, or else
// the one that ended last. It is zero when that one has been deleted.
type Enqueued struct {
	ID     ID
	Result EnqueueResult
}

// EnqueueResult is one of five ends of an enqueue.
type EnqueueResult int8

const (
	Added    EnqueueResult = iota + 1 // stored as a new task
	Skipped                           // another task has the key and was left alone
	Replaced                          // an unfinished task has the key and took on the new values
	Awaiting                          // it will run when the running task of its key has ended
	Stale                             // its source time is not newer than one already seen
)

func (r EnqueueResult) String() string {
	return [...]string{"", "added", "skipped", "replaced", "awaiting", "stale"}[r]
}

// ClaimRequest asks for tasks.
type ClaimRequest struct {
	Worker ID
	Queues []string // tried in this order; callers turn it round for fairness
	Limit  int      // at least 1
	Token  Token    // fresh for every request but a repeated one
	Again  bool     // asks for the lost answer to the same request, and claims nothing

	// Running is how many tasks the worker runs, for the engine to judge whether it needs help. It promises nothing.
	Running int
}

// Beat is a worker's heartbeat.
type Beat struct {
	Worker Worker
	TTL    time.Duration // how long the leases live without another beat; 0: sign off
	Every  time.Duration // when the next beat is due, for a Witness; 0: a third of TTL
	Notes  []Note

	// Seq numbers the beats of a worker: each has a higher one than the beat before, whatever
	// became of that. 0: the worker does not count, and what follows is not read.
	Seq int64
	// Seen is the Seq of the last beat whose answer has arrived; 0: none.
	Seen int64
	// Holds are the tokens under which the worker holds tasks or has asked for some, in any
	// order: it names every token until the claim was answered and the outcomes of all of its
	// tasks were acknowledged.
	Holds []Token
}

// Worker describes a process that runs tasks. Only ID is more than a label.
type Worker struct {
	ID          ID       `json:"id"` // fresh and random at every start
	Host        string   `json:"host"`
	PID         int      `json:"pid"`
	Queues      []string `json:"queues"`
	Concurrency int      `json:"concurrency"`
	Version     string   `json:"version"`
	Kinds       []string `json:"kinds,omitempty"` // that it has handlers for; none: any kind
	Hung        int      `json:"hung,omitempty"`  // handlers that it has given up and that have not returned

	// Set by the engine in answers.
	StartedAt time.Time `json:"started_at"`
	BeatAt    time.Time `json:"beat_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Running   int       `json:"running"` // tasks that it holds

	// Quiet is set by tusk.Client.Workers: the worker was told to claim nothing more.
	Quiet bool `json:"quiet,omitempty"`
}

// TakesFrom reports whether the worker claims tasks of a queue. A quiet one claims none.
func (w *Worker) TakesFrom(queue string) bool { return !w.Quiet && slices.Contains(w.Queues, queue) }

// Takes reports whether the worker claims tasks of a queue and has a handler for a kind.
func (w *Worker) Takes(queue, kind string) bool {
	return w.TakesFrom(queue) && (len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind))
}

// Note is what a handler records while it runs or when it ends. Nil fields
// leave what is stored alone; log lines are appended. A note whose lease is not
// open is dropped.
type Note struct {
	ID       ID
	Lease    Token
	Progress *Progress
	Output   []byte
	Logs     []LogLine
}

// Stop tells a worker to end an attempt early because somebody cancelled its task.
type Stop struct {
	ID    ID
	Lease Token
}

// Outcome says how an attempt ended and where its task goes. The layer above has
// decided everything; an engine only writes it down.
type Outcome struct {
	// Task is the task exactly as it was claimed, its lease included.
	Task *Task

	// State is where it goes: completed, cancelled, discarded; retryable or
	// scheduled, with a Delay; available, which is to be handed back; or pending,
	// with Needs.
	State State
	Delay time.Duration // from the engine's now; for retryable and scheduled

	Attempt int    // the count to keep: Task.Attempt, or one less to refund it
	Crashes int    // the count to keep
	Reason  string // why discarded or cancelled

	Error       string // empty: the attempt did not fail
	Trace       string
	Fingerprint string

	// KeepTurn lets a task that will be retried keep its turn: nobody else gets it
	// meanwhile, and it need not wait for another.
	KeepTurn bool

	// Unbegun says that a task which goes to scheduled was put off before its handler
	// began: statistics do not count the attempt.
	Unbegun bool

	// Forget says that a task which is completed need not be kept. An engine that
	// keeps each finished task by itself deletes it in the same write, with its
	// history, after everything that follows from its end; one that keeps finished
	// tasks for nothing may keep it. Statistics count it either way.
	Forget bool

	// Then are tasks to enqueue with the outcome, if it is accepted: the next stage
	// of a pipeline, the children that the task will wait for.
	Then []NewTask
	// Needs are what a task that goes to pending waits for, in place of what it
	// needed before. With none open it is available at once.
	Needs []Need

	Ran  time.Duration // how long the handler ran
	Ago  time.Duration // how long ago it ended, by the worker's monotonic clock
	Note *Note         // the last of the attempt; its ID and Lease are ignored
}

// Candidate is a process that would lead.
type Candidate struct {
	ID   ID            // of the process; fresh at every start
	Term int64         // the term it holds; 0: none
	TTL  time.Duration // how long a term lasts without renewal; 0: give it up
}

// Leadership is the answer to a candidate.
type Leadership struct {
	Term int64     // the candidate's term; 0: another process leads
	Now  time.Time // the engine's clock, for planning schedules
}

// Admitted says what an Admit did.
type Admitted struct {
	Count     int           // made available
	Cancelled int           // cancelled because what they needed had failed
	Queues    []string      // that got tasks, each once
	Next      time.Duration // until the next waiting task is due; negative: none waits
}

// Turns are those of one queue, tenant and partition.
type Turns struct {
	Queue, Tenant, Partition string
	// Held is the number of tasks that have their turn: granted, and not ended
	// since, nor put off without KeepTurn.
	Held int64
	// Waiting are the first of those that wait for it: lower priorities first, then
	// those that have waited longest.
	Waiting []ID
}

// Retention says how long finished tasks are kept, by outcome, from when they ended. A
// zero duration keeps them for ever. Queues overrides it for the queues that it names.
type Retention struct {
	Completed, Cancelled, Discarded time.Duration
	Queues                          map[string]Retention
	Stats                           time.Duration // of statistics, whatever their queue; not read in Queues
}

// Of returns how long tasks of a queue that ended in a state are kept; 0: for ever.
func (r *Retention) Of(queue string, state State) time.Duration {
	if own, ok := r.Queues[queue]; ok {
		r = &own
	}
	switch state {
	case Completed:
		return r.Completed
	case Cancelled:
		return r.Cancelled
	default:
		return r.Discarded
	}
}

// Filter chooses tasks. Zero fields choose all; set fields must all match.
type Filter struct {
	IDs         []ID
	Queues      []string
	Kinds       []string
	Tenants     []string
	States      []State
	Tags        []string // all of which a task has; of the lists above it has one
	Key         string
	Workflow    ID
	Fingerprint string    // of an error of the latest failed attempt
	From, Until time.Time // enqueued in [From, Until)
	Before      ID        // only smaller ids: the last one of the page before
	Limit       int       // 0: 100; at most MaxPage
	Detail      bool      // with Task.Detail
	NoArgs      bool      // without Task.Args, which may be megabytes
	NoStates    bool      // Detail.Needs may come without states: who reads a whole workflow has them
}

// MaxPage is the largest page that List returns and the most ids of one Edit.
const MaxPage = 1000

// Count is the number of tasks of a queue in a state.
type Count struct {
	Queue  string
	State  State
	Tasks  int64
	Oldest time.Duration // how long the oldest has been due; available tasks only
}

// StatsFilter chooses statistics. Bucket is a minute, an hour or a day.
type StatsFilter struct {
	Bucket      time.Duration
	From, Until time.Time // ended in [From, Until), to the minute; zero: without that bound
	Queue, Kind string    // empty: all, each apart
}

// Stat sums up the attempts of one queue and kind that ended in one slice of time.
type Stat struct {
	At          time.Time // when the slice begins
	Queue, Kind string
	Completed   int64
	Failed      int64     // attempts that ended with an error, retried or not
	Discarded   int64     // tasks that gave up
	Cancelled   int64     // tasks that were called off while running
	Waited      Durations // from due to claimed
	Ran         Durations // of attempts, failed ones too
}

// Add adds what another one sums up.
func (s *Stat) Add(o *Stat) {
	s.Completed += o.Completed
	s.Failed += o.Failed
	s.Discarded += o.Discarded
	s.Cancelled += o.Cancelled
	s.Waited.Merge(&o.Waited)
	s.Ran.Merge(&o.Ran)
}

// ErrorFilter chooses error groups.
type ErrorFilter struct {
	Queue, Kind string
	Since       time.Time // last seen at or after; zero: any time
	Limit       int       // 0: 100
}

// ErrorGroup is a set of failed attempts with the same fingerprint: the same
// kind, and the same error text but for numbers, ids and quoted parts. Whether a
// task that was moved to another queue since is still among those that wait, or
// are dead, is the engine's choice.
type ErrorGroup struct {
	Fingerprint string
	Queue, Kind string
	Count       int64 // failed attempts
	Waiting     int64 // tasks whose latest failure it is and that wait for a retry
	Dead        int64 // tasks whose latest failure it is and that were discarded
	First, Last time.Time
	Sample      string // the latest error text
	SampleTask  ID
}

// Edit changes tasks.
type Edit struct {
	IDs    []ID // at most MaxPage
	Change Change
}

// Change is one thing to do to a task. Which states allow it is the same in
// every engine:
//
//	Cancel        not finished; a running task is Requested to stop
//	Retry         scheduled, retryable: available now; finished: again from the start, with no attempts counted,
//	              pending if something that it needs has not ended as it should
//	Delete        anything but running
//	Reprioritize  scheduled, retryable, available, and pending for its turn
//	Move          scheduled, retryable, available; a task that runs in turns waits for one of its new queue
//	Reschedule    scheduled, retryable, available
type Change struct {
	Op       Op
	Priority int16         // Reprioritize
	Queue    string        // Move
	RunAt    time.Time     // Retry, Reschedule; zero: now
	Delay    time.Duration // the same, from the engine's now
	Reason   string        // Cancel
}

// Op is the verb of a change.
type Op int8

const (
	Cancel Op = iota + 1
	Retry
	Delete
	Reprioritize
	Move
	Reschedule
)

var opNames = [...]string{"", "cancel", "retry", "delete", "reprioritize", "move", "reschedule"}

func (o Op) String() string { return opNames[o] }

// ParseOp reads the name of an op.
func ParseOp(name string) (Op, error) {
	if i := slices.Index(opNames[1:], name); i >= 0 {
		return Op(i + 1), nil
	}
	return 0, fmt.Errorf("unknown change %q: want one of %v", name, opNames[1:])
}

// MarshalText implements encoding.TextMarshaler.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Op) UnmarshalText(text []byte) (err error) {
	*o, err = ParseOp(string(text))
	return err
}

// Edited says what an edit did to one task.
type Edited struct {
	ID     ID
	Result EditResult
	State  State // after the edit; what stood in the way when Refused; 0 when Missing
}

// EditResult is one of five ends of an edit.
type EditResult int8

const (
	Changed   EditResult = iota + 1
	Requested            // running: its worker will be told
	Refused              // its state does not allow it
	Missing              // no such task
	KeyTaken             // another unfinished task holds its key
)

func (r EditResult) String() string {
	return [...]string{"", "changed", "requested", "refused", "missing", "key taken"}[r]
}

// Record is a small named document.
type Record struct {
	Kind, Name string
	Version    int64 // 0: does not exist
	Body       []byte
	UpdatedAt  time.Time // by the engine's clock, which sets it at every write
}

// PutRecord writes a record; see Recorder.
type PutRecord struct {
	Record Record
	Tasks  []NewTask
	Term   int64 // 0: anybody may; otherwise only the leader of this term
}

// Updated says what became of one document of an UpdateRecords.
type Updated struct {
	Version  int64      // the new one; 0: the stored version was another, and nothing was written
	Enqueued []Enqueued // what became of its tasks
}

// EnqueueUpdated is for engines, whose UpdateRecords have set the versions: it enqueues
// the tasks of the documents that were rewritten, in one call.
func EnqueueUpdated(puts []PutRecord, updated []Updated, enqueue func([]NewTask) ([]Enqueued, error)) error {
	var tasks []NewTask
	for i := range puts {
		if updated[i].Version != 0 {
			tasks = append(tasks, puts[i].Tasks...)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	results, err := enqueue(tasks)
	if err != nil {
		return err
	}
	for i := range puts {
		if n := len(puts[i].Tasks); updated[i].Version != 0 {
			updated[i].Enqueued, results = results[:n:n], results[n:]
		}
	}
	return nil
}
