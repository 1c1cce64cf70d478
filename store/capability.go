package store

import (
	"context"
	"time"
)

// What follows are capabilities: small interfaces that an engine may have
// besides Store. Only package tusk looks for them, always by As, and it can
// always do without, as database/sql does with its optional interfaces.

// Transactor is an engine that can write inside a transaction of its user's.
type Transactor interface {
	// Tx wraps an open transaction of the engine's own type (*sql.Tx, pgx.Tx).
	// The error is ErrUnsupported, wrapped with the types that would do.
	Tx(tx any) (Tx, error)
}

// Tx writes inside somebody else's transaction: nothing it does is visible or
// durable before that commits, and all of it is gone when that rolls back.
type Tx interface {
	Enqueuer
	// Finish is Leaser's, for the attempts whose effects the transaction holds.
	Finish(ctx context.Context, outcomes []Outcome) (lost []ID, err error)
}

// Exchanger is an engine to which a worker of one slot brings the task that it has done
// when it comes for the next one, in one trip. It is looked for in the outermost store
// alone, because a wrapper may have something to do with each Finish and Claim; one that
// embeds an Exchanger by its own type has to wrap Exchange as well.
type Exchanger interface {
	// Exchange is Finish of one outcome and Claim of one task, each as if it had been
	// called by itself: one may fail alone. It is made for completions with nothing more
	// to write. What is unanswered is repeated by Finish, and by Claim with Again set.
	Exchange(ctx context.Context, o Outcome, r ClaimRequest) Exchanged
}

// Exchanged is what became of an exchange.
type Exchanged struct {
	Tasks     []Task // what Claim returns
	ClaimErr  error
	Lost      bool // the outcome was refused: its lease is not open
	FinishErr error
}

// Notifier is an engine that can tell that something happened. Notifications are
// hints: they may be late, doubled or lost, and nobody relies on them.
type Notifier interface {
	// Listen calls wake with what may have happened until the context ends. Calls may overlap, and none may block.
	Listen(ctx context.Context, wake func(Hint)) error
}

// Hint says for whom there may be something to do. One that says nothing means that there may be for everybody.
type Hint struct {
	Queues []string // have got available tasks, for workers
	Turns  bool     // tasks wait for their turn, for whoever leads
	Due    bool     // tasks are due within Promptly, for whoever leads
	Soon   bool     // tasks are due within Soon
}

// How far ahead a leader is told of tasks that will be due: it looks at once for those that are due within Promptly, and
// within that time for those that are due within Soon. It looks for others by itself.
const (
	Promptly = 300 * time.Millisecond
	Soon     = 2 * time.Second
)

// Open reports whether the hint says nothing, so that everybody has to look.
func (h *Hint) Open() bool { return len(h.Queues) == 0 && !h.Turns && !h.Due && !h.Soon }

// ForWorkers reports whether workers may have something to do.
func (h *Hint) ForWorkers() bool { return len(h.Queues) > 0 || h.Open() }

// Searcher is an engine whose List may read all tasks to find a few that match, or
// none. Where there is no Searcher, List does.
type Searcher interface {
	// Search is List of those tasks alone that are among the newest budget, or so,
	// below Before. It returns down to which id it has looked: Before of the search
	// that goes on from there; zero: there are no others.
	Search(ctx context.Context, f Filter, budget int) (tasks []Task, last ID, err error)
}

// Maintainer is an engine with housekeeping of its own: segments, partitions,
// checkpoints. The leader calls it every few seconds.
type Maintainer interface {
	// Maintain does what is due. It fails with ErrNotLeader when the term is over.
	Maintain(ctx context.Context, term int64) error
}

// Overseer is an engine that says in one trip what a leader has to do. Whoever leads asks for chores that have
// nothing to do as rarely as that allows.
type Overseer interface {
	// Oversee looks at what there is to do now, and of which kinds there are records. It may renew the candidate's term
	// for its TTL, as Lead does; with a TTL of 0 it leaves the term as it is. It fails with ErrNotLeader when the term
	// is over.
	Oversee(ctx context.Context, c Candidate, kinds ...string) (Chores, error)
}

// Chores say which calls of a Keeper have something to do. It is no error if one of them finds nothing.
type Chores struct {
	Admit   time.Duration // when Admit has; 0: now; negative: nothing waits
	Rescue  bool
	Turns   bool     // tasks run in turns
	Moved   int64    // grows as tasks are stored or completed, if not with each; 0: the engine does not say
	Records []string // kinds of which there are records

	Renewed time.Time // the engine's clock, if the call has renewed the term
}

