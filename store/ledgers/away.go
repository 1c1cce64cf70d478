package ledgers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

const (
	suspectAfter = time.Second            // how long a call waits before the ledger is probed
	probeWithin  = 5 * time.Second        // how long a probe waits for an answer
	probeAgain   = 250 * time.Millisecond // the pause between probes
	settlesIn    = 3 * time.Second        // how long tasks are rather placed elsewhere after a ledger came back
)

// ledger is one of the ledgers. It may be away. If it does not answer, it is probed. If it does
// not answer the probe either, it is away: calls in progress there end, and nobody asks it until
// it answers a probe.
type ledger struct {
	no    int
	s     *Store
	epoch atomic.Int64 // the highest that this process has seen: what has a lower one is an old copy

	prompt atomic.Bool // its last answer to a claim came soon

	mu      sync.Mutex
	name    string          // of its schema
	engine  *postgres.Store // nil if it was found on no server
	at      *server
	live    context.Context // ends when the ledger goes away
	leave   context.CancelFunc
	why     error // why it is away; nil if it is not
	probing bool
	broken  bool      // a connection broke, so the next probe opens one
	away    bool      // it did not answer a probe
	back    time.Time // when it answered again
	writes  bool      // this process writes, so probes check that it can
	barred  error     // why it can only be read; nil if it can be written to
}

func newLedger(s *Store, no int, name string) *ledger {
	l := &ledger{no: no, name: name, s: s, why: store.ErrUnavailable}
	l.live, l.leave = context.WithCancel(s.life)
	l.leave()
	return l
}

// question is what a ledger is asked.
type question[T any] func(ctx context.Context, e *postgres.Store) (T, error)

// ask asks a ledger. If that is away, or on a server that is read-only, the error wraps store.ErrUnavailable.
func ask[T any](ctx context.Context, l *ledger, do question[T]) (answer T, err error) {
	engine, live, err := l.present()
	if err != nil {
		return answer, err
	}
	return asked(ctx, l, engine, live, do)
}

// query is ask for people's questions, which a server that is read-only answers, too. What it answers may be old,
// because such a server may have become the standby of another one. So no decision may rest on it.
func query[T any](ctx context.Context, l *ledger, do question[T]) (answer T, err error) {
	engine, live, err := l.readable()
	if err != nil {
		return answer, err
	}
	return asked(ctx, l, engine, live, do)
}

func asked[T any](
	ctx context.Context, l *ledger, engine *postgres.Store, live context.Context, do question[T],
) (answer T, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(live, cancel)()
	slow := time.AfterFunc(suspectAfter, l.suspect)
	defer slow.Stop()
	answer, err = do(within, engine)
	return answer, l.meant(ctx, live, err)
}

// meant returns what an engine's error means to the caller. within ends when the ledger goes away.
func (l *ledger) meant(ctx, within context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case within.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%w: it went away: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrSchemaMissing): // it was fenced or moved
		l.suspect()
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrReadOnly) && len(*l.s.all.Load()) > 1: // it was demoted
		l.needWrites()
		l.suspect()
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrUnavailable):
		l.doubt()
	case errors.Is(err, store.ErrNotLeader) && l.no == 0 && l.s.homeless.Load(): // the others have the term
		err = fmt.Errorf("%w: the term could not be renewed: %v", store.ErrUnavailable, err)
	}
	_, name := l.whereabouts()
	return fmt.Errorf("ledger %s: %w", name, err)
}

// needWrites makes probes check that the ledger can be written to.
func (l *ledger) needWrites() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = true
}

// whereabouts returns the server and the schema of the ledger, as far as they are known.
func (l *ledger) whereabouts() (at *server, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.name
}

// errAway says that a ledger was not asked at all.
var errAway = errors.New("it is away")

func (l *ledger) present() (*postgres.Store, context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unless(cmp.Or(l.why, l.barred))
}

// readable is present for a ledger that is only read.
func (l *ledger) readable() (*postgres.Store, context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unless(l.why)
}

// unless returns what asks the ledger, unless there is a reason against it. The caller holds the lock.
func (l *ledger) unless(why error) (*postgres.Store, context.Context, error) {
	if why != nil {
		return nil, nil, fmt.Errorf("%w: ledger %s: %w: %w", store.ErrUnavailable, l.name, errAway, why)
	}
	return l.engine, l.live, nil
}

