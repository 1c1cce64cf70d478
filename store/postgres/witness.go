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
	attendWithin = 5 * time.Second        // for one statement about the locks
	attendAgain  = 500 * time.Millisecond // after a connection was lost
	poolerAgain  = time.Minute            // after a connection that was none of the server's own
)

var _ store.Witness = (*Store)(nil)

// errPooled says that no session is this process's own.
var errPooled = errors.New("a pooler stands between: workers live by their beats alone")

// Witnesses implements store.Witness. Before the first connection it says yes.
func (s *Store) Witnesses() bool { return !s.attendant.pooled.Load() }

// Attendant holds a lock in the name of each worker of this process, on a connection
// of their own, which the server closes when the process dies. The server releases
// the locks with it, and whoever leads sees that. One serves all engines on a pool that
// are given it.
type Attendant struct {
	pool   *pgxpool.Pool
	mu     sync.Mutex
	ids    map[attended]bool // workers that live; true: their lock is held
	gone   []attended        // workers that left, and whose locks are held still
	wake   chan struct{}
	cancel context.CancelFunc // nil: nothing runs
	ended  chan struct{}
	closed bool
	pooled atomic.Bool // a pooler stands between
}

// attended is a worker, as an engine knows it.
type attended struct {
	s  *Store
	id store.ID
}

// NewAttendant makes one for the engines on a pool. It connects when there is a worker.
func NewAttendant(pool *pgxpool.Pool) *Attendant { return &Attendant{pool: pool} }

// byEngine are the ids of workers, apart.
func byEngine(all []attended) map[*Store]uuids {
	parts := map[*Store]uuids{}
	for _, one := range all {
		parts[one.s] = append(parts[one.s], one.id)
	}
	return parts
}

// keep has a worker attended from now on. It does not wait for that.
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

// leave has a worker attended no more.
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

// idsOf are the workers of an engine that live.
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

// leaveAll has the workers of an engine attended no more.
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

// Close ends the connection. Workers live by their beats alone from then on.
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

// run attends on one connection after the other. It ends when nobody is left.
func (w *Attendant) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	for ctx.Err() == nil {
		err := w.attend(ctx)
		if err == nil {
			return
		}
		w.forget() // the server may be another one by now
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

// forget drops what engines know of their server.
func (w *Attendant) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.ids {
		id.s.known.forget()
	}
}

// attend holds the locks on one connection until that ends. Nil: nobody is left.
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

// connect opens a connection and makes sure that it is a session: a pooler makes a
// process id of its own up, and a lock taken there would be anybody's.
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

// news returns whose locks are to be taken and whose released. Over: nobody is
// left, and this goroutine ends.
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
	away := map[*Store]bool{} // of ledgers that have moved
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
			w.gone = append(w.gone, id) // it left meanwhile
			w.hurry()
		}
	}
	return nil
}

// wait returns when somebody comes or leaves, and fails when the connection ends:
// nothing is ever said on it.
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

// lost tells the database, on another connection, that this process lives without
// the locks.
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

// unattend says so of the workers of one engine.
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
