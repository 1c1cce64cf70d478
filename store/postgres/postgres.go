// Package postgres is the engine for PostgreSQL 14 and later. Its storage is a ledger: a task is written once,
// into an append-only log. Everything that changes is kept in small rows, each for a whole batch: how far a lane
// has been claimed, what a worker holds, what a flush completed. migrations/00001_tables.sql explains each table,
// and functions/04_claim.sql why a claim misses no task.
//
// The package uses package store and the driver, and one schema of one database. Tasks are stored in enqueue.go,
// leased to workers in claim.go and ended in finish.go. admit.go makes waiting tasks available. Code that must
// decide between two statements of one round trip is a function in functions/. Other statements are in sql/;
// steps.go sends several of them in one round trip.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/internal/together"
	"github.com/tuskqueue/tusk/store"
)

// DefaultSchema is the schema of Tusk's tables unless Options names another.
const DefaultSchema = "tusk"

// Options configure an engine. Zero values mean the defaults.
type Options struct {
	// Schema holds all tables. The functions of each program version are in a schema of their own, whose name
	// begins with this one. The name consists of lower-case letters, digits and underscores, and is not a key
	// word of SQL. Default: DefaultSchema.
	Schema string
	// Quiet disables notifications: listeners find tasks when they poll.
	Quiet bool
	// Attendant is shared by several engines on the pool. If it is nil, the engine creates one of its own.
	Attendant *Attendant
}

// Store is a queue in a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	pool      *pgxpool.Pool
	schema    string
	sql       map[string]string
	program   string // the schema of the functions
	functions string // their text, with tusk_fn in place of that schema
	owned     bool   // the pool was opened here
	known     known
	quiet     bool
	bell      ringing
	near      near
	workers   counts
	hearing   atomic.Int32 // the number of listeners that receive notifications
	fuller    atomic.Bool  // the tasks of the last claim had more than the minimum of columns
	packed    atomic.Bool  // they came in packs
	claimed   atomic.Int32 // how many there were
	lane      atomic.Int64 // the lane of the first task of the last claim; 0 if none
	sparse    atomic.Bool  // the last claim found nothing

	enqueueing together.Calls[*enqueueing]

	attendant *Attendant
	attends   bool // the attendant is this engine's own
	spare     spare
	lookout   lookout
	holders   holders
	lines     lines
	hand      atomic.Int64 // where pruning continues; 0 for the oldest flush
	deadHand  atomic.Int64 // where pruning of dead tasks continues: when the last one seen ended, in microseconds
	dueAt     atomic.Int64 // when the next waiting task is due, as far as is known, in nanoseconds
	doubtHand atomic.Int64 // the doubt after which settling continues; 0 for the first
	seenDue   atomic.Int64 // when to record again that this program runs, in nanoseconds
	apart     atomic.Bool  // seenApart is running
	laneHand  atomic.Int64 // the lane after which the search for idle lanes continues

	pingEvery, pingWithin time.Duration
	copyFrom, packLeast   int
	pruneLooks            int
	idleLane, holdersFor  time.Duration
	resolveFor            time.Duration

	trips, claims, repeats atomic.Int64
}

var _ store.Store = (*Store)(nil)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// New creates an engine on an open pool, which the caller closes. While handlers hold all connections of the
// pool, the engine uses up to four spare ones for its own work. Unlike New of other engines, it does not connect
// to the database and does not use the context. Migrate creates the tables or brings them up to date.
func New(_ context.Context, pool *pgxpool.Pool, o Options) (*Store, error) {
	return newStore(pool, o, functionText())
}

// newStore is New for a program with the given functions.
func newStore(pool *pgxpool.Pool, o Options, functions string) (*Store, error) {
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if !schemaName.MatchString(o.Schema) {
		return nil, fmt.Errorf("schema name %q: want lower-case letters, digits and underscores, at most 48", o.Schema)
	}
	if err := checkMode(pool); err != nil {
		return nil, err
	}
	s := &Store{pool: pool, schema: o.Schema, program: programOf(o.Schema, functions), quiet: o.Quiet,
		pingEvery: pingEvery, pingWithin: pingWithin, copyFrom: copyFrom, packLeast: packLeast, pruneLooks: pruneLooks,
		idleLane: idleLane, holdersFor: holdersFor, resolveFor: resolveFor}
	s.functions = functions
	s.lines.rest = restLine
	s.enqueueing.Patience = togetherPatience
	s.known.mark = fmt.Sprintf("tusk %p", s)
	if s.attendant = o.Attendant; s.attendant == nil {
		s.attendant, s.attends = NewAttendant(pool), true
	}
	var err error
	s.sql, err = s.texts()
	return s, err
}

