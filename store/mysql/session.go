package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/store"
)

// tries is how often a transaction is tried that the server rolled back, or whose connection broke before it could have
// been committed.
const tries = 8

// stmt is a statement with its arguments, and a function for each of its rows.
type stmt struct {
	text string
	args []any
	each func(*sql.Rows) error // nil if it returns no rows
}

// runner is what a session needs of a connection or a user's transaction.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// session is a connection with a transaction on it. It gathers statements and sends them with the next query or with
// the commit, in one round trip if the connection takes several statements at once.
type session struct {
	store *Store
	ctx   context.Context
	on    runner
	multi bool
	begin []stmt // begins the transaction; sent before anything else
	buf   []stmt
}

// do gathers a statement.
func (s *session) do(text string, args ...any) { s.buf = append(s.buf, stmt{text: text, args: args}) }

// ask sends what was gathered, and a query.
func (s *session) ask(each func(*sql.Rows) error, text string, args ...any) error {
	s.buf = append(s.buf, stmt{text, args, each})
	return s.flush()
}

// flush sends what was gathered.
func (s *session) flush() error {
	pending := append(s.begin, s.buf...)
	s.begin, s.buf = nil, nil
	for len(pending) > 0 {
		n := s.fits(pending)
		if err := s.send(pending[:n]); err != nil {
			return s.tooLarge(err, pending[:n])
		}
		pending = pending[n:]
	}
	return nil
}

// fits returns how many of the statements can be sent at once, at least one.
func (s *session) fits(pending []stmt) int {
	if !s.multi {
		return 1
	}
	size := 0
	for i, p := range pending {
		if size += len(p.text) + sizeOf(p.args); size > s.store.atOnce() {
			return max(i, 1)
		}
	}
	return len(pending)
}

func (s *session) send(stmts []stmt) error {
	if slices.ContainsFunc(stmts, s.store.exceeds) { // the server would close the connection before it says why
		return driversql.ErrPktTooLarge
	}
	s.store.trips.Add(1)
	var texts []string
	var args []any
	var asked []func(*sql.Rows) error
	for _, one := range stmts {
		texts = append(texts, one.text)
		args = append(args, one.args...)
		if one.each != nil {
			asked = append(asked, one.each)
		}
	}
	text := strings.Join(texts, ";\n")
	if len(asked) == 0 {
		_, err := s.on.ExecContext(s.ctx, text, args...)
		return err
	}
	rows, err := s.on.QueryContext(s.ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	// Statements after the last query may fail, too.
	for i, more := 0, true; more; i, more = i+1, rows.NextResultSet() {
		each := asked[min(i, len(asked)-1)] // a procedure returns several results
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
	}
	return rows.Err()
}

// write runs a transaction. It repeats the transaction if the server rolled it back, or if the connection broke before
// the commit was sent. Unless the server itself refused the commit, an error after it was sent leaves open whether it
// was stored (see unsure). All other errors mean that nothing was stored: they are store.ErrNotCommitted, or say so
// themselves (see refused).
func (s *Store) write(ctx context.Context, fn func(w *work) error) error {
	return s.again(ctx, patientTries, func() (committing bool, err error) { return s.attempt(ctx, false, fn) })
}

const (
	patientTries = 2 // of a transaction that waits for locks
	// Of one that does not wait: the engine's other transactions hold a lock for milliseconds.
	hastyTries = tries
	fewTries   = 4 // of one whose caller retries
	oneTry     = 1 // of one with an alternative
)

// hurry is like write, for work of the engine that must not wait for a user's transaction. It fails at once if it meets
// a lock (see held), and gives up after the given number of tries. By then the engine's own transactions have released
// their locks.
func (s *Store) hurry(ctx context.Context, tries int, fn func(w *work) error) error {
	return s.again(ctx, tries, func() (committing bool, err error) { return s.attempt(ctx, true, fn) })
}

// again calls fn, which runs a transaction once and reports whether the commit was sent. It gives up after locked tries
// that met a lock.
func (s *Store) again(ctx context.Context, locked int, fn func() (committing bool, err error)) error {
	if err := s.ready(ctx); err != nil {
		return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	for n := 1; ; n++ {
		committing, err := fn()
		switch {
		case err == nil:
			return nil
		case committing && (unsure(err) || ctx.Err() != nil):
			return err
		case n == tries || n >= locked && held(err) || ctx.Err() != nil || !passing(err) && !lostConnection(err):
			return refused(err)
		case codeOf(err) == codeDeadlock:
			s.deadlocks.Add(1)
		case codeOf(err) == codeDuplicate:
			s.places.renew()
		}
		pause(ctx, n)
	}
}

// refused marks the error of a transaction that was not committed. Errors that already say so stay unchanged.
func refused(err error) error {
	if decided(err) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrNotCommitted, explain(err))
}

// pause waits a random time, which grows with n.
func pause(ctx context.Context, n int) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(time.Millisecond << min(n, 8))):
	}
}

