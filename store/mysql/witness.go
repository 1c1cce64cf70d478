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

// A second witness of a worker's life, beside its beat: a named lock on a
// connection on which nothing else happens. The server releases it at once when
// the process dies, and anybody may ask who holds it. See docs/design/liveness.md.
const (
	pulse        = time.Second     // how often a process sees to its own locks
	attendWithin = 2 * time.Second // each of what it asks for that
	sameRun      = 2 * time.Second // the server's uptime is told in whole seconds
)

// Witnesses implements store.Witness.
func (s *Store) Witnesses() bool { return s.witness.usable() }

// witness holds the locks of this process's workers, and looks after those of others. One goroutine
// alone asks the server for them, and has the connection: it may be dead without a word, and beats wait
// for nothing of that, but for the first one of a worker, a while.
type witness struct {
	store  *Store
	prefix atomic.Pointer[string] // nil: not known yet
	wake   chan struct{}

	mu      sync.Mutex         // held for moments, and never while the server is asked
	run     int64              // when the server was started on which the locks are, about
	held    map[store.ID]bool  // the locks to be held; true: they are
	waiting []chan struct{}    // closed when those have been asked for
	left    []store.ID         // whose locks are to be released
	bare    map[store.ID]bool  // workers whose locks were lost, of which the database does not know
	stop    context.CancelFunc // nil: no keeper runs
	ended   chan struct{}
	closed  bool
	looks   map[store.ID]look
}

func newWitness(s *Store) *witness {
	return &witness{store: s, wake: make(chan struct{}, 1), held: map[store.ID]bool{}, bare: map[store.ID]bool{}}
}

// usable reports whether a connection can be spared. On Galera locks are those of
// one node, and say nothing.
func (w *witness) usable() bool {
	return !w.store.galera && w.store.spares()
}

// watch has the lock of a worker of this process held from now on, and returns the run of the
// server on which it is; 0: it is not, or not yet.
func (w *witness) watch(ctx context.Context, worker store.ID) (run int64) {
	if asked := w.want(worker); asked != nil {
		wait := attendWithin
		if deadline, limited := ctx.Deadline(); limited { // the beat itself comes after
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

// want adds a worker whose lock is to be held. What it returns, of a new one, is closed when the
// lock has been asked for.
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

// forget has the lock of a worker released that has left. It does not wait for that.
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

// keep sees to the locks and the connection that has them, until it is stopped.
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

// keeper is what asks the server for locks.
type keeper struct {
	*witness
	conn *sql.Conn
}

// tend sees to the locks once. Each step has its own time: one that used up that of all would have
// the next ones fail.
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

// disown says of workers whose locks were lost that their beats alone count from now on, and again
// until that is stored.
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

// renew takes the locks that are to be held and are not, on a new connection if the old one is gone,
// and releases those of workers that have left. A lock that a session holds of which the server does
// not know yet that it is dead is taken later.
func (k *keeper) renew(ctx context.Context) {
	fresh, left, waiting, any := k.news()
	if !any || len(fresh)+len(left) > 0 && k.change(ctx, fresh, left) != nil {
		k.lose()
	}
	for _, asked := range waiting {
		close(asked)
	}
}

// news returns whose locks are to be taken and whose released, who waits for that, and whether any
// are to be held.
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

// got notes that a lock is held. Its worker may have left meanwhile.
func (k *keeper) got(worker store.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, wanted := k.held[worker]; wanted {
		k.held[worker] = true
	}
}

// connect takes the connection that has the locks, which is none of the pool's where there are
// others.
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

// lose drops the connection, and the locks with it.
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

// startOf tells the runs of servers apart: by when they began, to the second.
// After a restart or a failover locks mean nothing until they are taken again.
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

// lockPrefix is what the names of locks begin with: they are the server's, not
// the database's.
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
