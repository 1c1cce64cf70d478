package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

const (
	attendWithin = 5 * time.Second        // limit for one statement about the locks
	attendAgain  = 500 * time.Millisecond // pause after a connection was lost
	poolerAgain  = time.Minute            // pause after a connection that went through a pooler
)

var _ store.Witness = (*Store)(nil)

// errPooled says that this process has no session of its own.
var errPooled = errors.New("a pooler stands between: workers live by their beats alone")

// Witnesses implements store.Witness. Before the first connection it returns true.
func (s *Store) Witnesses() bool { return !s.attendant.pooled.Load() }

// Attendant holds a lock for each worker of this process, on a connection of its own.
// When the process dies, the server closes the connection and releases the locks, and
// the leader sees that. One Attendant serves all engines on a pool that share it.
type Attendant struct {
	pool   *pgxpool.Pool
	mu     sync.Mutex
	ids    map[attended]bool // workers that live, and whether their lock is held
	gone   []attended        // workers that left, but whose locks are still held
	wake   chan struct{}
	cancel context.CancelFunc // nil if run does not run
	ended  chan struct{}
	closed bool
	pooled atomic.Bool // connections go through a pooler
}

// attended is a worker of an engine.
type attended struct {
	s  *Store
	id store.ID
}

// NewAttendant makes an Attendant for the engines on a pool. It connects once there is a worker.
func NewAttendant(pool *pgxpool.Pool) *Attendant { return &Attendant{pool: pool} }

// byEngine groups the ids of workers by engine.
func byEngine(all []attended) map[*Store]uuids {
	parts := map[*Store]uuids{}
	for _, one := range all {
		parts[one.s] = append(parts[one.s], one.id)
	}
	return parts
}

// keep adds a worker. It does not wait until the worker's lock is held.
func (w *Attendant) keep(id attended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.ids[id]; known || w.closed {
		return
	}
	if w.ids == nil {
		w.ids, w.wake = map[attended]bool{}, make(chan struct{}, 1)
	}
	w.ids[id] = false
	w.hurry()
	if w.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel, w.ended = cancel, make(chan struct{})
		go w.run(ctx, w.ended)
	}
}

// leave removes a worker.
func (w *Attendant) leave(id attended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if held, known := w.ids[id]; known {
		delete(w.ids, id)
		if held {
			w.gone = append(w.gone, id)
		}
		w.hurry()
	}
}

func (w *Attendant) hurry() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// idsOf returns the living workers of an engine.
func (w *Attendant) idsOf(s *Store) (ids []store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.ids {
		if id.s == s {
			ids = append(ids, id.id)
		}
	}
	return ids
}

// leaveAll removes the workers of an engine.
func (w *Attendant) leaveAll(s *Store) {
	w.mu.Lock()
	var all []attended
	for id := range w.ids {
		if id.s == s {
			all = append(all, id)
		}
	}
	w.mu.Unlock()
	for _, id := range all {
		w.leave(id)
	}
}

// Close ends the connection. From then on, workers live by their beats alone.
func (w *Attendant) Close() {
	w.mu.Lock()
	w.closed = true
	cancel, ended := w.cancel, w.ended
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if ended != nil {
		<-ended
	}
}

// run attends on one connection after the other. It ends when no worker is left.
func (w *Attendant) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	for ctx.Err() == nil {
		err := w.attend(ctx)
		if err == nil {
			return
		}
		w.forget() // the address may belong to another server by now
		pause := attendAgain
		w.pooled.Store(errors.Is(err, errPooled))
		if w.pooled.Load() {
			pause = poolerAgain
		}
		w.lost(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// forget drops what the engines know about their server.
func (w *Attendant) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.ids {
		id.s.known.forget()
	}
}

// attend holds the locks on one connection until the connection ends. It returns nil when
// no worker is left.
func (w *Attendant) attend(ctx context.Context) error {
	c, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for {
		fresh, gone, over := w.news()
		if over {
			return nil
		}
		if err := w.change(ctx, c, fresh, gone); err != nil {
			return err
		}
		if err := w.wait(ctx, c); err != nil {
			return err
		}
	}
}

// connect opens a connection and makes sure that it is a session of the server. A pooler
// makes up process ids of its own, and a lock that is taken through it belongs to no client.
func (w *Attendant) connect(ctx context.Context) (*pgx.Conn, error) {
	within, cancel := context.WithTimeout(ctx, attendWithin)
	defer cancel()
	c, err := pgx.ConnectConfig(within, w.pool.Config().ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	var pid uint32
	if err = c.QueryRow(within, "select pg_catalog.pg_backend_pid()").Scan(&pid); err == nil && pid != c.PgConn().PID() {
		err = errPooled
	}
	if err != nil {
		c.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return c, nil
}

// news returns the workers whose locks have to be taken and those whose locks have to be
// released. It reports over if no worker is left; the caller's goroutine then ends.
func (w *Attendant) news() (fresh, gone []attended, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) == 0 {
		w.gone, w.cancel = nil, nil
		return nil, nil, true
	}
	for id, held := range w.ids {
		if !held {
			fresh = append(fresh, id)
		}
	}
	gone, w.gone = w.gone, nil
	return fresh, gone, false
}

func (w *Attendant) change(ctx context.Context, c *pgx.Conn, fresh, gone []attended) error {
	ctx, cancel := context.WithTimeout(ctx, attendWithin)
	defer cancel()
	for _, id := range gone {
		_, err := c.Exec(ctx, id.s.sql["unlock"], [16]byte(id.id))
		if err != nil && !isMissing(err) { // a ledger may have moved away
			return err
		}
	}
	away := map[*Store]bool{} // engines whose ledgers have moved away
	for s, ids := range byEngine(fresh) {
		var batch pgx.Batch
		batch.Queue(s.sql["lock_workers"], ids)
		batch.Queue(s.sql["attend"], ids)
		err := c.SendBatch(ctx, &batch).Close()
		if away[s] = isMissing(err); err != nil && !away[s] {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range fresh {
		if _, known := w.ids[id]; known {
			w.ids[id] = !away[id.s]
		} else {
			w.gone = append(w.gone, id) // it left in the meantime
			w.hurry()
		}
	}
	return nil
}

// wait returns nil when a worker comes or leaves, and an error when the connection ends. The
// server sends no notifications on it.
func (w *Attendant) wait(ctx context.Context, c *pgx.Conn) error {
	quiet, cancel := context.WithCancel(ctx)
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		select {
		case <-w.wake:
		case <-quiet.Done():
		}
		cancel()
	}()
	_, err := c.WaitForNotification(quiet)
	interrupted := quiet.Err() != nil
	cancel()
	<-woken
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if interrupted && !c.IsClosed() {
		return nil
	}
	return err
}

// lost tells the database, on another connection, that the workers of this process live
// without their locks.
func (w *Attendant) lost(ctx context.Context) {
	w.mu.Lock()
	var lost []attended
	for id, held := range w.ids {
		if held {
			lost = append(lost, id)
			w.ids[id] = false
		}
	}
	w.gone = nil
	w.mu.Unlock()
	for s, ids := range byEngine(lost) {
		w.unattend(ctx, s, ids)
	}
}

// unattend does that for the workers of one engine.
func (w *Attendant) unattend(ctx context.Context, s *Store, ids uuids) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, attendWithin)
		err := s.exec(within, "unattend", ids)
		if cancel(); err == nil || isMissing(err) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(attendAgain / 5):
		}
	}
}
