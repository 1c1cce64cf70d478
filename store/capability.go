package store

import (
	"context"
	"time"
)

// The types below are capabilities: small interfaces that an engine may implement in addition to Store. Callers find
// them with As and work without them, as database/sql does with the optional interfaces of drivers.

// Transactor is an engine that can write inside a user's transaction.
type Transactor interface {
	// Tx wraps an open transaction of the engine's own type (*sql.Tx, pgx.Tx). For any other type it returns
	// ErrUnsupported, wrapped with the types that it accepts.
	Tx(tx any) (Tx, error)
}

// Tx writes inside a caller's transaction. Nothing that it writes is visible or durable before that transaction
// commits, and all of it is gone if the transaction rolls back.
type Tx interface {
	Enqueuer
	// Finish is Leaser.Finish, for the attempts whose effects the transaction contains.
	Finish(ctx context.Context, outcomes []Outcome) (lost []ID, err error)
}

// Exchanger is an engine on which a worker with one slot can finish a task and claim the next one in one round trip.
// Only the outermost store is checked for it, because a wrapper may add something to each Finish and Claim. A wrapper
// that embeds a concrete type which is an Exchanger has to wrap Exchange too.
type Exchanger interface {
	// Exchange combines Finish of one outcome and Claim of one task. Each behaves as if it were called on its own, so
	// one may fail without the other. It is meant for completions without anything else to write. If the answer is
	// lost, the caller repeats the call with Finish, and with Claim and Again set.
	Exchange(ctx context.Context, o Outcome, r ClaimRequest) Exchanged
}

// Exchanged is the result of an exchange.
type Exchanged struct {
	Tasks     []Task // what Claim returns
	ClaimErr  error
	Lost      bool // the outcome was refused: its lease is not open
	FinishErr error
}

// Parker is an engine that can lease a task to a worker of its own process in the transaction that stores it, so that
// an idle worker needs no claim of its own. Only the outermost store is checked for it, as for Exchanger: a wrapper of
// Claim has to wrap Park too.
type Parker interface {
	// Park leaves a claim with the engine until recall is called. The engine uses it at most once, when an Enqueue
	// stores one task of its queues that may run at once and that no other task precedes. It need not use it at all.
	Park(p *Parked) (recall func())
}

// Park calls Park of a store that is a Parker. With any other store, nothing happens.
func Park(s Store, p *Parked) (recall func()) {
	if engine, ok := s.(Parker); ok {
		return engine.Park(p)
	}
	return func() {}
}

// Parked is a claim that waits for a task.
type Parked struct {
	Request ClaimRequest // with a limit of 1
	// Begin reports whether the claim may be used now for a task of a queue. If it returns true, the engine must call
	// Answer once. It returns true at most once.
	Begin func(queue string) bool
	// Answer receives what Claim would return, and when the request was sent. After an error, the caller repeats the
	// request with Claim and Again.
	Answer func(tasks []Task, asked time.Time, err error)
}

// Notifier is an engine that can report that there may be work. Notifications are hints: they may be late, duplicated
// or lost, and nothing relies on them.
type Notifier interface {
	// Listen calls wake for each hint until the context ends. Calls may overlap, and none may block.
	Listen(ctx context.Context, wake func(Hint)) error
}

// Hint says for whom there may be work. An empty hint means: for workers of all queues and for the leader.
type Hint struct {
	Queues []string // that now have available tasks, for workers
	Turns  bool     // tasks wait for their turn, for the leader
	Due    bool     // tasks are due within Promptly, for the leader
	Soon   bool     // tasks are due within Soon, for the leader
}

// Promptly and Soon are how far ahead hints announce due tasks to a leader. It checks at once for tasks that are due
// within Promptly, and within Promptly for tasks that are due within Soon. It finds all others without a hint.
const (
	Promptly = 300 * time.Millisecond
	Soon     = 2 * time.Second
)

