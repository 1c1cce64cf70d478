package store

import "context"

// Store is the interface of an engine: nineteen methods in six roles, each a batch or a bounded chore. Prefer a new
// field of a request to a new method.
type Store interface {
	Enqueuer
	Leaser
	Keeper
	Reader
	Editor
	Recorder
}

// Enqueuer stores new tasks.
type Enqueuer interface {
	// Enqueue stores tasks and returns the result for each, in the same order. Tasks of one call with the same queue
	// and priority are claimed in the order given. A key that occurs twice in one call has the same effect as in two
	// calls.
	//
	// After an error it is unknown which tasks are stored, unless the error is ErrNotCommitted: then none is. The
	// engine does not keep the slice or the args in it after the call.
	Enqueue(ctx context.Context, tasks []NewTask) ([]Enqueued, error)
}

// Leaser leases tasks to workers. A worker's heartbeat extends all of its leases.
type Leaser interface {
	// Claim leases up to Limit available tasks to the worker: within a queue lower priority values first, then in the
	// order in which they became available. The returned tasks are Running, have Attempt already incremented, and
	// carry the request's token as their lease. A task never has two leases at a time.
	//
	// If the answer to a claim was lost, the caller repeats the request with the same token and Again set. It gets
	// the tasks that the first request claimed; the repetition itself claims none. So each token claims once,
	// whichever of the two requests arrives first. If the first one arrives late, its worker does not know about the
	// tasks that it claims, and Rescue returns them. Along with an error no tasks are returned, even if some had been
	// read.
	//
	// Errors: ErrWorkerDead if the worker never sent a beat, signed off, or was declared dead. It may start again
	// under a new id.
	Claim(ctx context.Context, r ClaimRequest) ([]Task, error)

	// Extend is the worker's heartbeat. It registers a new worker, extends all of the worker's leases by TTL from
	// now, stores notes on running tasks, and returns the attempts that should stop. It returns those again at every
	// beat until they are finished. A TTL of zero signs the worker off. A beat never waits for a user's transaction.
	//
	// A numbered beat (with a Seq) lists what the worker holds, so that Rescue can find leases that the worker does
	// not know about: those of a claim that arrived after the worker had stopped waiting for it. A beat that arrives
	// after a later one changes nothing.
	//
	// Errors: ErrWorkerDead if the worker was declared dead: its leases are lost, and it can never return under this
	// id. ErrLate if a later beat was accepted before. HeldError if the beat counts but notes on some tasks are not
	// stored, because a user's transaction holds them or the database does not accept them.
	Extend(ctx context.Context, b Beat) ([]Stop, error)

	// Finish ends attempts and puts each task into the state of its outcome, together with everything that follows:
	// the attempt's history, the key that becomes free, the rerun that was waiting for it. A task whose attempt was
	// asked to stop does not run again: if its outcome says retryable, scheduled, available or pending, it ends
	// cancelled, with the reason given by whoever cancelled it. So no cancel is lost. Each outcome is accepted once,
	// and only while its lease is open. Outcomes that are not accepted change nothing and are returned as lost, in
	// any order.
	//
	// Finish does not wait for a user's open transaction. If an outcome needs a row that such a transaction holds
	// (its task, its key, its note), it is not written, and a HeldError names it. All others are written. If some
	// cannot be written for another reason, after others were accepted, a HeldError, joined with the reason, names
	// those too.
	Finish(ctx context.Context, outcomes []Outcome) (lost []ID, err error)
}

