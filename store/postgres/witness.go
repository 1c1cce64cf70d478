package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

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
func (s *Store) Witnesses() bool { return !s.witness.pooled.Load() }

// witness holds a lock in the name of each worker of this process, on a connection
// of their own, which the server closes when the process dies. The server releases
// the locks with it, and whoever leads sees that.
type witness struct {
	s      *Store
	mu     sync.Mutex
	ids    map[store.ID]bool // workers that live; true: their lock is held
	gone   uuids             // workers that left, and whose locks are held still
	wake   chan struct{}
	cancel context.CancelFunc // nil: nothing runs
	ended  chan struct{}
	closed bool
	pooled atomic.Bool // a pooler stands between
}

// keep has a worker attended from now on. It does not wait for that.
func (w *witness) keep(id store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.ids[id]; known || w.closed {
		return
	}
	if w.ids == nil {
		w.ids, w.wake = map[store.ID]bool{}, make(chan struct{}, 1)
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
func (w *witness) leave(id store.ID) {
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

func (w *witness) hurry() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *witness) close() {
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
func (w *witness) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	for ctx.Err() == nil {
		err := w.attend(ctx)
		if err == nil {
			return
		}
		w.s.known.forget() // the server may be another one by now
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

// attend holds the locks on one connection until that ends. Nil: nobody is left.
func (w *witness) attend(ctx context.Context) error {
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
func (w *witness) connect(ctx context.Context) (*pgx.Conn, error) {
	within, cancel := context.WithTimeout(ctx, attendWithin)
	defer cancel()
	c, err := pgx.ConnectConfig(within, w.s.pool.Config().ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	var pid uint32
	if err = c.QueryRow(within, w.s.sql["whoami"]).Scan(&pid); err == nil && pid != c.PgConn().PID() {
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
func (w *witness) news() (fresh, gone uuids, over bool) {
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

func (w *witness) change(ctx context.Context, c *pgx.Conn, fresh, gone uuids) error {
	ctx, cancel := context.WithTimeout(ctx, attendWithin)
	defer cancel()
	for _, id := range gone {
		if _, err := c.Exec(ctx, w.s.sql["unlock"], id); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if _, err := c.Exec(ctx, w.s.sql["attend"], fresh); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range fresh {
		if _, known := w.ids[id]; known {
			w.ids[id] = true
		} else {
			w.gone = append(w.gone, id) // it left meanwhile
			w.hurry()
		}
	}
	return nil
}

// wait returns when somebody comes or leaves, and fails when the connection ends:
// nothing is ever said on it.
func (w *witness) wait(ctx context.Context, c *pgx.Conn) error {
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
func (w *witness) lost(ctx context.Context) {
	w.mu.Lock()
	var ids uuids
	for id, held := range w.ids {
		if held {
			ids = append(ids, id)
			w.ids[id] = false
		}
	}
	w.gone = nil
	w.mu.Unlock()
	for len(ids) > 0 && ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, attendWithin)
		_, err := w.s.pool.Exec(within, w.s.sql["unattend"], ids)
		if cancel(); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(attendAgain / 5):
		}
	}
}