// Witness is an engine that sees a worker's process die, by a connection that ends
// with it. Rescue then declares a worker dead as soon as its connection has gone and
// its beat is overdue by half, long before its TTL is over: one alone means nothing.
// What is lost with the connection of a living worker is only this.
type Witness interface {
	// Witnesses reports whether the engine would see it.
	Witnesses() bool
}

// Migrator is an engine with a schema.
type Migrator interface {
	// Migrate brings the schema to a version (-1: the newest) and returns the
	// steps taken, in order.
	Migrate(ctx context.Context, version int64) ([]Migration, error)
	// Migrations lists all steps, applied or not.
	Migrations(ctx context.Context) ([]Migration, error)
}

// Migration is one step of a schema.
type Migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	AppliedAt time.Time `json:"applied_at"` // zero: not applied
	SQL       string    `json:"-"`
}

// Checker is an engine on a server that others set up.
type Checker interface {
	// Check says what of the server's settings breaks the contract (an error) or
	// weakens it (warnings).
	Check(ctx context.Context) (warnings []string, err error)
}

// Examiner is an engine that can say how its database is doing, without a scan.
type Examiner interface {
	// Examine reads what the server and the engine count anyway.
	Examine(ctx context.Context) (Health, error)
}

// Health is how a database is doing. A negative number, a zero instant or an empty text
// means that the engine cannot say.
type Health struct {
	Now    time.Time // by the clock that the engine judges by
	Server string    // its name and version
	Pooled bool      // a pooler stands between this process and the server
	Leader Leader

	// OpenFor is the age of the oldest transaction that keeps the engine from clearing
	// up, OpenBy who holds it, and OpenEnd the statement that ends it.
	OpenFor         time.Duration
	OpenBy, OpenEnd string

	Bytes    int64 // that the tables take
	DeadRows int64 // that a vacuum would have to remove
	LiveRows int64 // beside them
	Segments int64 // tables, or partitions, that tasks are spread over
	Behind   int64 // positions that have been passed and not been removed yet

	OldestCompleted time.Time // when the oldest completed task that is still kept ended
	DiskFree        int64     // bytes of the file system that the database is on
	DiskSize        int64
	Connections     int64 // open on the server
	ConnectionsMost int64 // that the server takes
}

// Connected is an engine whose process has a pool of connections to a server.
type Connected interface {
	Connections() Connections
}

// Connections are those of this process. The engine has a few spare ones besides, for what
// must not wait until a handler gives one back.
type Connections struct {
	Most  int   // that the pool may open
	Used  int   // in somebody's hands now
	Waits int64 // how often somebody had to wait for one, or for one to be opened, since the start
}

// UnknownHealth is the Health of which nothing is known yet.
func UnknownHealth() Health {
	return Health{OpenFor: -1, Bytes: -1, DeadRows: -1, LiveRows: -1, Segments: -1, Behind: -1, DiskFree: -1, DiskSize: -1,
		Connections: -1, ConnectionsMost: -1}
}

// Leader is who does the chores that one process does for all.
type Leader struct {
	Term    int64     // 0: nobody has ever led
	Held    bool      // somebody leads now
	Renewed time.Time // when the leader last said so
}

// Rebaser is an engine whose tables mean something on one server only.
type Rebaser interface {
	// Rebase makes tables that were restored from another server (ErrMoved) usable on
	// this one, while nobody works, and returns how many tasks can be claimed: tasks
	// that were running are available again. With dry it only counts them.
	Rebase(ctx context.Context, dry bool) (tasks int64, err error)
}

// Granter is an engine on a server that knows roles.
type Granter interface {
	// Roles returns the statements that make the roles by which a database is used, or
	// bring their rights up to date: for migrating, for working, for enqueueing by SQL
	// where that is offered, and for reading. Their names begin with the prefix. With
	// apply it runs them.
	Roles(ctx context.Context, prefix string, apply bool) ([]string, error)
}

// Prompter is a Notifier that knows whether its wakes arrive, and as soon as tasks do, those that
// only whoever leads can get on with too: then there is little use in looking by oneself right
// after the last ones.
type Prompter interface {
	Prompt() bool
}

// Looker is an engine that answers in one trip what every process asks again and again.
type Looker interface {
	// Look reads the records of some kinds, who leads, and which of some queues may have
	// available tasks.
	Look(ctx context.Context, queues []string, kinds ...string) (Sight, error)
}

// Sight is what a Looker sees.
type Sight struct {
	Records []Record // what Records returns for each kind, the kinds in any order
	// Leader is the candidate whose term has not expired: Lead would refuse all others.
	// Zero: Lead has to be asked.
	Leader ID
	Now    time.Time // the engine's clock; the zero value if the look did not read it
	// Queues are those of which a claim may get a task. When the look began, the others
	// had none.
	Queues []string
	// Workers is how many workers take from each of the queues, at least and about, who all hear of
	// tasks as soon as they come. 0: that is not known.
	Workers int
}