// Open reports whether the hint is empty: every worker and the leader have to check.
func (h *Hint) Open() bool { return len(h.Queues) == 0 && !h.Turns && !h.Due && !h.Soon }

// ForWorkers reports whether there may be work for workers.
func (h *Hint) ForWorkers() bool { return len(h.Queues) > 0 || h.Open() }

// Searcher is an engine whose List may read all tasks to find few matches or none. For an engine that is not a
// Searcher, use List.
type Searcher interface {
	// Search is List, limited to about the newest budget tasks below Before. It also returns the id of the oldest
	// task that it has read: pass that as Before to continue the search. A zero id means that the search is complete.
	Search(ctx context.Context, f Filter, budget int) (tasks []Task, last ID, err error)
}

// Maintainer is an engine with housekeeping of its own: segments, partitions,
// checkpoints. The leader calls it every few seconds.
type Maintainer interface {
	// Maintain does the housekeeping that is due. It fails with ErrNotLeader if the term is over.
	Maintain(ctx context.Context, term int64) error
}

// Overseer is an engine that reports in one round trip which chores have work, so that the leader rarely starts one
// in vain.
type Overseer interface {
	// Oversee returns which work is due now, and which of the kinds have records. It may renew the candidate's term
	// for its TTL, as Lead does; with a TTL of 0 it leaves the term as it is. It fails with ErrNotLeader if the term
	// is over.
	Oversee(ctx context.Context, c Candidate, kinds ...string) (Chores, error)
}

// Chores say which calls of a Keeper have work. It is not an error if such a call then finds nothing.
type Chores struct {
	Admit  time.Duration // until Admit has work; 0: now; negative: nothing waits
	Rescue bool
	Turns  bool // tasks run in turns
	// Moved grows as tasks are stored or completed, but not with every one. 0 means that the engine does not count.
	Moved   int64
	Records []string // the kinds that have records

	Renewed time.Time // the engine's clock, if the call renewed the term
}

// Witness is an engine that detects the death of a worker's process by the end of its connection. Rescue then
// declares a worker dead once its connection has ended and its heartbeat is overdue by half an interval, long before
// its TTL is over. Neither sign is sufficient alone. A live worker that loses the connection is judged by its TTL
// again.
type Witness interface {
	// Witnesses reports whether the engine would currently detect a death.
	Witnesses() bool
}

// Migrator is an engine with a schema.
type Migrator interface {
	// Migrate brings the schema to a version (-1 means the newest) and returns the steps taken, in order.
	Migrate(ctx context.Context, version int64) ([]Migration, error)
	// Migrations lists all steps, applied or not.
	Migrations(ctx context.Context) ([]Migration, error)
}

// Migration is one step of a schema.
type Migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	AppliedAt time.Time `json:"applied_at"` // zero if not applied
	SQL       string    `json:"-"`
}

// Checker is an engine on a server whose settings may be wrong.
type Checker interface {
	// Check reports which of the server's settings break the contract (an error) or weaken it (warnings).
	Check(ctx context.Context) (warnings []string, err error)
}

// Examiner is an engine that can report the state of its database without a scan.
type Examiner interface {
	// Examine reads counters that the server and the engine keep anyway.
	Examine(ctx context.Context) (Health, error)
}

// Health describes the state of a database. A negative number, a zero time or an empty string means that the engine
// cannot tell.
type Health struct {
	Now    time.Time // by the engine's clock
	Server string    // name and version
	Pooled bool      // there is a pooler between this process and the server
	Leader Leader

	// OpenFor is the age of the oldest transaction that keeps the engine from cleaning up, OpenBy its session, and
	// OpenEnd the statement that ends it.
	OpenFor         time.Duration
	OpenBy, OpenEnd string

	Bytes    int64 // size of the tables
	DeadRows int64 // rows that a vacuum would remove
	LiveRows int64 // rows that are not dead
	Segments int64 // tables or partitions that tasks are spread over
	Behind   int64 // positions that were claimed but not removed yet

	OldestCompleted time.Time // when the oldest completed task that is still kept ended
	DiskFree        int64     // free bytes in the database's file system
	DiskSize        int64
	Connections     int64 // open on the server
	ConnectionsMost int64 // the maximum that the server accepts
}