// settles reports whether the ledger has just come back. The workers of other processes may not have noticed, so tasks
// that may live anywhere would wait there.
func (l *ledger) settles() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.back) < settlesIn
}

// found sets where the ledger is. It may not answer there.
func (l *ledger) found(at *server, name string, engine *postgres.Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine != nil {
		_ = l.engine.Close() // its connections are the pool's
	}
	l.leave() // calls in progress are at the old place
	l.at, l.name, l.engine = at, name, engine
	l.why, l.barred = store.ErrUnavailable, nil
	l.comeBack()
}

// comeBack makes the ledger usable again. The caller holds the lock.
func (l *ledger) comeBack() {
	if l.why != nil && l.engine != nil && l.s.life.Err() == nil {
		if l.why = nil; l.away {
			l.away, l.back = false, time.Now()
		}
		l.live, l.leave = context.WithCancel(l.s.life)
	}
}

// lost marks the ledger as away for a reason, and has it probed until it is back.
func (l *ledger) lost(why error) {
	l.mu.Lock()
	l.why = why
	l.leave()
	l.mu.Unlock()
	l.suspect()
}

// suspect starts to probe a ledger, unless a probe is running.
func (l *ledger) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.probing {
		l.probing = l.s.start(l.probe)
	}
}

// probed reports whether a probe is running.
func (l *ledger) probed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.probing
}

// doubt is suspect after a connection broke. The processes that serve the others may outlive their server for a while:
// they go on while their clients do not let them wait. So the probe opens a new connection.
func (l *ledger) doubt() {
	l.mu.Lock()
	l.broken = true
	l.mu.Unlock()
	l.suspect()
}

// probe asks the ledger until it answers.
func (l *ledger) probe() {
	for {
		err := l.try()
		l.mu.Lock()
		l.barred = nil
		if err == nil || l.s.life.Err() != nil {
			l.comeBack()
			l.probing = false
			l.mu.Unlock()
			return
		}
		if errors.Is(err, store.ErrReadOnly) {
			l.comeBack()
			l.barred = err
		} else {
			l.why, l.away = err, true
			l.leave()
		}
		l.mu.Unlock()
		select {
		case <-l.s.life.Done():
		case <-time.After(probeAgain):
		}
	}
}

// try asks the ledger something cheap, and looks for it if it is no longer there.
func (l *ledger) try() error {
	ctx, cancel := context.WithTimeout(l.s.life, probeWithin)
	defer cancel()
	l.mu.Lock()
	engine, writes, at, broken := l.engine, l.writes, l.at, l.broken
	l.mu.Unlock()
	if broken && at != nil {
		if err := at.connects(ctx); err != nil {
			return err
		}
		l.mu.Lock()
		l.broken = false
		l.mu.Unlock()
	}
	err := store.ErrSchemaMissing
	if engine != nil {
		_, err = engine.Records(ctx, store.RecordFilter{Names: []string{""}})
	}
	if err == nil && writes {
		err = engine.Writable(ctx)
	}
	if !errors.Is(err, store.ErrSchemaMissing) {
		return err
	}
	seen, err := l.s.find(ctx)
	if err != nil {
		return err
	}
	return seen.problem(l.no)
}

// connects fails if the server takes no new connections.
func (at *server) connects(ctx context.Context) error {
	c, err := at.connect(ctx)
	if err == nil {
		_ = c.Close(ctx)
		return nil
	}
	var said *pgconn.PgError
	if errors.As(err, &said) && !strings.HasPrefix(said.Code, "57") { // it has too many clients, or the like
		return nil
	}
	return err
}

// connect opens a connection outside the pool.
func (at *server) connect(ctx context.Context) (*pgx.Conn, error) {
	config := at.pool.Config()
	to := config.ConnConfig.Copy()
	if config.BeforeConnect != nil { // it may name another address
		if err := config.BeforeConnect(ctx, to); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, to)
}

// end closes the engine.
func (l *ledger) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine == nil {
		return nil
	}
	return l.engine.Close()
}
