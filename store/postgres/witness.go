package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/internal/witness"
	"github.com/tuskqueue/tusk/store"
)

const (
	attendWithin = 5 * time.Second        // limit for one statement about the locks
	attendAgain  = 500 * time.Millisecond // pause after a connection was lost
	poolerAgain  = time.Minute            // pause after a connection that went through a pooler
)

var _ store.Witness = (*Store)(nil)

// errPooled says that this process has no session of its own, because of a pooler.
var errPooled = errors.New("a pooler stands between: workers live by their beats alone")

// Witnesses implements store.Witness. Before the first connection it returns true.
func (s *Store) Witnesses() bool { return !s.attendant.pooled.Load() }

// Attendant holds a lock for each worker of this process, on a connection of its own. When the process dies, the
// server closes the connection and releases the locks, which the leader detects. Several engines on a pool can share
// one Attendant.
type Attendant struct {
	pool   *pgxpool.Pool
	locks  *witness.Keeper[attended]
	pooled atomic.Bool // connections go through a pooler
}

// attended is a worker of an engine.
type attended struct {
	s  *Store
	id store.ID
}

// NewAttendant creates an Attendant for the engines on a pool. It connects once there is a worker.
func NewAttendant(pool *pgxpool.Pool) *Attendant {
	w := &Attendant{pool: pool}
	w.locks = witness.New[attended](w, attendWithin)
	return w
}

// Close ends the connection. From then on, workers are judged by their beats alone.
func (w *Attendant) Close() { w.locks.Close() }

// byEngine groups the ids of workers by engine.
func byEngine(all []attended) map[*Store]uuids {
	parts := map[*Store]uuids{}
	for _, one := range all {
		parts[one.s] = append(parts[one.s], one.id)
	}
	return parts
}

// idsOf returns the live workers of an engine.
func (w *Attendant) idsOf(s *Store) (ids []store.ID) {
	for _, one := range w.locks.Workers() {
		if one.s == s {
			ids = append(ids, one.id)
		}
	}
	return ids
}

// leaveAll removes the workers of an engine.
func (w *Attendant) leaveAll(s *Store) {
	for _, id := range w.idsOf(s) {
		w.locks.Leave(attended{s, id})
	}
}

// Connect opens a connection and makes sure that it is a session of the server. A pooler invents process ids of its
// own, and a lock that is taken through it belongs to no client.
func (w *Attendant) Connect(ctx context.Context) (witness.Session[attended], error) {
	c, err := Dial(ctx, w.pool)
	if err != nil {
		return nil, err
	}
	var pid uint32
	if err = c.QueryRow(ctx, "select pg_catalog.pg_backend_pid()").Scan(&pid); err == nil && pid != c.PgConn().PID() {
		err = errPooled
	}
	if err != nil {
		keeper{c}.Close()
		return nil, err
	}
	return keeper{c}, nil
}

// Failed makes the engines forget what they know about their server: the address may belong to another one by now.
func (w *Attendant) Failed(err error) (pause time.Duration) {
	for s := range byEngine(w.locks.Workers()) {
		s.known.forget()
	}
	w.pooled.Store(errors.Is(err, errPooled))
	if w.pooled.Load() {
		return poolerAgain
	}
	return attendAgain
}

// Disown records in the database that workers of this process are alive without their locks.
func (w *Attendant) Disown(ctx context.Context, workers []attended) error {
	for s, ids := range byEngine(workers) {
		if err := s.exec(ctx, "unattend", ids); err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}

// keeper is a connection that holds locks.
type keeper struct{ *pgx.Conn }

// Close ends the connection.
func (c keeper) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), attendWithin)
	defer cancel()
	c.Conn.Close(ctx)
}

// Change releases and takes locks. The ledger of an engine may have moved away.
func (c keeper) Change(ctx context.Context, release, take []attended) (taken []attended, err error) {
	for _, one := range release {
		if _, err := c.Exec(ctx, one.s.sql["unlock"], [16]byte(one.id)); err != nil && !isMissing(err) {
			return nil, err
		}
	}
	for s, ids := range byEngine(take) {
		var batch pgx.Batch
		batch.Queue(s.sql["lock_workers"], ids)
		batch.Queue(s.sql["attend"], ids)
		missing := false
		if err := c.SendBatch(ctx, &batch).Close(); err != nil {
			if missing = isMissing(err); !missing {
				return taken, err
			}
		}
		for _, id := range ids {
			if !missing {
				taken = append(taken, attended{s, id})
			} else if _, err := c.Exec(ctx, s.sql["unlock"], [16]byte(id)); err != nil { // the batch may have taken it
				return taken, err
			}
		}
	}
	return taken, nil
}

// Wait waits for the end of the connection. The server sends no notifications on it.
func (c keeper) Wait(ctx context.Context, wake <-chan struct{}) error {
	quiet, cancel := context.WithCancel(ctx)
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		select {
		case <-wake:
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