// Connected is an engine whose process has a pool of connections to a server.
type Connected interface {
	Connections() Connections
}

// Connections counts the connections of this process. The engine may open a few spare ones in addition, for work that
// must not wait until a handler returns one.
type Connections struct {
	Most  int   // the maximum of the pool
	Used  int   // in use now
	Waits int64 // how often a caller had to wait for one, or for one to be opened, since startup
}

// UnknownHealth returns a Health in which every field is unknown.
func UnknownHealth() Health {
	return Health{OpenFor: -1, Bytes: -1, DeadRows: -1, LiveRows: -1, Segments: -1, Behind: -1, DiskFree: -1, DiskSize: -1,
		Connections: -1, ConnectionsMost: -1}
}

// Leader describes the process that does the chores for all processes.
type Leader struct {
	Term    int64     // 0 if there was never a leader
	Held    bool      // there is a leader now
	Renewed time.Time // when the leader last renewed its term
}

// Rebaser is an engine whose tables are valid only on the server that wrote them.
type Rebaser interface {
	// Rebase makes tables that were restored from another server (ErrMoved) usable on this one. No other process may
	// use them meanwhile. It returns the number of tasks that can be claimed, including those that were running,
	// which become available again. With dry it only counts them.
	Rebase(ctx context.Context, dry bool) (tasks int64, err error)
}

// Granter is an engine on a server that has roles.
type Granter interface {
	// Roles returns the statements that create the roles for using a database, or update their rights. There is a
	// role for migrating, for working, for reading, and for enqueueing by SQL where the engine offers that. Their
	// names begin with prefix. With apply, Roles also runs the statements.
	Roles(ctx context.Context, prefix string, apply bool) ([]string, error)
}

// Prompter is a Notifier that knows whether its notifications arrive. It reports true if it notifies as soon as tasks
// arrive, including those that only the leader can move on. Polling soon after the last notification is then of
// little use.
type Prompter interface {
	Prompt() bool
}

// Looker is an engine that answers in one round trip what every process polls for.
type Looker interface {
	// Look reads the records of some kinds, the current leader, and which of the queues may have available tasks.
	Look(ctx context.Context, queues []string, kinds ...string) (Sight, error)
}

// Sight is the result of Look.
type Sight struct {
	Records []Record // what Records returns for each kind; the kinds may come in any order
	// Leader is the candidate whose term has not expired: Lead would refuse all others. If it is zero, Lead has to be
	// called.
	Leader ID
	Now    time.Time // the engine's clock; zero if Look did not read it
	// Queues lists the queues that may have a task to claim. The others had none when Look began.
	Queues []string
	// Workers is a rough lower bound of the number of workers that claim from each of the queues and are notified of
	// tasks as soon as they arrive. 0 means unknown.
	Workers int
}

// Meter is an engine that counts its own costs.
type Meter interface {
	// Measure reads the counters, for benchmarks, which subtract an earlier reading. It may query the database.
	Measure(ctx context.Context) (Measures, error)
	// Conflicts returns Measures.Conflicts without a query.
	Conflicts() int64
}

// Measures are counters that only grow. A negative value means that the engine cannot tell.
type Measures struct {
	ServerCPU time.Duration // of the database server's processes
	WALBytes  int64
	// DeadRows counts rows that a vacuum has removed or will have to. It may fall when tables are dropped.
	DeadRows   int64
	RoundTrips int64 // of this process
	Queries    int64 // claims requested by this process
	// Conflicts counts how often this process had to retry a claim, or another call, because another process was
	// faster.
	Conflicts int64
}

