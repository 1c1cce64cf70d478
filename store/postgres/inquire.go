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
	inquireAgain  = 10 * time.Millisecond // at first; then later and later
)

// Unanswered is the error of an enqueue of which it is not known whether it is stored.
type Unanswered struct {
	Process uint32 // of the server, that was to store it, as the client was told
	err     error
}

func (e *Unanswered) Error() string { return e.err.Error() }

// Unwrap returns what went wrong.
func (e *Unanswered) Unwrap() error { return e.err }

// cancelled is how long a connection that was given up stays, for its statement to be cancelled: a pooler cancels
// nothing of one that has gone.
const cancelled = 2 * time.Second

// abandon takes back, a little later, what the kernel has not sent by then of a connection that was given up: closed in
// the usual way, it would be sent again for minutes, and might be stored after everybody has found that it was not.
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

// inquire finds out what became of an enqueue that was not answered: its tasks
// are there, or the server's process that was to store them has ended without.
// While neither can be said it asks again for a while; then what was lost stays
// unknown.
//
// A task's id says more than the transaction's: a server that crashed, or its
// successor, gives ids of transactions that never reached the disk out again.
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

// hasKey reports whether a task may be left out of what is stored.
func hasKey(t store.NewTask) bool { return t.Key != "" }

// mayAwait reports whether a task that is stored may have been added, or await
// the end of another.
func mayAwait(t store.NewTask) bool { return hasKey(t) && t.OnConflict == store.Rerun }

// ask returns whether a process of the server has ended, and how many of the
// tasks are stored. It looks for them in a statement that begins after the end.
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
