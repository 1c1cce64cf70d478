package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A second witness of a worker's life besides its beat: a named lock on a connection that is used for nothing else. The
// server releases it at once when the process dies, and anybody can ask who holds it. See docs/design/liveness.md.
const (
	// How often a process checks its own locks.
	pulse = time.Second
	// The time limit for each step of that.
	attendWithin = 2 * time.Second
	// The server reports its uptime in whole seconds.
	sameRun = 2 * time.Second
)

// Witnesses implements store.Witness.
func (s *Store) Witnesses() bool { return s.witness.usable() }

// witness holds the locks of this process's workers, and watches the locks of others. Only one goroutine asks the
// server for locks and uses the connection, because the connection may be dead unnoticed. Beats do not wait for any of
// that, except the first beat of a worker, for a while.
type witness struct {
	store  *Store
	prefix atomic.Pointer[string] // nil if not known yet
	wake   chan struct{}

	mu sync.Mutex // held only for moments, never while the server is asked
	// Roughly when the server with the locks was started.
	run int64
	// The wanted locks; true if the lock is held.
	held map[store.ID]bool
	// Closed when the wanted locks have been asked for.
	waiting []chan struct{}
	left    []store.ID // workers whose locks must be released
	// Workers that lost their lock, which the database does not know yet.
	bare   map[store.ID]bool
	stop   context.CancelFunc // nil if no keeper runs
	ended  chan struct{}
	closed bool
	looks  map[store.ID]look
}

func newWitness(s *Store) *witness {
	return &witness{store: s, wake: make(chan struct{}, 1), held: map[store.ID]bool{}, bare: map[store.ID]bool{}}
}

// usable reports whether a connection can be spared. On Galera, locks belong to one node and prove nothing.
func (w *witness) usable() bool {
	return !w.store.galera && w.store.spares()
}

// watch makes sure that a worker's lock is held from now on. It returns the start of the server that has the lock, or 0
// if the lock is not held, or not yet.
func (w *witness) watch(ctx context.Context, worker store.ID) (run int64) {
	if asked := w.want(worker); asked != nil {
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[worker] {
		return w.run
	}
	return 0
}

// want adds a worker whose lock must be held. For a new worker it returns a channel that is closed once the lock has
// been asked for.
func (w *witness) want(worker store.ID) (asked chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.held[worker]; known || w.closed || !w.usable() {
		return nil
	}
	w.held[worker] = false
	asked = make(chan struct{})
	w.waiting = append(w.waiting, asked)
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop, w.ended = stop, make(chan struct{})
		go w.keep(ctx, w.ended)
	}
	w.hurry()
	return asked
}

func (w *witness) hurry() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// forget releases the lock of a worker that has left, without waiting for the release.
func (w *witness) forget(worker store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.held[worker]; known {
		delete(w.held, worker)
		delete(w.bare, worker)
		w.left = append(w.left, worker)
		w.hurry()
	}
}

// close releases everything.
func (w *witness) close() {
	w.mu.Lock()
	w.closed = true
	stop, ended := w.stop, w.ended
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
}

// keep maintains the locks and their connection until it is stopped.
func (w *witness) keep(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	k := &keeper{witness: w}
	defer k.lose()
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		k.tend(ctx)
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-tick.C:
		}
	}
}

// keeper asks the server for locks.
type keeper struct {
	*witness
	conn *sql.Conn
}

// tend maintains the locks once. Each step has its own time limit, because a step that used up a common limit would
// make the next ones fail.
func (k *keeper) tend(ctx context.Context) {
	for _, step := range []func(context.Context){k.check, k.disown, k.renew} {
		own, cancel := context.WithTimeout(ctx, attendWithin)
		step(own)
		cancel()
	}
}

// check drops the connection if it is dead.
func (k *keeper) check(ctx context.Context) {
	if k.conn != nil {
		if _, err := k.conn.ExecContext(ctx, "do 1"); err != nil {
			k.lose()
		}
	}
}

// disown records that only the beats of workers that have lost their lock count from now on. It repeats that until it
// is stored.
func (k *keeper) disown(ctx context.Context) {
	k.mu.Lock()
	lost := slices.SortedFunc(maps.Keys(k.bare), func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	k.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	err := k.store.write(ctx, func(to *work) error {
		for _, worker := range lost {
			to.do(q("witness.disown"), worker[:])
		}
		return nil
	})
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		clear(k.bare) // nobody else adds to it
	}
}

// renew takes the wanted locks that are not held, on a new connection if the old one is gone, and releases the locks of
// workers that have left. If the server has not yet noticed that the session with a lock is dead, renew takes that lock
// later.
func (k *keeper) renew(ctx context.Context) {
	fresh, left, waiting, any := k.news()
	if !any || len(fresh)+len(left) > 0 && k.change(ctx, fresh, left) != nil {
		k.lose()
	}
	for _, asked := range waiting {
		close(asked)
	}
}

// news returns whose locks must be taken and released, who waits for that, and whether any lock is wanted.
func (k *keeper) news() (fresh, left []store.ID, waiting []chan struct{}, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for worker, holds := range k.held {
		if !holds {
			fresh = append(fresh, worker)
		}
	}
	left, k.left = k.left, nil
	waiting, k.waiting = k.waiting, nil
	return fresh, left, waiting, len(k.held) > 0
}

func (k *keeper) change(ctx context.Context, fresh, left []store.ID) error {
	prefix, err := k.lockPrefix(ctx)
	if err != nil {
		return err
	}
	if k.conn != nil {
		for _, worker := range left {
			if _, err := k.conn.ExecContext(ctx, "do release_lock(?)", lockName(prefix, worker)); err != nil {
				return err
			}
		}
	} else if err := k.connect(ctx); err != nil {
		return err
	}
	for _, worker := range fresh {
		var got sql.NullInt64
		if err := k.conn.QueryRowContext(ctx, "select get_lock(?, 0)", lockName(prefix, worker)).Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			k.got(worker)
		}
	}
	return nil
}

// got records that a lock is held. Its worker may have left meanwhile.
func (k *keeper) got(worker store.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, wanted := k.held[worker]; wanted {
		k.held[worker] = true
	}
}

// connect opens the connection for the locks, from the spare pool if there is one.
func (k *keeper) connect(ctx context.Context) error {
	pool := k.store.db
	if k.store.spare != nil {
		pool = k.store.spare
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	k.conn = conn
	run, err := startOf(ctx, conn)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.run = run
	return err
}

// lose drops the connection, and with it the locks.
func (k *keeper) lose() {
	if k.conn != nil {
		k.conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it for good
		k.conn.Close()
		k.conn = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for worker, holds := range k.held {
		if holds {
			k.bare[worker] = true
		}
		k.held[worker] = false
	}
}

// startOf distinguishes the runs of servers by when they began, to the second. After a restart or a failover, locks
// mean nothing until they are taken again.
func startOf(ctx context.Context, on runner) (at int64, err error) {
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
	return now - uptime*time.Second.Microseconds(), nil
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
func (w *witness) lockPrefix(ctx context.Context) (string, error) {
	if known := w.prefix.Load(); known != nil {
		return *known, nil
	}
	var database string
	if err := w.store.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&database) },
		"select database()"); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(database))
	prefix := "tusk:" + hex.EncodeToString(sum[:8]) + ":"
	w.prefix.Store(&prefix)
	return prefix, nil
}
