package store

import (
	"slices"
	"time"
)

// Enqueued is the result of an enqueue for one NewTask. ID is its own id, or the id of the task that has its key: the
// unfinished one, or else the one that ended last. ID is zero if that task was deleted.
type Enqueued struct {
	ID     ID
	Result EnqueueResult
}

// EnqueueResult is one of the five results of an enqueue.
type EnqueueResult int8

const (
	Added    EnqueueResult = iota + 1 // stored as a new task
	Skipped                           // a task has the key and was not changed; it may be this one, stored before
	Replaced                          // an unfinished task has the key and took the new values
	Awaiting                          // it will run after the running task with its key has ended
	Stale                             // its source time is not newer than one already seen
)

func (r EnqueueResult) String() string {
	return [...]string{"", "added", "skipped", "replaced", "awaiting", "stale"}[r]
}

// ClaimRequest is a request for tasks.
type ClaimRequest struct {
	Worker ID
	// Queues are tried in this order. Callers rotate them for fairness.
	Queues []string
	Limit  int   // at least 1
	Token  Token // new for every request except a repeated one
	Again  bool  // get the lost answer to the same request, and claim nothing

	// Running is the number of tasks that the worker runs. It is only a hint: an engine may derive from it whether to
	// notify other processes of new tasks.
	Running int
}

// Beat is a worker's heartbeat.
type Beat struct {
	Worker Worker
	TTL    time.Duration // how long the leases last without another beat; 0 signs the worker off
	Every  time.Duration // when the next beat is due, for a Witness; 0 means a third of TTL
	Notes  []Note

	// Seq numbers the beats of a worker. Each beat has a higher number than the one before, whether or not that one
	// arrived. 0 means that the worker does not number its beats; the fields below are then ignored.
	Seq int64
	// Seen is the Seq of the last beat whose answer has arrived; 0 if none has.
	Seen int64
	// Holds lists, in any order, the tokens under which the worker holds tasks or has requested some. A token is
	// listed until its claim was answered and the outcomes of all of its tasks were acknowledged.
	Holds []Token
}

