package postgres

import (
	"context"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// InFunctions replaces tusk_fn by the name of the schema of functions.
func InFunctions(text string) string {
	return strings.ReplaceAll(text, "tusk_fn", programOf(DefaultSchema, functionText()))
}

// FunctionText returns the text of all functions.
func FunctionText() string { return functionText() }

var changedColumns = regexp.MustCompile(`,\s+n\.changed_at, n\.changed\b|left join tusk\.note n on n\.id = s\.id`)

// NewProgram makes the engine of a program whose functions have a different text, and whose view of tasks has fewer
// columns.
func NewProgram(pool *pgxpool.Pool, mark string) (*Store, error) {
	fewer := changedColumns.ReplaceAllString(functionText(), "")
	return newStore(pool, Options{}, fewer+"\n-- "+mark+"\n")
}

// NewFormer makes the engine of a program that does not know the latest migration. Whoever adds a migration that the
// texts use adds their former wording here.
func NewFormer(pool *pgxpool.Pool) (*Store, error) {
	former := strings.NewReplacer("tusk.unready", "tusk.waiting", "tusk.line_1", "tusk.waiting",
		"tusk.line_2", "tusk.waiting").Replace
	s, err := newStore(pool, Options{}, former(functionText()))
	if err != nil {
		return nil, err
	}
	s.sql = maps.Clone(s.sql)
	for name, text := range s.sql {
		s.sql[name] = former(text)
	}
	s.sql["line_table"], s.sql["line_tables"] = "select 0", "select 0, 0::bigint, 0::bigint, false"
	return s, nil
}

// DropAfter is how long a program must not have run before its functions are removed.
const DropAfter = migrate.DropAfter

// PingEvery makes a listener check sooner that it still hears.
func (s *Store) PingEvery(silence, within time.Duration) { s.pingEvery, s.pingWithin = silence, within }

// PackAll makes packs wherever possible.
func (s *Store) PackAll() { s.copyFrom, s.packLeast = 2, 2 }

// PruneLooks sets how many flushes one call of Prune looks at.
func (s *Store) PruneLooks(n int) { s.pruneLooks = n }

// IdleLane sets after what time an idle lane is forgotten.
func (s *Store) IdleLane(d time.Duration) { s.idleLane = d }

// ResolveFor sets how long one admission settles doubts.
func (s *Store) ResolveFor(d time.Duration) { s.resolveFor = d }

// HoldersFor sets how long holders of turns are remembered.
func (s *Store) HoldersFor(d time.Duration) { s.holdersFor = d }

// RestLine sets how long a table of lines has no task before it is truncated.
func (s *Store) RestLine(d time.Duration) { s.lines.rest = d }

// AgeLine makes the engine believe that it found a table of lines empty longer ago.
func (s *Store) AgeLine(d time.Duration) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	s.lines.empty.since = s.lines.empty.since.Add(-d)
}

// UseLine makes the engine believe that the answer is that old, and that it need not ask again yet.
func (s *Store) UseLine(no int, age time.Duration) {
	s.lines.know(no, time.Now().Add(-age))
	s.AskedLine(0)
}

// AskedLine makes the engine believe that it asked that long ago in which table tasks get in line.
func (s *Store) AskedLine(age time.Duration) { s.lines.asked.Store(time.Now().Add(-age).UnixNano()) }

// LookTime is the time after which a search goes no further.
const LookTime = lookTime

// PackedCopy returns the data of a COPY of tasks, and the statement.
func (s *Store) PackedCopy(tasks []store.NewTask) (data []byte, text string) {
	rows, name := rowsOf(tasks, surveyOf(tasks), s.packLeast)
	data, _ = io.ReadAll(rows)
	return data, s.sql[name]
}

// Statement returns the text of a named statement.
func (s *Store) Statement(name string) string { return s.sql[name] }

// Statements returns the texts of all statements.
func (s *Store) Statements() []string { return slices.Sorted(maps.Values(s.sql)) }

// CountStored counts the ids that belong to tasks, as inquire does for an enqueue that was not answered.
func (s *Store) CountStored(ctx context.Context, ids []store.ID) (n int64, err error) {
	err = s.query(ctx, "count_stored", func(raw [][]byte) error {
		n = int64Of(raw[0])
		return nil
	}, uuidsOf(ids))
	return n, err
}

// ListWhole lists tasks by one statement, which may read all of them.
func (s *Store) ListWhole(ctx context.Context, f store.Filter) ([]store.Task, error) {
	return s.list(ctx, f)
}

// Tidy tidies lanes that have more positions, or have been idle for more transactions, than the given ones.
func (s *Store) Tidy(ctx context.Context, term int64, positions, idle int) error {
	lanes, err := s.untidy(ctx, term, positions, idle)
	for _, lane := range lanes {
		err = errors.Join(err, s.tidyLane(ctx, term, lane, positions, idle))
	}
	return err
}

// CatalogueNext adds entries for the next stretch of the log.
func (s *Store) CatalogueNext(ctx context.Context, term int64, least, rows int) (more bool, err error) {
	return s.catalogueNext(ctx, term, least, rows)
}

// LookAtAll makes the next Rescue look at all leases.
func (s *Store) LookAtAll() { s.lookout.lookedAtAll(0) }

// CompletedTwice counts the tasks that were completed by more than one flush.
func (s *Store) CompletedTwice(ctx context.Context) (n int64, err error) {
	err = s.pool.QueryRow(ctx, s.inSchema(`
		select count(*) from (
			select i.id from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i
			group by i.id having count(*) > 1) x`)).Scan(&n)
	return n, translate(err)
}

// Translate translates an error of the driver.
func Translate(err error) error { return translate(err) }

// IsBusy reports whether a statement gave up waiting for others.
func IsBusy(err error) bool { return isBusy(err) }

// Rung reports whether a notification about a queue was sent or is scheduled.
func (s *Store) Rung(queue string) bool {
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	r := s.bell.names[queue]
	return r != nil && (r.later || !r.at.IsZero())
}

// SayItWasSeen makes the engine take for recorded that this program runs.
func (s *Store) SayItWasSeen() { s.seenDue.Store(time.Now().Add(time.Hour).UnixNano()) }

// HasSpare reports whether a spare connection was needed.
func (s *Store) HasSpare() bool {
	s.spare.mu.Lock()
	defer s.spare.mu.Unlock()
	return s.spare.pool != nil
}

// ForgetHome makes the engine forget what it knows about the database.
func (s *Store) ForgetHome() { s.known.forget() }

// MayWork reports whether the engine knows that its role may work.
func (s *Store) MayWork() bool { return s.known.mayWork() }

// Trips returns how many round trips the engine has made.
func (s *Store) Trips() int64 { return s.trips.Load() }

// Silent reports whether a connection is open and nothing unread has arrived on it.
var Silent = silent

// CommitAfter returns how long users' transactions are expected to last after an enqueue.
func (s *Store) CommitAfter() time.Duration {
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	return s.bell.commitAfter(0)
}

// Expected returns how many tasks this process's workers may still claim before others are told.
func (s *Store) Expected() int {
	s.near.mu.Lock()
	defer s.near.mu.Unlock()
	return len(s.near.expected)
}

// Rest returns for how long others are notified of tasks of a queue at once after the last one was not taken in time.
func (s *Store) Rest(queue string) time.Duration {
	s.near.mu.Lock()
	defer s.near.mu.Unlock()
	if o := s.near.queues[queue]; o != nil {
		return o.rest
	}
	return 0
}

// CountWorkers reads again which workers a queue has.
func (s *Store) CountWorkers(queue string) { s.countWorkers(queue) }