// Keeper holds the chores of the leader, which is one process at a time. Each chore carries the leader's term. If
// that term is over, the chore fails with ErrNotLeader in the same transaction in which it would have written.
type Keeper interface {
	// Lead acquires the leadership, keeps it, or (with a TTL of zero) gives it up. At most one candidate holds an
	// unexpired term. Every change of leader raises the term.
	Lead(ctx context.Context, c Candidate) (Leadership, error)

	// Admit makes up to limit waiting tasks whose run time has come available, in order of run time. It also cancels
	// up to limit pending tasks that can no longer run because a task that they need has failed.
	Admit(ctx context.Context, term int64, limit int) (Admitted, error)

	// Turns returns, by queue, tenant and partition, which tasks have a turn and which wait for one. First come up to
	// groups groups with waiting tasks, those that have waited longest first, each with up to heads waiting tasks.
	// Then come all other groups in which a task has a turn, without their waiting tasks. With a term of zero it may
	// be called by processes that do not lead.
	Turns(ctx context.Context, term int64, groups, heads int) ([]Turns, error)

	// Grant gives a turn to tasks that wait for one and makes them available, in the order given. It skips the ids of
	// other tasks, and returns how many it admitted.
	Grant(ctx context.Context, term int64, ids []ID) (int, error)

	// Rescue declares workers dead that have not sent a beat within their TTL (a Witness may detect it sooner). It
	// returns up to limit attempts of dead workers, still leased: the caller decides their outcomes and finishes them
	// like any other attempt. Until then every call returns them again.
	//
	// It also returns, marked Stray, attempts that a live worker does not know about. They were claimed before the
	// last beat whose answer the worker has seen, and the next beat did not name their lease. An engine may search
	// for these only every few seconds.
	Rescue(ctx context.Context, term int64, limit int) ([]Task, error)

	// Prune deletes up to limit finished tasks whose retention is over, with their history, and forgets dead workers
	// that hold no lease. It returns how many tasks it deleted; fewer than limit means that it is done.
	Prune(ctx context.Context, term int64, keep Retention, limit int) (int, error)
}

// Reader answers queries. No query waits for a writer or delays one.
type Reader interface {
	// List returns the tasks that match, newest id first.
	//
	// An error means that no tasks are returned, with one exception: if the filter names ids, and one of several ledgers
	// is away, a HeldError, joined with ErrUnavailable, names those that may be there. The others are returned.
	List(ctx context.Context, f Filter) ([]Task, error)
	// Count returns the unfinished tasks by queue and state.
	Count(ctx context.Context) ([]Count, error)
	// Stats returns statistics of attempts by queue, kind and slice of time, oldest slice first.
	Stats(ctx context.Context, f StatsFilter) ([]Stat, error)
	// Errors returns groups of similar errors of failed attempts, latest first.
	Errors(ctx context.Context, f ErrorFilter) ([]ErrorGroup, error)
	// Workers returns the live workers, oldest first.
	Workers(ctx context.Context) ([]Worker, error)
}

// Editor is for operators.
type Editor interface {
	// Edit applies one change to each of the tasks and returns the result for each, in the same order. If a user's
	// open transaction holds a task, that task may be Refused; a HeldError then names it. The others are changed.
	//
	// If the call fails after it has changed some tasks, an engine that knows these returns the results: the others are
	// Refused, and a HeldError, joined with the reason, names them. After any other error, some tasks may have been
	// changed, unless it is ErrNotCommitted.
	Edit(ctx context.Context, e Edit) ([]Edited, error)
}

// Recorder keeps small named documents, such as queue settings and schedules. Documents are changed by
// compare-and-swap.
type Recorder interface {
	// Records returns documents of a kind, in order of their names.
	Records(ctx context.Context, f RecordFilter) ([]Record, error)

	// PutRecord writes a document if its stored version is the one given (0 means that it does not exist), and
	// enqueues tasks with it, both or neither, such as a schedule's cursor with the task of its tick. A nil body
	// deletes the document. PutRecord returns the new version and the results for the tasks.
	//
	// Errors: ErrConflict if the stored version is not the given one; ErrNotLeader if a term is given and is over.
	PutRecord(ctx context.Context, p PutRecord) (int64, []Enqueued, error)

	// UpdateRecords is PutRecord for many different existing documents of one kind, in one write. Each document is
	// rewritten if its stored version is the one given, and its tasks are enqueued with it. Documents with another
	// version stay unchanged, and their Updated says so. Bodies must not be nil. The term applies to all documents.
	//
	// Errors: ErrNotLeader if a term is given and is over; nothing is written then.
	UpdateRecords(ctx context.Context, term int64, puts []PutRecord) ([]Updated, error)
}
