// Package mysql is the engine for MySQL 8.0 and MariaDB 10.6 or newer, on InnoDB.
//
// A task is written once, when it is enqueued, and once more when it has ended.
// In between it is known by small rows that stand for many: tusk_ready lists who
// is available, a claim takes tasks off that list and writes one lease, and a
// worker's heartbeat is one row. Claims skip what others have locked, so no
// claimer waits for another. What all would have to change (counts, statistics,
// groups of errors) nobody changes: each transaction leaves a note of what it
// adds, and the leader sums the notes up. A claim and a finish are a procedure
// each; those of one process that meet share a transaction. Tables are in
// migrations/, with the order of locks, and procedures in procedures/.
//
// The package may touch package store, the driver and goose, and a database over
// them. Data comes from the rooms above through store.Store and ends here.
package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tuskqueue/tusk/internal/together"
	"github.com/tuskqueue/tusk/store"
)

// Store is a ledger in a MySQL or MariaDB database. It implements store.Store,
// store.Transactor, store.Migrator, store.Maintainer, store.Checker,
// store.Witness, store.Notifier and store.Meter.
type Store struct {
	db       *sql.DB
	program  *program
	spare    *sql.DB // nil: New was given no way to connect
	owned    bool    // the pool was opened by Open: closed by Close
	multi    bool    // its connections take several statements at once
	isolated bool    // its sessions are READ COMMITTED by themselves
	galera   bool
	log      *slog.Logger

	claiming  together.Calls[*claim]
	finishing together.Calls[*finishing]

	places  places
	leases  leases
	witness *witness
	wakes   wakes
	damaged sync.Map // places of damaged lists that were told of
	hints   sync.Map // queue: how many tasks a row of tusk_ready stood for lately
	lines   stands
	checked atomic.Bool
	seenDue atomic.Int64                // when this program next says that it runs
	sweep   atomic.Pointer[store.Token] // up to which the leases have been swept
	strays  atomic.Int64                // when leases are next compared to what their workers say they hold
	daysDue atomic.Int64                // when days are next made
	refused atomic.Int64                // when a day was last found to be needed still

	trips, claims, conflicts, deadlocks atomic.Int64
}

// Options are settings of an engine. Zero values are defaults.
type Options struct {
	// Spare is the connector that the pool was made with: a way to connect by itself, so
	// that the engine's own work goes on while handlers hold every connection of the pool.
	// Open has it by itself.
	Spare driver.Connector
	// Galera lets the engine work on a Galera cluster. All of its connections must then
	// lead to one and the same node: locks do not reach from node to node.
	Galera bool
	// Logger takes warnings. Default: slog.Default().
	Logger *slog.Logger
}

// New makes a store on an open pool and looks at the server, which it may refuse:
// too old, or only like MySQL. Check says more. The pool stays the caller's.
// Open makes better use of the connection than a pool that knows neither
// multiStatements nor interpolateParams. Where the pool is limited, set Options.Spare, too.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	s := &Store{db: db, program: ownProgram(), galera: o.Galera, log: cmp.Or(o.Logger, slog.Default())}
	if o.Spare != nil {
		s.spare = newSpare(o.Spare)
	}
	if err := s.inspect(ctx); err != nil {
		s.closePools()
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return s, nil
}

// Open makes a store with a pool of its own; see Pool for the DSN. It logs
// through slog.Default. Migrate makes the tables, or brings them up to date.
func Open(ctx context.Context, dsn string) (*Store, error) {
	db, spare, galera, err := pools(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	s := &Store{db: db, program: ownProgram(), spare: spare, owned: true, galera: galera, log: slog.Default()}
	if err := s.inspect(ctx); err != nil {
		s.closePools()
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return s, nil
}

// DB returns the pool, for transactions of the user's own.
func (s *Store) DB() *sql.DB { return s.db }

// Close ends what New and Open began.
func (s *Store) Close() error {
	s.witness.close()
	return s.closePools()
}

func (s *Store) closePools() (err error) {
	if s.spare != nil {
		err = s.spare.Close()
	}
	if s.owned {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// ready fails unless the schema is one that this program works with.
func (s *Store) ready(ctx context.Context) error {
	if !s.checked.Load() {
		if err := s.checkSchema(ctx); err != nil {
			return err
		}
	}
	s.seen(ctx)
	return nil
}

//go:embed sql/*.sql
var files embed.FS

// clock is the server's time in microseconds since 1970, whatever the time zone
// of the session is.
const clock = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"

// texts are the statements in sql/, by the names that stand above them. Where
// they say :now, the clock is put in.
var texts = readTexts()

func readTexts() map[string]string {
	found := map[string]string{}
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, entry := range entries {
		file, err := files.ReadFile("sql/" + entry.Name())
		if err != nil {
			panic(err)
		}
		for _, part := range strings.Split("\n"+string(file), "\n-- name: ")[1:] {
			name, text, _ := strings.Cut(part, "\n")
			found[name] = strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(text), ";"), ":now", clock)
		}
	}
	return found
}

// q returns a statement by its name.
func q(name string) string {
	text, known := texts[name]
	if !known {
		panic("no statement is called " + name)
	}
	return text
}

// list returns a statement in which :rows stands for n times the same group of
// parameters.
func list(name, group string, n int) string {
	return strings.Replace(q(name), ":rows", strings.TrimSuffix(strings.Repeat(group+", ", n), ", "), 1)
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Transactor = (*Store)(nil)
	_ store.Migrator   = (*Store)(nil)
	_ store.Maintainer = (*Store)(nil)
	_ store.Checker    = (*Store)(nil)
	_ store.Witness    = (*Store)(nil)
	_ store.Meter      = (*Store)(nil)
	_ store.Notifier   = (*Store)(nil)
	_ store.Looker     = (*Store)(nil)
)
