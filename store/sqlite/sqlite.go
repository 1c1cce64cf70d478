package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// Connections is how many connections of its pool a store keeps for itself: one writes, the others read. If the pool
// has a limit, it must allow a few more.
const Connections = 1 + readers

const (
	readers     = 4
	busyTimeout = 10 * time.Second // how long a write waits for other transactions
)

// Store is the ledger in one SQLite file. It implements store.Store and the optional capabilities that make sense for a
// file. It is safe for concurrent use.
type Store struct {
	db      *sql.DB
	path    string       // the file's path, as SQLite names it
	file    os.FileInfo  // the file that was opened
	looked  atomic.Int64 // when a reader last found it in its place, in Unix nanoseconds
	clock   *clock
	kinds   *kinds
	seen    seen
	writer  *writer
	readers chan *direct  // holds nil for each connection that is not open yet
	long    chan struct{} // has room for reads that may take long
	bell    bell.Bell
	counts  counters
	log     *slog.Logger

	busy atomic.Bool // the latest claim found tasks
	// When leases are next compared with what their workers say they hold.
	strays    atomic.Int64
	ready     atomic.Bool // the schema was checked and is ours
	owned     bool        // Close closes db too
	closing   chan struct{}
	closeOnce sync.Once
	group     sync.WaitGroup
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Transactor = (*Store)(nil)
	_ store.Notifier   = (*Store)(nil)
	_ store.Maintainer = (*Store)(nil)
	_ store.Migrator   = (*Store)(nil)
	_ store.Meter      = (*Store)(nil)
)

// ErrClosed is returned by every method after Close.
var ErrClosed = errors.New("store is closed")

// Options configure an engine. Zero values mean the defaults.
type Options struct {
	// CloseDB makes Close close the pool, too. So does New if it fails.
	CloseDB bool
	// Logger receives warnings. Default: slog.Default().
	Logger *slog.Logger
}

// New creates a store on an open pool, which may be the program's own. It sets the file to write-ahead logging. Call
// Migrate to create or update the schema.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	s, err := open(ctx, db)
	if err != nil {
		err = wrap("open", err)
		if o.CloseDB && db != nil {
			err = errors.Join(err, db.Close())
		}
		return nil, err
	}
	s.owned, s.log = o.CloseDB, cmp.Or(o.Logger, slog.Default())
	return s, nil
}

func open(ctx context.Context, db *sql.DB) (*Store, error) {
	if db == nil {
		return nil, errors.New("no pool: want an open *sql.DB")
	}
	if limit := db.Stats().MaxOpenConnections; limit > 0 && limit < Connections+1 {
		return nil, fmt.Errorf("the pool allows %d connections and Tusk needs %d: raise it with SetMaxOpenConns", limit,
			Connections+1)
	}
	var path string
	var conn *direct
	err := patiently(busyTimeout, func() (err error) {
		if path, err = inspect(ctx, db); err != nil {
			return err
		}
		if conn, err = openDirect(ctx, db, writing...); err != nil {
			return err
		}
		if err = conn.forgetStatistics(ctx); err != nil {
			conn.close()
		}
		return err
	})
	if err != nil {
		return nil, explain(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		conn.close()
		return nil, err
	}
	s := &Store{db: db, path: path, file: file, clock: newClock(), kinds: newKinds(),
		readers: make(chan *direct, readers), long: make(chan struct{}, readers-1), closing: make(chan struct{})}
	for range readers {
		s.readers <- nil
	}
	s.writer = newWriter(s, conn)
	s.group.Go(s.writer.run)
	return s, nil
}

// writing and reading are the settings of the store's connections. The writer waits for other writers itself; see
// writer.begin.
var (
	writing = []string{"busy_timeout = 10000", "journal_mode = wal", "synchronous = full", "foreign_keys = on",
		"mmap_size = 0",
		"cache_size = -32000", "wal_autocheckpoint = 4000", "journal_size_limit = 67108864", "busy_timeout = 0"}
	reading = []string{"busy_timeout = 10000", "query_only = on", "mmap_size = 0"}
)

// patiently retries for a while if the database is busy. SQLite does not wait at all for the lock under which a file is
// set to write-ahead logging. For other locks it sleeps up to a tenth of a second between tries, so a process next to a
// busy one would starve.
func patiently(patience time.Duration, try func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil || !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Duration(200+rand.IntN(800)) * time.Microsecond)
	}
}

