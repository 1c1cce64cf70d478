package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A second witness of a worker's life, beside its beat: a named lock on a
// connection on which nothing else happens. The server releases it at once when
// the process dies, and anybody may ask who holds it. See docs/design/liveness.md.
const (
	patience = 400 * time.Millisecond // between the two looks, at least
	pulse    = time.Second            // how often a process sees to its own lock
	sameRun  = 2 * time.Second        // the server's uptime is told in whole seconds
)

// Witnesses implements store.Witness.
func (s *Store) Witnesses() bool { return s.witness.usable() }

// witness holds the locks of this process's workers, and looks after those of
// others.
type witness struct {
	store  *Store
	mu     sync.Mutex
	conn   *sql.Conn
	run    int64 // when the server that it leads to was started, about
	prefix string
	held   map[store.ID]bool // the locks to be held; true: they are
	looks  map[store.ID]look
	stop   chan struct{} // nil: no keeper runs
	ended  chan struct{}
	closed bool
}

// look is when a worker's lock was first found free, and its beat then.
type look struct{ at, beatAt int64 }

// departed is a worker whose lock is free, and its latest beat.
type departed struct {
	worker store.ID
	beatAt int64
}

func newWitness(s *Store) *witness {
	return &witness{store: s, held: map[store.ID]bool{}, looks: map[store.ID]look{}}
}

// usable reports whether a connection can be spared. On Galera locks are those of
// one node, and say nothing.
func (w *witness) usable() bool {
	return !w.store.galera && w.store.spares()
}

// watch takes the lock of a worker of this process, and returns the run of the
// server on which it is held; 0: it is not.
func (w *witness) watch(ctx context.Context, worker store.ID) (run int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.usable() {
		return 0
	}
	if w.held[worker] {
		return w.run
	}
	w.held[worker] = false
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	w.renew(ctx)
	if w.stop == nil {
		w.stop, w.ended = make(chan struct{}), make(chan struct{})
		go w.keep(w.stop, w.ended)
	}
	if w.held[worker] {
		return w.run
	}
	return 0
}

// renew takes the locks that are to be held and are not, on a new connection if
// the old one is gone. A lock that a session holds of which the server does not
// know yet that it is dead is taken later.
func (w *witness) renew(ctx context.Context) {
	if len(w.held) == 0 {
		return
	}
	if w.conn == nil {
		conn, err := w.connect(ctx)
		if err != nil {
			return
		}
		w.conn = conn
		if w.run, err = startOf(ctx, conn); err != nil {
			w.lose()
			return
		}
	}
	prefix, err := w.lockPrefix(ctx)
	if err != nil {
		w.lose()
		return
	}
	for worker, holds := range w.held {
		if holds {
			continue
		}
		var got sql.NullInt64
		if err := w.conn.QueryRowContext(ctx, "select get_lock(?, 0)", lockName(prefix, worker)).Scan(&got); err != nil {
			w.lose()
			return
		}
		w.held[worker] = got.Int64 == 1
	}
}

// connect takes the connection that has the locks, which is none of the pool's where there are
// others.
func (w *witness) connect(ctx context.Context) (*sql.Conn, error) {
	if w.store.spare != nil {
		return w.store.spare.Conn(ctx)
	}
	return w.store.db.Conn(ctx)
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
	if w.prefix == "" {
		var database string
		if err := w.store.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&database) },
			"select database()"); err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(database))
		w.prefix = "tusk:" + hex.EncodeToString(sum[:8]) + ":"
	}
	return w.prefix, nil
}

// lose drops the connection, and the locks with it.
func (w *witness) lose() {
	if w.conn != nil {
		w.conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it for good
		w.conn.Close()
		w.conn = nil
	}
	for worker := range w.held {
		w.held[worker] = false
	}
}

// keep sees to it that the connection is alive, until it is stopped.
func (w *witness) keep(stop, ended chan struct{}) {
	defer close(ended)
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		w.mu.Lock()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if w.conn != nil {
			if _, err := w.conn.ExecContext(ctx, "do 1"); err != nil {
				w.disown(ctx)
				w.lose()
			}
		}
		w.renew(ctx)
		cancel()
		w.mu.Unlock()
	}
}

// disown says of the workers of this process that their beats alone count from
// now on. When that cannot be said, nothing else can either.
func (w *witness) disown(ctx context.Context) {
	for worker, holds := range w.held {
		if holds {
			_ = w.store.write(ctx, func(to *work) error {
				to.do(q("witness.disown"), worker[:])
				return nil
			})
		}
	}
}

// forget releases the lock of a worker that has left.
func (w *witness) forget(worker store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.held[worker]; !known {
		return
	}
	delete(w.held, worker)
	if len(w.held) == 0 {
		w.lose()
		return
	}
	if w.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if _, err := w.conn.ExecContext(ctx, "do release_lock(?)", lockName(w.prefix, worker)); err != nil {
			w.lose()
		}
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
		close(stop)
		<-ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.held)
	w.lose()
}

// gone returns the workers whose lock is free in two looks and whose beat is
// overdue. It is asked again and again by the leader; an error only means that the
// beat decides.
func (w *witness) gone(ctx context.Context) (gone []departed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.store.galera {
		return nil
	}
	looks := map[store.ID]look{}
	runs := map[store.ID]int64{}
	err := w.free(ctx, func(worker store.ID, beatAt, lateAt, run, now int64) {
		first, seen := w.looks[worker]
		if !seen || first.beatAt != beatAt {
			first = look{now, beatAt}
		}
		looks[worker], runs[worker] = first, run
		if now-first.at >= patience.Microseconds() && lateAt <= now {
			gone = append(gone, departed{worker, beatAt})
		}
	})
	if w.looks = looks; err != nil || len(gone) == 0 {
		return nil
	}
	conn, err := w.store.conn(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	run, err := startOf(ctx, conn)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(gone, func(d departed) bool {
		return time.Duration(run-runs[d.worker]).Abs()*time.Microsecond > sameRun
	})
}

// free finds the living workers that hold a lock, as they said, and hold it no
// longer.
func (w *witness) free(ctx context.Context, each func(worker store.ID, beatAt, lateAt, run, now int64)) error {
	prefix, err := w.lockPrefix(ctx)
	if err != nil {
		return err
	}
	return w.store.query(ctx, func(rows *sql.Rows) error {
		var id []byte
		var beatAt, lateAt, run, now int64
		var holder sql.NullInt64
		err := rows.Scan(&id, &beatAt, &lateAt, &run, &holder, &now)
		if err == nil && !holder.Valid {
			each(store.ID(id), beatAt, lateAt, run, now)
		}
		return err
	}, q("witness.watched"), prefix)
}
