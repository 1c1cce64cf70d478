package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/witness"
	"github.com/tuskqueue/tusk/store"
)

// A second proof that a worker is alive, in addition to its beat: a named lock on a connection that is used for
// nothing else. The server releases it at once when the process dies, and any session can query its holder. See
// docs/design/liveness.md.
const (
	// How often a process checks its own locks.
	pulse = time.Second
	// The time limit for each step of that.
	attendWithin = 2 * time.Second
	// The server reports its uptime in whole seconds.
	sameRun = 2 * time.Second
	// How far apart the runs of different servers are that were started together.
	serversApart = time.Hour
)

// Witnesses implements store.Witness.
func (s *Store) Witnesses() bool { return s.attendant.usable() }

// attendant holds the locks of this process's workers, and watches the locks of others.
type attendant struct {
	store  *Store
	locks  *witness.Keeper[store.ID]
	prefix atomic.Pointer[string] // nil if not known yet
	run    atomic.Int64           // of the server with the locks; see runOf

	mu    sync.Mutex
	looks looks
}

func newAttendant(s *Store) *attendant {
	a := &attendant{store: s}
	a.locks = witness.New[store.ID](a, attendWithin)
	return a
}

// usable reports whether a connection can be spared. On Galera, locks belong to one node and prove nothing.
func (a *attendant) usable() bool { return !a.store.galera && a.store.spares() }

// watch makes sure that a worker's lock is held from now on. It returns the run of the server that has the lock, or 0
// if the lock is not held, or not yet. Only the first beat of a worker waits for the lock, for a while.
func (a *attendant) watch(ctx context.Context, worker store.ID) (run int64) {
	if !a.usable() {
		return 0
	}
	if asked := a.locks.Keep(worker); asked != nil {
		wait := attendWithin
		if deadline, limited := ctx.Deadline(); limited { // leave time for the beat itself
			wait = min(wait, time.Until(deadline)/2)
		}
		select {
		case <-asked:
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	if run := a.run.Load(); a.locks.Holds(worker) {
		return run
	}
	return 0
}

// Connect opens the connection for the locks, from the spare pool if there is one.
func (a *attendant) Connect(ctx context.Context) (witness.Session[store.ID], error) {
	prefix, err := a.lockPrefix(ctx)
	if err != nil {
		return nil, err
	}
	pool := a.store.db
	if a.store.spare != nil {
		pool = a.store.spare
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	k := keeper{conn, prefix}
	run, err := runOf(ctx, conn)
	if err = errors.Join(err, k.check(ctx)); err != nil {
		k.Close()
		return nil, err
	}
	a.run.Store(run)
	return k, nil
}

// Failed returns the pause before the next connection.
func (a *attendant) Failed(error) time.Duration { return pulse }

// Disown records that only the beats of workers that have lost their lock count from now on.
func (a *attendant) Disown(ctx context.Context, workers []store.ID) error {
	slices.SortFunc(workers, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	return a.store.write(ctx, func(to *work) error {
		for _, worker := range workers {
			to.do(q("witness.disown"), worker[:])
		}
		return nil
	})
}

// keeper is the connection that holds the locks.
type keeper struct {
	conn   *sql.Conn
	prefix string // of the names of locks
}

// Change releases and takes locks. If the server has not yet noticed that the session with a lock is dead, it refuses
// that lock.
func (k keeper) Change(ctx context.Context, release, take []store.ID) (taken []store.ID, err error) {
	for _, worker := range release {
		if _, err := k.conn.ExecContext(ctx, "do release_lock(?)", lockName(k.prefix, worker)); err != nil {
			return nil, err
		}
	}
	for _, worker := range take {
		var got sql.NullInt64
		err := k.conn.QueryRowContext(ctx, "select get_lock(?, 0)", lockName(k.prefix, worker)).Scan(&got)
		if err != nil {
			return taken, err
		}
		if got.Int64 == 1 {
			taken = append(taken, worker)
		}
	}
	return taken, nil
}

// Wait waits for a moment, then checks the connection.
func (k keeper) Wait(ctx context.Context, wake <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
		return nil
	case <-time.After(pulse):
	}
	within, cancel := context.WithTimeout(ctx, attendWithin)
	defer cancel()
	return k.check(within)
}

// check fails if the connection has ended, or if its server takes no writes: if another one has become the primary, the
// leader looks for locks there, and a new connection leads there. MySQL sets read_only together with super_read_only;
// a replica of Aurora has only innodb_read_only.
func (k keeper) check(ctx context.Context) error {
	var is [2]string
	err := k.conn.QueryRowContext(ctx, "select @@global.read_only, @@global.innodb_read_only").Scan(&is[0], &is[1])
	if err == nil && slices.ContainsFunc(is[:], func(v string) bool { return v != "0" && v != "OFF" }) {
		return store.ErrReadOnly
	}
	return err
}

// Close closes the connection and does not return it to the pool.
func (k keeper) Close() {
	drop(k.conn)
	k.conn.Close()
}

// runOf distinguishes the runs of servers: it returns when the server was started, in microseconds but known to the
// second, plus a number of hours that depends on the server, because a primary and its replica may have been started
// together. After a restart or a failover, locks mean nothing until they are taken again.
func runOf(ctx context.Context, on runner) (run int64, err error) {
	var name string
	var uptime, now int64
	rows, err := on.QueryContext(ctx, "show global status like 'Uptime'")
	if err = one(rows, err, &name, &uptime); err != nil {
		return 0, err
	}
	rows, err = on.QueryContext(ctx, q("clock"))
	if err = one(rows, err, &now); err != nil {
		return 0, err
	}
	is, err := variables(ctx, on,
		"show global variables where variable_name in ('server_uuid', 'server_id', 'hostname', 'port')")
	if err != nil {
		return 0, err
	}
	server := fnv.New32a()
	for _, name := range slices.Sorted(maps.Keys(is)) {
		fmt.Fprintln(server, name, is[name])
	}
	hours := int64(server.Sum32() >> 16)
	return now - uptime*time.Second.Microseconds() + hours*serversApart.Microseconds(), nil
}

// one reads the only row of an answer.
func one(rows *sql.Rows, err error, into ...any) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return errors.Join(sql.ErrNoRows, rows.Err())
	}
	return rows.Scan(into...)
}

func lockName(prefix string, worker store.ID) string {
	return prefix + strings.ToUpper(hex.EncodeToString(worker[:]))
}

// lockPrefix returns the prefix of the names of locks, because names belong to the server, not to the database.
func (a *attendant) lockPrefix(ctx context.Context) (string, error) {
	if known := a.prefix.Load(); known != nil {
		return *known, nil
	}
	var database string
	if err := a.store.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&database) },
		"select database()"); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(database))
	prefix := "tusk:" + hex.EncodeToString(sum[:8]) + ":"
	a.prefix.Store(&prefix)
	return prefix, nil
}