// Close waits for the writes in progress, then closes the store's connections.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.closing)
		s.group.Wait()
		for range readers {
			if conn := <-s.readers; conn != nil {
				conn.close()
			}
		}
		if s.owned {
			err = s.db.Close()
		}
	})
	return err
}

// oldest is the first version of SQLite without the bug that could corrupt a database if its write-ahead log is reset
// while another process writes.
var oldest = [3]int{3, 51, 3}

// inspect rejects a database that cannot be written to safely, and returns the file's path.
func inspect(ctx context.Context, db *sql.DB) (string, error) {
	var version, path string
	var readOnly bool
	if err := db.QueryRowContext(ctx, "select sqlite_version()").Scan(&version); err != nil {
		return "", err
	}
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil || !atLeast(v, oldest) {
		return "",
			fmt.Errorf("SQLite %s can corrupt a database that several processes write to: use a driver with %d.%d.%d or later",
				version, oldest[0], oldest[1], oldest[2])
	}
	if err := db.QueryRowContext(ctx, "select file from pragma_database_list where name = 'main'").Scan(
		&path); err != nil {
		return "", err
	}
	if path == "" {
		return "", errors.New("a database in memory is not shared by its connections: use package store/memory, or a file")
	}
	if err := localFile(path); err != nil {
		return "", err
	}
	var mode string
	if err := db.QueryRowContext(ctx, "pragma journal_mode = wal").Scan(&mode); err != nil {
		return "", err
	}
	if mode != "wal" {
		return "", fmt.Errorf("%s stays in journal mode %q where Tusk needs wal: %w", path, mode, store.ErrReadOnly)
	}
	if err := db.QueryRowContext(ctx, "pragma query_only").Scan(&readOnly); err != nil {
		return "", err
	}
	if readOnly {
		return "", fmt.Errorf("the pool's connections are read-only (pragma query_only): %w", store.ErrReadOnly)
	}
	var sync int
	if err := db.QueryRowContext(ctx, "pragma synchronous").Scan(&sync); err != nil {
		return "", err
	}
	if sync == 0 {
		return "", errors.New("the pool's connections have synchronous=off: with them a loss of power can damage the file, " +
			"with all tasks in it: open the pool with synchronous=full (_pragma=synchronous(full))")
	}
	return path, nil
}

func atLeast(v, least [3]int) bool {
	for i := range v {
		if v[i] != least[i] {
			return v[i] > least[i]
		}
	}
	return true
}

// read runs fn on a read-only connection, within one snapshot.
func (s *Store) read(ctx context.Context, fn func(context.Context, session) error) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	s.counts.roundTrips.Add(1)
	var conn *direct
	select {
	case conn = <-s.readers:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return ErrClosed
	}
	broken := false
	defer func() {
		if broken {
			conn.close()
			conn = nil
		}
		s.readers <- conn
	}()
	if err := s.readsInPlace(conn == nil); err != nil {
		return err
	}
	if conn == nil {
		var err error
		if conn, err = openDirect(ctx, s.db, reading...); err != nil {
			return explain(err)
		}
	}
	broken = true // until the transaction has ended: a panic of fn leaves it open
	return conn.use(func() error {
		if _, err := conn.exec(ctx, "begin"); err != nil {
			return explain(err)
		}
		err := fn(ctx, conn)
		if _, end := conn.exec(context.Background(), "commit"); end != nil {
			err = errors.Join(err, end)
		} else {
			broken = false
		}
		return explain(err)
	})
}

// readLong is like read, for calls that may go through many rows. It leaves a connection free for claims and chores,
// which would otherwise wait for all lists.
func (s *Store) readLong(ctx context.Context, fn func(context.Context, session) error) error {
	select {
	case s.long <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return ErrClosed
	}
	defer func() { <-s.long }()
	return s.read(ctx, fn)
}

// Path returns the database file's absolute path, as SQLite names it.
func (s *Store) Path() string { return s.path }
