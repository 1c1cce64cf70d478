package store

import "context"

// Store is what an engine implements: nineteen methods in six roles, each a batch
// or a bounded chore. It never grows by a method for what a new field of a
// request can say.
type Store interface {
	Enqueuer
	Leaser
	Keeper
	Reader
	Editor
	Recorder
}

// Enqueuer takes tasks in.
type Enqueuer interface {
	// Enqueue stores tasks and says of each, in the same order, what became of
	// it. Tasks of one call with the same queue and priority are claimed in the
	// order given. A key that comes twice in one call is treated as if it had
	// come in two calls.
	//
	// An error means that it is unknown which tasks are stored, unless it is
	// ErrNotCommitted: then none is. The slice is the caller's again afterwards, and
	// so are the args in it.
	Enqueue(ctx context.Context, tasks []NewTask) ([]Enqueued, error)
}

// Leaser lends tasks to workers. A worker's leases all live by its heartbeat.
type Leaser interface {
	// Claim leases up to Limit available tasks to the worker: lower priority
	// values first within a queue, then in order of becoming available. The
	// returned tasks are Running, with Attempt already counted up, and carry the
	// request's token as their lease. No task is ever leased twice at a time.
	//
	// When the answer to a claim was lost, the caller repeats the request with
	// Again set and the same token, and gets the tasks that the first request
	// claimed; the repetition itself claims none. So a token claims once, whichever
	// of the two arrives first: what a late request claims is unknown to its worker,
	// and Rescue returns it. With an error come no tasks, even if some were read
	// before it.
	//
	// Errors: ErrWorkerDead when the worker never beat, left, or was declared
	// dead; it may start anew under a fresh id.
	Claim(ctx context.Context, r ClaimRequest) ([]Task, error)

	// Extend is the worker's heartbeat. It registers the worker when it is new,
	// keeps all its leases for TTL more, stores notes on running tasks, and
	// returns the attempts that somebody wants stopped, again at every beat until
	// they are finished. A TTL of zero signs the worker off. A beat never waits for
	// a user's transaction.
	//
	// A counted beat tells what the worker holds, so that Rescue finds the leases that
	// it does not know of: those of a claim that arrived after the worker had stopped
	// waiting for it. A beat that arrives after a later one changes nothing.
	//
	// Errors: ErrWorkerDead when the worker was declared dead: its leases are
	// lost, and it never comes back under this id. ErrLate when a later beat was
	// accepted before. HeldError when the beat counts but notes on some tasks are not
	// stored: a user's transaction holds them, or the database does not take them.
	Extend(ctx context.Context, b Beat) ([]Stop, error)

	// Finish ends attempts and puts each task where its outcome says, together
	// with everything that follows from it: the attempt's history, the key that
	// becomes free, the rerun that was waiting for it. An attempt that somebody
	// asked to stop goes nowhere to run again: where its outcome says retryable,
	// scheduled, available or pending, it ends cancelled, with the reason of who
	// asked, so that no cancel is forgotten. Each outcome is accepted once, and only
	// while its lease is open. The others are reported as lost, in any order, and
	// change nothing.
	//
	// It does not wait for a user's open transaction. An outcome that needs a row which
	// one holds (its task, its key, its note) is not written and named by a HeldError;
	// all others are.
	Finish(ctx context.Context, outcomes []Outcome) (lost []ID, err error)
}

// Keeper holds the chores of the leader, one process at a time. Each chore
// carries the leader's term and fails with ErrNotLeader, in the same transaction
// in which it would have written, when that term is over.
type Keeper interface {
	// Lead asks for the leadership, keeps it, or (with a TTL of zero) gives it
	// up. Of all candidates one holds an unexpired term; every change of hands
	// raises the term.
	Lead(ctx context.Context, c Candidate) (Leadership, error)

	// Admit makes up to limit waiting tasks available whose time has come, in
	// order of their run time, and cancels up to limit pending ones that cannot
	// run any more because a task that they need has failed.
	Admit(ctx context.Context, term int64, limit int) (Admitted, error)

	// Turns returns, by queue, tenant and partition, who has a turn and who waits
	// for one: first up to groups groups in which somebody waits, in the order of
	// who has waited longest, with up to heads waiting tasks of each; then all
	// others in which somebody has a turn, without their waiting tasks. With a term
	// of zero anybody may ask.
	Turns(ctx context.Context, term int64, groups, heads int) ([]Turns, error)

	// Grant gives tasks that wait for their turn their turn and makes them
	// available, in the order given. Others among the ids are passed over. It
	// returns how many it admitted.
	Grant(ctx context.Context, term int64, ids []ID) (int, error)

	// Rescue declares workers dead that have not beaten within their TTL (a Witness
	// may know sooner) and returns up to limit attempts of dead workers, still
	// leased: the caller decides what becomes of them and finishes them like any
	// other attempt. Until then every call returns them again.
	//
	// It also returns, marked Stray, attempts that a living worker does not know of:
	// they were claimed before the last beat of which the worker has seen the answer,
	// and the beat after that did not name their lease. An engine may look for
	// these every few seconds only.
	Rescue(ctx context.Context, term int64, limit int) ([]Task, error)

	// Prune deletes finished tasks whose retention is over, with their history,
	// up to limit of them, and forgets dead workers that hold no lease. It
	// returns how many tasks it deleted; fewer than limit means that it is done.
	Prune(ctx context.Context, term int64, keep Retention, limit int) (int, error)
}

// Reader answers questions. No answer waits for a writer or holds one up.
type Reader interface {
	// List returns the tasks that match, newest id first.
	List(ctx context.Context, f Filter) ([]Task, error)
	// Count returns the unfinished tasks by queue and state.
	Count(ctx context.Context) ([]Count, error)
	// Stats returns what attempts came to, by queue, kind and slice of time,
	// oldest slice first.
	Stats(ctx context.Context, f StatsFilter) ([]Stat, error)
	// Errors returns groups of like errors of failed attempts, latest first.
	Errors(ctx context.Context, f ErrorFilter) ([]ErrorGroup, error)
	// Workers returns the living workers, oldest first.
	Workers(ctx context.Context) ([]Worker, error)
}

// Editor is for operators.
type Editor interface {
	// Edit applies one change to each of the tasks and says of each, in the same
	// order, what became of it. A task that a user's open transaction holds may be
	// Refused, and is named by a HeldError then; the others are changed.
	Edit(ctx context.Context, e Edit) ([]Edited, error)
}

// Recorder keeps small named documents: queue settings, schedules, and whatever
// a later release needs. A document is changed by compare-and-swap.
type Recorder interface {
	// Records returns all documents of a kind, by name.
	Records(ctx context.Context, kind string) ([]Record, error)

	// PutRecord writes a document if its stored version is the one given (0: it
	// does not exist) and enqueues tasks with it, both or neither: that is how a
	// schedule's tick and its cursor move together. A nil body deletes the
	// document. It returns the new version and what became of the tasks.
	//
	// Errors: ErrConflict when the version is another; ErrNotLeader when a term
	// is given and over.
	PutRecord(ctx context.Context, p PutRecord) (int64, []Enqueued, error)

	// UpdateRecords is PutRecord for many different documents of one kind that exist, in
	// one write: each is rewritten if its stored version is the one given, and its tasks
	// are enqueued with it. Those of another version are left alone, which their Updated
	// says. Bodies are not nil, and the term is that of all.
	//
	// Errors: ErrNotLeader when a term is given and over; nothing is written then.
	UpdateRecords(ctx context.Context, term int64, puts []PutRecord) ([]Updated, error)
}