// checkMode fails if the driver is configured to send values as text without asking for
// their types.
func checkMode(pool *pgxpool.Pool) error {
	switch mode := pool.Config().ConnConfig.DefaultQueryExecMode; mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return fmt.Errorf(
			"default_query_exec_mode is %q, which does not know the types of parameters: behind a pooler set it to "+
				"cache_describe", mode)
	}
	return nil
}

// Open connects to a database by its DSN, a URL or key=value pairs as for every PostgreSQL client. The DSN's
// parameter tusk_schema names the schema. Migrate creates its tables or brings them up to date.
func Open(ctx context.Context, dsn string) (*Store, error) {
	pool, schema, err := Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	s, err := New(ctx, pool, Options{Schema: schema})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open: %w", err)
	}
	s.owned = true
	return s, nil
}

// idleConn is how long a connection may be unused before the pool closes it, unless the DSN says otherwise. It is
// shorter than the minute in which a pool uses each of its connections once. So an idle process keeps one or two
// connections, which have cached the plans of all statements.
const idleConn = 45 * time.Second

// Connect creates a pool for a DSN of Open, and returns the schema that the DSN names, or "" for the default. The
// pool connects when it is first used.
func Connect(ctx context.Context, dsn string) (pool *pgxpool.Pool, schema string, err error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, "", err
	}
	params := config.ConnConfig.RuntimeParams
	schema = params["tusk_schema"]
	delete(params, "tusk_schema")
	if params["application_name"] == "" {
		params["application_name"] = "tusk"
	}
	if !strings.Contains(dsn, "pool_max_conn_idle_time") {
		config.MaxConnIdleTime = idleConn
	}
	config.ShouldPing = doubtful
	pool, err = pgxpool.NewWithConfig(ctx, config)
	return pool, schema, err
}

// Close closes the spare connections, the connection of the engine's own attendant, and the pool if Open created
// it.
func (s *Store) Close() error {
	s.lapseAll()
	s.bell.close(s.notify)
	if s.attends {
		s.attendant.Close()
	} else {
		s.attendant.leaveAll(s)
	}
	s.spare.close()
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// query runs a named statement and calls row for each row of its answer. The
// answer is read in the binary format.
func (s *Store) query(ctx context.Context, name string, row func(raw [][]byte) error, args ...any) error {
	return s.queryText(ctx, s.sql[name], row, args...)
}

func (s *Store) queryText(ctx context.Context, text string, row func(raw [][]byte) error, args ...any) error {
	began := false // the caller must not receive the same rows twice
	counted := func(raw [][]byte) error {
		began = true
		return row(raw)
	}
	return s.repeat(ctx, func() error {
		err := s.queryOnce(ctx, text, counted, args...)
		if began && errors.Is(err, errRolledBack) {
			return fmt.Errorf("%w: the answer broke off: %v", store.ErrUnavailable, err)
		}
		return err
	})
}

// queryOnce is queryText without repeats.
func (s *Store) queryOnce(ctx context.Context, text string, row func(raw [][]byte) error, args ...any) error {
	s.trips.Add(1)
	c, err := s.acquire(ctx)
	if err != nil {
		return translate(err)
	}
	defer c.Release()
	rows, err := c.Query(ctx, text, append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)...)
	if err == nil {
		err = eachRow(rows, row)
	}
	return s.noted(translate(err))
}

// noted returns err. If the database was unavailable, it forgets what was known about it.
func (s *Store) noted(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		s.known.forget()
	}
	return err
}

func eachRow(rows pgx.Rows, row func(raw [][]byte) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.RawValues()); err != nil {
			return err
		}
	}
	return rows.Err()
}

// repeat calls do again, up to ten times in all, while the database rolls it back
// only because of concurrent transactions.
func (s *Store) repeat(ctx context.Context, do func() error) (err error) {
	for tries := range 10 {
		if tries > 0 {
			s.repeats.Add(1)
		}
		if err = do(); !errors.Is(err, errRolledBack) || ctx.Err() != nil {
			break
		}
	}
	return err
}