// Meter is an engine that counts what it costs, for benchmarks.
type Meter interface {
	// Measure reads the counters; a benchmark subtracts what it read before.
	Measure(ctx context.Context) (Measures, error)
}

// Measures are counters that only grow. A negative value means that the engine
// cannot say.
type Measures struct {
	ServerCPU  time.Duration // of the database server's processes
	WALBytes   int64
	DeadRows   int64 // rows that a vacuum has or will have to remove; may fall when tables are dropped
	RoundTrips int64 // of this process
	Queries    int64 // claims asked for, of this process
	// Conflicts is how often this process had to begin a claim again, or another call, because others had been faster.
	Conflicts int64
}

// As finds a capability of a store, looking through wrappers that have a method
// Unwrap() Store.
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

// Historian is an engine that tells which tasks have ended, in an order to which nothing is
// ever added behind a reader: what was committed late comes late, and is not missed.
type Historian interface {
	// Follow has the engine keep ends for readers, or no longer: it begins, and costs
	// nothing, until somebody follows. It returns the cursor from which what ends from now
	// on is told; what ended just before may be, too. To follow twice is no error.
	Follow(ctx context.Context, on bool) (cursor string, err error)

	// Ended returns what ended after a cursor, in order, from about limit transactions or
	// less, and the cursor to go on from. No ends means that all are told.
	//
	// An end may be told twice, with equal fields. One that was undone before it was read
	// may be missing: its task was deleted, or retried and ended again. Tasks that are not
	// kept when they are completed are left out.
	Ended(ctx context.Context, cursor string, limit int) (Ends, error)

	// Forget says that nobody asks for what ended up to a cursor any more.
	Forget(ctx context.Context, cursor string) error
}

// Ends are what a Historian tells.
type Ends struct {
	Ends   []End
	Cursor string
	Missed int64 // that were dropped because nobody had asked for them for too long; -1: not known
}

// End is the end of a task, or its rescue from a dead worker.
type End struct {
	Task    ID
	Queue   string // when it ended; empty: not known
	State   State
	At      time.Time // when it ended, or when that was stored
	Rescued bool      // its worker died: it is tried again, unless the state is finished
}

// MostEnds is how many ends an engine keeps that has to keep them for readers.
const MostEnds = 1_000_000

// Archiver is an engine that hands finished tasks over to an archive before it deletes them:
// it says which are due for deletion, and deletes exactly those that were taken. One process
// archives at a time.
type Archiver interface {
	// Due returns finished tasks whose retention is over, with their whole history, about
	// limit of them or fewer. It changes nothing. From is empty for the first page and Next
	// of the page before for each other one. No task comes in two pages, unless it has ended
	// again in between. A task may become due only with the next Prune, even one that keeps
	// it, and while a transaction is open that was open when it ended.
	Due(ctx context.Context, keep Retention, from string, limit int) (Due, error)

	// Release deletes the tasks of a page, as Prune would, unless they have been brought back
	// since: those it leaves alone and returns. It may be repeated, and returns those that
	// have come back each time, and from every process.
	//
	// A HeldError means that some tasks of the page could not be deleted because somebody else
	// holds a row that they need; the same call is to be made again.
	Release(ctx context.Context, receipt []byte) (back []ID, err error)
}

// Due is a page of an Archiver.
type Due struct {
	Tasks   []Task // with Detail
	Receipt []byte // the engine's note of which tasks these are, for Release; nil: of none
	Next    string // where the next page begins; empty: this is the last one
}

// Neighbour is an engine that sees what else its database is asked.
type Neighbour interface {
	// Others returns how many sessions besides the one that asks the database works for at this
	// moment. Those that only wait do not count; those that it may not look into do.
	Others(ctx context.Context) (int, error)
}

// Restorer is an Archiver that takes finished tasks back, as an archive has kept them.
type Restorer interface {
	// Restore stores finished tasks, with Detail, under their own ids, in one transaction with a
	// record, which it writes as PutRecord does. A task that exists is left alone, and its id is
	// returned. Each of the others is as it was, but for FinishedAt, which is now: its retention
	// counts from there, and it has another end than the one that was handed over, whose receipt
	// does not release it. It does not become the holder of its key; nothing waits for it that did
	// not before; and neither statistics nor counts of failures nor a Historian tell of it.
	//
	// Errors: ErrConflict when the record's stored version is another; then nothing is stored.
	Restore(ctx context.Context, note Record, tasks []Task) (version int64, exist []ID, err error)
}