// As finds a capability of a store. It looks through wrappers that have a method Unwrap() Store.
func As[T any](s Store) (T, bool) {
	for s != nil {
		if t, ok := s.(T); ok {
			return t, true
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	var none T
	return none, false
}

// Historian is an engine that reports which tasks have ended, in an order in which nothing is ever inserted before a
// reader's position: an end that was committed late is reported late, and not missed.
type Historian interface {
	// Follow tells the engine to keep ends for readers, or to stop keeping them. Until the first Follow it keeps
	// none, at no cost. It returns a cursor: everything that ends from now on comes after it. Ends from just before
	// may be reported too. Following twice is not an error.
	Follow(ctx context.Context, on bool) (cursor string, err error)

	// Ended returns what ended after a cursor, in order, and the cursor to continue from. It covers about limit
	// transactions or fewer. An empty Ends means that there is nothing more.
	//
	// An end may be reported twice, with equal fields. An end that was undone before it was read may be missing,
	// because its task was deleted, or was retried and ended again. Tasks that are not kept after completion are left
	// out.
	Ended(ctx context.Context, cursor string, limit int) (Ends, error)

	// Forget tells the engine that ends up to a cursor are no longer needed.
	Forget(ctx context.Context, cursor string) error
}

// Ends are what Historian.Ended returns.
type Ends struct {
	Ends   []End
	Cursor string
	// Missed counts ends that were dropped because they were not read for too long. -1 means unknown.
	Missed int64
}

// End is the end of a task, or its rescue from a dead worker.
type End struct {
	Task ID
	// Queue is the task's queue when it ended; empty if unknown.
	Queue   string
	State   State
	At      time.Time // when it ended, or when that was stored
	Rescued bool      // its worker died; the task is retried unless the state is finished
}

// MostEnds is the maximum number of ends that an engine keeps for readers, if it has to keep them separately.
const MostEnds = 1_000_000

// Archiver is an engine that hands finished tasks to an archive before it deletes them. It says which are due for
// deletion, and deletes exactly those that were taken. Only one process archives at a time.
type Archiver interface {
	// Due returns about limit or fewer finished tasks whose retention is over, with their whole history. It changes no
	// task. From is empty for the first page; for every other page it is Next of the page before. No task is on
	// two pages, unless it has ended again in between. A task may become due only after the next Prune, even one that
	// keeps it, and not while a transaction is open that was open when the task ended.
	Due(ctx context.Context, keep Retention, from string, limit int) (Due, error)

	// Release deletes the tasks of a page, as Prune would. It does not delete, and returns, those that were retried
	// since. It may be repeated, from any process, and each call returns the retried tasks.
	//
	// A HeldError means that some tasks of the page could not be deleted, because another transaction holds a row
	// that they need. Make the same call again.
	Release(ctx context.Context, receipt []byte) (back []ID, err error)
}

// Due is a page of an Archiver.
type Due struct {
	Tasks []Task // with Detail
	// Receipt identifies these tasks for Release; nil if there are none. Its form is up to the engine.
	Receipt []byte
	Next    string // where the next page begins; empty on the last page
}

// Neighbour is an engine that can measure other load on its database.
type Neighbour interface {
	// Others returns how many sessions are active in the database at this moment, not counting the caller's. Sessions
	// that only wait do not count. Sessions that the engine may not inspect do.
	Others(ctx context.Context) (int, error)
}

// Restorer is an Archiver that takes finished tasks back from an archive.
type Restorer interface {
	// Restore stores finished tasks, with Detail, under their own ids. In the same transaction it writes a record, as
	// PutRecord does. Tasks that exist already stay unchanged; it returns their ids.
	//
	// A restored task is as it was, except that FinishedAt is now: its retention starts again, and this is another
	// end than the archived one, so the archived end's receipt does not release it. The task does not hold its key
	// again, and no additional task waits for it. Statistics, failure counts and Historian do not report it.
	//
	// Errors: ErrConflict if the record's stored version is not the given one; then nothing is stored.
	Restore(ctx context.Context, note Record, tasks []Task) (version int64, exist []ID, err error)
}