// Worker describes a process that runs tasks. All fields but ID are only labels.
type Worker struct {
	ID          ID       `json:"id"` // new and random at each start
	Host        string   `json:"host"`
	PID         int      `json:"pid"`
	Queues      []string `json:"queues"`
	Concurrency int      `json:"concurrency"`
	Version     string   `json:"version"`
	// ClaimEvery is the shortest time between two of its claims while no tasks are left over.
	ClaimEvery time.Duration `json:"claim_every,omitempty"`
	Kinds      []string      `json:"kinds,omitempty"` // kinds with a handler; empty: any kind
	Hung       int           `json:"hung,omitempty"`  // abandoned handlers that have not returned

	// Set by the engine in answers.
	StartedAt time.Time `json:"started_at"`
	BeatAt    time.Time `json:"beat_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Running   int       `json:"running"` // tasks that it holds

	// Quiet is set by tusk.Client.Workers: the worker was told to stop claiming.
	Quiet bool `json:"quiet,omitempty"`
}

// TakesFrom reports whether the worker claims tasks of a queue. A quiet worker claims none.
func (w *Worker) TakesFrom(queue string) bool { return !w.Quiet && slices.Contains(w.Queues, queue) }

// Takes reports whether the worker claims tasks of a queue and has a handler for a kind.
func (w *Worker) Takes(queue, kind string) bool {
	return w.TakesFrom(queue) && (len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind))
}

// Note is what a handler records while it runs or when it ends. A nil field leaves the stored value unchanged; log
// lines that are not stored yet are appended. A note is dropped if its lease is not open.
type Note struct {
	ID       ID
	Lease    Token
	Progress *Progress
	Output   []byte
	Logs     []LogLine
}

// Stop tells a worker to end an attempt early because its task was cancelled.
type Stop struct {
	ID    ID
	Lease Token
}

// Outcome says how an attempt ended and which state its task goes to. The caller has decided everything; an engine
// only stores it.
type Outcome struct {
	// Task is the task exactly as it was claimed, including its lease.
	Task *Task

	// State is the next state of the task: completed, cancelled or discarded; retryable or scheduled, with a Delay;
	// available, which hands it back; or pending, with Needs.
	State State
	Delay time.Duration // from the engine's now, for retryable and scheduled

	Attempt int    // the count to store: Task.Attempt, or one less to refund the attempt
	Crashes int    // the count to store
	Reason  string // why discarded or cancelled

	Error string // empty if the attempt did not fail
	Trace string
	// Fingerprint is the group of the error. Without an error it is a mark that the history keeps with the attempt;
	// it belongs to no group.
	Fingerprint string

	// KeepTurn lets a task that will be retried keep its turn: no other task gets it in the meantime, and the task
	// need not wait for another one.
	KeepTurn bool

	// Unbegun says that the task was postponed, to scheduled, before its handler began. Statistics do not count the
	// attempt.
	Unbegun bool

	// Forget says that a completed task need not be kept. An engine that stores each finished task separately deletes
	// it in the same write, with its history, after everything that follows from its end. An engine that keeps
	// finished tasks at no cost may keep it. Statistics count it either way.
	Forget bool

	// Then are tasks to enqueue with the outcome, if it is accepted: the next stage of a pipeline, or the children
	// that the task will wait for.
	Then []NewTask
	// Needs are what a task that goes to pending waits for. They replace its earlier needs. If none of them is open,
	// the task is available at once.
	Needs []Need

	Ran  time.Duration // how long the handler ran
	Ago  time.Duration // how long ago it ended, by the worker's monotonic clock
	Note *Note         // the attempt's last note; its ID and Lease are ignored
}

// Candidate is a process that wants to lead.
type Candidate struct {
	ID   ID            // of the process, new at every start
	Term int64         // the term that it holds; 0 if none
	TTL  time.Duration // how long a term lasts without renewal; 0 gives it up
}

// Leadership is the answer to a candidate.
type Leadership struct {
	Term int64     // the candidate's term; 0 if another process leads
	Now  time.Time // the engine's clock, for planning schedules
}

// Admitted is the result of Admit.
type Admitted struct {
	Count     int           // made available
	Cancelled int           // cancelled because a task that they needed had failed
	Queues    []string      // that got tasks, without duplicates
	Next      time.Duration // until the next waiting task is due; negative if none waits
}

// Turns describes the turns of one queue, tenant and partition.
type Turns struct {
	Queue, Tenant, Partition string
	// Held is the number of tasks that have their turn: it was granted, and since then they have neither ended nor
	// been postponed without KeepTurn.
	Held int64
	// Waiting are the first of the tasks that wait for a turn: lower priorities first, then those that have waited
	// longest.
	Waiting []ID
}

// Retention is how long finished tasks are kept after their end, by outcome. A zero duration means forever. Queues
// overrides it for the queues that it names.
type Retention struct {
	Completed, Cancelled, Discarded time.Duration
	Queues                          map[string]Retention
	Stats                           time.Duration // of statistics and unused ErrorGroups, of all queues; ignored in Queues
}

// Of returns how long tasks of a queue that ended in a state are kept; 0 means forever.
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

// Filter selects tasks. A zero field selects all tasks; all set fields must match.
type Filter struct {
	IDs     []ID
	Queues  []string
	Kinds   []string
	Tenants []string
	States  []State
	// A task must have all of Tags. Of each list above, it must match one element.
	Tags        []string
	Key         string
	Workflow    ID
	Fingerprint string    // of the latest failed attempt's error
	From, Until time.Time // enqueued in [From, Until)
	Before      ID        // only smaller ids: the last id of the previous page
	Limit       int       // 0 means 100; at most MaxPage
	Detail      bool      // fill in Task.Detail
	NoArgs      bool      // leave out Task.Args, which may be megabytes
	// NoStates omits the states in Detail.Needs, for callers that read a whole workflow and have them anyway.
	NoStates bool
}

// MaxPage is the largest page that List returns and the largest number of ids in one Edit.
const MaxPage = 1000

// Count is the number of tasks of a queue in a state.
type Count struct {
	Queue  string
	State  State
	Tasks  int64
	Oldest time.Duration // how long the oldest task has been due; only for available tasks
}

// StatsFilter selects statistics. Bucket is a minute, an hour or a day.
type StatsFilter struct {
	Bucket      time.Duration
	From, Until time.Time // ended in [From, Until), to the minute; zero: no bound
	Queue, Kind string    // empty: all of them, each separately
}

// Stat sums up the attempts of one queue and kind that ended in one slice of time.
type Stat struct {
	At          time.Time // when the slice begins
	Queue, Kind string
	Completed   int64
	Failed      int64     // attempts that ended with an error, retried or not
	Discarded   int64     // tasks that were discarded
	Cancelled   int64     // tasks that were cancelled while running
	Waited      Durations // from due to claimed
	Ran         Durations // how long attempts ran, including failed ones
}

// Add adds the counts and durations of o.
func (s *Stat) Add(o *Stat) {
	s.Completed += o.Completed
	s.Failed += o.Failed
	s.Discarded += o.Discarded
	s.Cancelled += o.Cancelled
	s.Waited.Merge(&o.Waited)
	s.Ran.Merge(&o.Ran)
}

// ErrorFilter selects error groups.
type ErrorFilter struct {
	Queue, Kind string
	Since       time.Time // last seen at or after this; zero: any time
	Limit       int       // 0 means 100
}

// ErrorGroup is a set of failed attempts with the same fingerprint: the same kind, and the same error text apart from
// numbers, ids and quoted parts. If a task was moved to another queue since, the engine chooses whether it still
// counts as waiting or dead.
type ErrorGroup struct {
	Fingerprint string
	Queue, Kind string
	Count       int64 // failed attempts
	Waiting     int64 // tasks that wait for a retry and whose latest failure is in this group
	Dead        int64 // discarded tasks whose latest failure is in this group
	First, Last time.Time
	Sample      string // the beginning of the latest error text: an engine may cut it after about 4 KB
	SampleTask  ID
}
