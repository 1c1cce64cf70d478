package postgres

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

const (
	inquireWithin = 3 * time.Second
	inquireAgain  = 10 * time.Millisecond // the first pause, which doubles each time
)

// Unanswered is the error of an enqueue whose result is unknown: its tasks may or may not be stored.
type Unanswered struct {
	Process uint32 // the id of the server's process that should have stored the tasks, as the client knows it
	err     error
}

func (e *Unanswered) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Unanswered) Unwrap() error { return e.err }

// cancelled is how long an abandoned connection stays open so that its statement can be cancelled. A pooler does not
// cancel the statement of a closed connection.
const cancelled = 2 * time.Second

// abandon resets a connection that was given up, after a moment. This drops the data that the kernel has not sent
// yet. After an ordinary close, the kernel would keep sending it for minutes, and the tasks might be stored after
// inquire has found that they were not.
func abandon(c *pgx.Conn) {
	if !c.IsClosed() {
		return
	}
	under := c.PgConn().Conn()
	if secret, is := under.(*tls.Conn); is {
		under = secret.NetConn()
	}
	if plain, is := under.(*net.TCPConn); is {
		time.AfterFunc(cancelled, func() {
			_ = plain.SetLinger(0)
			_ = plain.Close()
		})
	}
}

// inquire finds out the result of an enqueue without an answer: either its tasks are stored, or the server's process
// that should have stored them has ended without doing so. While neither is certain, it retries for a while. After
// that it returns lost, because the result stays unknown.
//
// It looks for the ids of tasks, because the id of the transaction is not reliable: a server that crashed, or its
// successor, reuses the ids of transactions that never reached the disk.
func (s *Store) inquire(
	ctx context.Context, backend uint32, tasks []store.NewTask, lost error,
) ([]store.Enqueued, error) {
	if slices.ContainsFunc(tasks, mayAwait) {
		return nil, lost
	}
	within, cancel := context.WithTimeout(ctx, inquireWithin)
	defer cancel()
	for wait := inquireAgain; ; wait = min(2*wait, time.Second) {
		over, n, err := s.ask(within, backend, tasks)
		switch {
		case err == nil && n == len(tasks):
			return added(tasks), nil
		case err == nil && over && n == 0 && !slices.ContainsFunc(tasks, hasKey):
			return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, lost)
		case err == nil && over:
			return nil, lost
		}
		select {
		case <-within.Done():
			return nil, lost
		case <-time.After(wait):
		}
	}
}

// hasKey reports whether a task has a key, so that it may be skipped.
func hasKey(t store.NewTask) bool { return t.Key != "" }

// mayAwait reports whether a task may be stored in order to await the end of
// another, instead of being added.
func mayAwait(t store.NewTask) bool { return hasKey(t) && t.OnConflict == store.Rerun }

// ask returns whether a process of the server has ended, and how many of the
// tasks are stored. It looks for the tasks in a later statement.
func (s *Store) ask(ctx context.Context, backend uint32, tasks []store.NewTask) (over bool, stored int, err error) {
	c, err := s.acquire(ctx)
	if err != nil {
		return false, 0, err
	}
	defer c.Release()
	if err = c.QueryRow(ctx, s.sql["is_over"], int32(backend), int32(c.Conn().PgConn().PID())).Scan(&over); err != nil {
		return false, 0, err
	}
	ids := make(uuids, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	err = c.QueryRow(ctx, s.sql["count_stored"], ids).Scan(&stored)
	return over, stored, err
}