// attempt runs a transaction once. It reports whether the commit was sent.
func (s *Store) attempt(ctx context.Context, hasty bool, fn func(w *work) error) (committing bool, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	w := &work{session: session{store: s, ctx: ctx, on: conn, multi: s.multi}, hasty: hasty}
	w.begin = append(s.isolate(), stmt{text: "start transaction"})
	if err = fn(w); err == nil {
		err = w.judge(w.finale())
		committing = !errors.Is(err, driver.ErrBadConn) // that error says that nothing was sent
	}
	if err != nil {
		var restore []string
		if w.limited {
			restore = append(restore, lockWait(s.lockWait))
		}
		abandon(ctx, conn, err, restore...)
		return committing, err
	}
	for _, fn := range w.after {
		fn()
	}
	s.wakes.wake(w.woken)
	return committing, nil
}

// isolate returns the statements that must come before a transaction.
func (s *Store) isolate() []stmt {
	if s.isolated {
		return nil
	}
	return []stmt{{text: "set transaction isolation level read committed"}}
}

// call runs a procedure that is a transaction by itself. It returns how many tasks the procedure handled, and whether
// the call was sent.
func (s *Store) call(
	ctx context.Context, each func(*sql.Rows) error, name string, args ...any,
) (tasks int, sent bool, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	t := session{store: s, ctx: ctx, on: conn, multi: s.multi, begin: s.isolate()}
	tasks, err = t.call(each, name, args...)
	if err != nil {
		abandon(ctx, conn, err)
	}
	return tasks, !errors.Is(err, driver.ErrBadConn), err
}

// errInterrupted says that a procedure has not reported its end. Whether it ended is as unknown as after a broken
// connection.
var errInterrupted = fmt.Errorf("a procedure was interrupted: %w", driversql.ErrInvalidConn)

// call runs a procedure and ensures that it ran to its end: if a procedure is killed after it has sent anything, the
// client gets no error. call returns how many tasks the procedure handled.
func (s *session) call(each func(*sql.Rows) error, name string, args ...any) (tasks int, err error) {
	name += s.store.program.mark
	ended := ""
	err = s.ask(func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if columns[0] == "ended" {
			return rows.Scan(&ended, &tasks)
		}
		return each(rows)
	}, "call "+name+"("+marks(len(args))+")", args...)
	if err == nil && ended != name {
		return 0, errInterrupted
	}
	return tasks, err
}

// abandon rolls back after an error and restores the session, or drops the connection, which has the same effect. A
// connection to a server that takes no writes is dropped: if another server has become the primary, a new connection
// leads there.
func abandon(ctx context.Context, conn *sql.Conn, why error, restore ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	lost := demoted(why)
	for _, text := range append([]string{"rollback"}, restore...) {
		if !lost {
			_, err := conn.ExecContext(ctx, text)
			lost = err != nil
		}
	}
	if lost {
		drop(conn)
	}
}

// drop closes a connection instead of returning it to its pool.
func drop(conn *sql.Conn) {
	conn.Raw(func(any) error { return driver.ErrBadConn }) // the function exists only to return this error
}

// view runs queries on one snapshot, without any locks. It begins again if a table was altered after the snapshot was
// made, as when days are added.
func (s *Store) view(ctx context.Context, fn func(w *work) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := s.look(ctx, fn)
		if err == nil || n == tries || ctx.Err() != nil || !lostConnection(err) && !passing(err) {
			return err
		}
		pause(ctx, n)
	}
}

func (s *Store) look(ctx context.Context, fn func(w *work) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	w := &work{session: session{store: s, ctx: ctx, on: conn, multi: s.multi}}
	w.do("set transaction isolation level repeatable read")
	w.do("start transaction read only")
	err = fn(w)
	w.buf = nil
	if err == nil {
		w.do("commit")
		err = w.flush()
	}
	if err != nil {
		abandon(ctx, conn, err)
	}
	return err
}
