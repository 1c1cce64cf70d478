// Package mysql is the engine for MySQL 8.0 and MariaDB 10.6 or newer, on InnoDB.
//
// A task is written once when it is enqueued, and once more when it has ended. In between, it is part of small rows
// that each cover many tasks: tusk_ready lists available tasks, a claim takes tasks off that list and writes one
// lease, and a worker's heartbeat is one row. Claims skip what others have locked, so claimers do not wait for each
// other. No row is updated by all (counts, statistics, groups of errors): each transaction writes a row with what it
// adds, and the leader sums up these rows. A claim and a finish are one procedure each; concurrent ones of one
// process share a transaction. Tables are in migrations/, with the order of locks, and procedures in procedures/.
//
// The package may use package store, the driver and goose.
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
	"time"

	"github.com/tuskqueue/tusk/internal/together"
	"github.com/tuskqueue/tusk/store"
)

// Store is a ledger in a MySQL or MariaDB database. It implements store.Store and, among others, store.Transactor,
// store.Migrator, store.Maintainer, store.Checker, store.Witness, store.Notifier and store.Meter.
type Store struct {
	db       *sql.DB
	program  *program
	spare    *sql.DB // nil without Options.Spare
	owned    bool    // Open opened the pool, and Close closes it
	multi    bool    // its connections take several statements at once
	isolated bool    // its sessions are READ COMMITTED by default
	oneNode  bool    // see Options
	galera   bool
	packet   int           // the server's max_allowed_packet
	lockWait time.Duration // how long its sessions wait for a lock
	log      *slog.Logger

	claiming  together.Calls[*claim]
	finishing together.Calls[*finishing]

	places    places
	leases    leases
	attendant *attendant
	wakes     wakes
	damaged   sync.Map // places of damaged lists that were logged
	// By queue: how many tasks a row of tusk_ready recently covered.
	hints   sync.Map
	lines   stands
	checked atomic.Bool
	// When this program next records that it runs.
	seenDue atomic.Int64
	sweep   atomic.Pointer[store.Token] // the lease up to which the sweep has come
	// When leases are next compared with what their workers say they hold.
	strays   atomic.Int64
	moved    atomic.Int64 // how often Oversee has found sums to add up
	daysDue  atomic.Int64 // when days are next created
	dueLists int          // how many lists one page of Due reads
	// When a day was last found to be needed.
	refused atomic.Int64

	trips, claims, conflicts, deadlocks atomic.Int64
}

// Options configure an engine. Zero values mean the defaults.
type Options struct {
	// Spare is the connector that the pool was created with. With it the engine can open connections of its own, so
	// that its work continues while handlers hold every connection of the pool. Open sets it.
	Spare driver.Connector
	// OneNode allows a cluster whose nodes all take writes: Galera, or Group Replication with several primaries. It
	// states that the connections of all processes lead to the same node, because row locks do not span nodes.
	OneNode bool
	// Logger receives warnings. Default: slog.Default().
	Logger *slog.Logger
}

// New creates a store on an open pool and checks the server. It rejects a server that is too old or only resembles
// MySQL; Check reports more. The caller closes the pool. Set multiStatements and interpolateParams on the pool, as
// Open does, to save round trips. If the pool is limited, set Options.Spare, too.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	return create(ctx, &Store{db: db}, o)
}

// Open creates a store with a pool of its own; see Pool for the DSN. It logs to slog.Default. Call Migrate to create
// or update the tables.
func Open(ctx context.Context, dsn string) (*Store, error) {
	connector, oneNode, err := connect(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return create(ctx, &Store{db: newPool(connector), owned: true}, Options{Spare: connector, OneNode: oneNode})
}

func create(ctx context.Context, s *Store, o Options) (*Store, error) {
	s.dueLists, s.program, s.oneNode, s.log = dueLists, ownProgram(), o.OneNode, cmp.Or(o.Logger, slog.Default())
	s.wakes.hurried = make(chan struct{}, 1)
	if o.Spare != nil {
		s.spare = newSpare(o.Spare)
	}
	if err := s.inspect(ctx); err != nil {
		s.closePools()
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return s, nil
}

// DB returns the pool, for the user's own transactions.
func (s *Store) DB() *sql.DB { return s.db }

// Close stops what New or Open started, and closes the pool if Open created it.
func (s *Store) Close() error {
	s.attendant.locks.Close()
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

// ready fails unless this program works with the schema.
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

// clock is the server's time in microseconds since 1970, independent of the session's time zone.
const clock = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"

// texts are the statements in sql/, by the names above them. They have the clock in place of :now.
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

// list returns a statement in which :rows is replaced by n copies of a group of parameters.
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
