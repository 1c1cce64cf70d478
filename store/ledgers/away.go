package ledgers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

const (
	suspectAfter = time.Second            // a ledger is probed if a call takes longer
	probeWithin  = 5 * time.Second        // timeout of a probe
	dialWithin   = time.Second            // how long a probe waits for a new connection
	probeAgain   = 250 * time.Millisecond // longest pause between the first probes
	probeMost    = time.Second            // longest pause between later ones
	settlesIn    = 3 * time.Second        // how long new tasks avoid a ledger after it came back
)

// ledger is one ledger of the queue. If it does not answer, it is probed. If the probe gets no answer either, the
// ledger is away: calls in progress end, and new calls fail at once until a probe succeeds.
type ledger struct {
	no    int
	s     *Store
	epoch atomic.Int64 // the highest that this process has seen; schemas with a lower one are old copies

	prompt atomic.Bool // its last answer to a claim was fast

	mu      sync.Mutex
	name    string          // of its schema
	engine  *postgres.Store // nil until the ledger is found
	at      *server
	live    context.Context // ends when the ledger goes away
	leave   context.CancelFunc
	why     error // why it is away, or nil
	probing bool
	broken  bool      // a connection broke, so the next probe opens a new one
	away    bool      // a probe failed
	back    time.Time // when it last came back
	writes  bool      // probes check that it is writable
	barred  error     // why it is read-only, or nil

	conflicts int64 // of its engines before this one
}

func newLedger(s *Store, no int, name string) *ledger {
	l := &ledger{no: no, name: name, s: s, why: store.ErrUnavailable}
	l.live, l.leave = context.WithCancel(s.life)
	l.leave()
	return l
}

// question is a call to a ledger's engine.
type question[T any] func(ctx context.Context, e *postgres.Store) (T, error)

// ask calls a ledger. If the ledger is away or its server is read-only, the error wraps store.ErrUnavailable.
func ask[T any](ctx context.Context, l *ledger, do question[T]) (answer T, err error) {
	engine, live, err := l.present()
	if err != nil {
		return answer, err
	}
	return asked(ctx, l, engine, live, do)
}

// query is ask for calls that only inform people. A read-only server answers them, too. Its data may be stale, because
// the server may be a standby by now, so no decision may depend on the answer.
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

// meant translates an error of the engine for the caller. within ends when the ledger goes away.
func (l *ledger) meant(ctx, within context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case within.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%w: it went away: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrSchemaMissing): // the ledger was fenced or moved
		l.suspect()
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrReadOnly) && len(*l.s.all.Load()) > 1: // the server was demoted
		l.needWrites()
		l.suspect()
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case errors.Is(err, store.ErrUnavailable):
		l.doubt()
	case errors.Is(err, store.ErrNotLeader) && l.no == 0 && l.s.homeless.Load(): // the other ledgers have the term
		err = fmt.Errorf("%w: the term could not be renewed: %v", store.ErrUnavailable, err)
	}
	_, name := l.whereabouts()
	return fmt.Errorf("ledger %s: %w", name, err)
}

// needWrites makes probes check that the ledger is writable.
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

// errAway marks the errors of calls that did not reach the ledger because it is away.
var errAway = errors.New("it is away")

func (l *ledger) present() (*postgres.Store, context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unless(cmp.Or(l.why, l.barred))
}

// readable is present for calls that only read.
func (l *ledger) readable() (*postgres.Store, context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unless(l.why)
}

// unless returns the engine and the context for calls, unless why is set. The caller holds the lock.
func (l *ledger) unless(why error) (*postgres.Store, context.Context, error) {
	if why != nil {
		return nil, nil, fmt.Errorf("%w: ledger %s: %w: %w", store.ErrUnavailable, l.name, errAway, why)
	}
	return l.engine, l.live, nil
}

// settles reports whether the ledger came back only recently. Workers of other processes may not have noticed yet, so
// tasks that can be stored anywhere should go elsewhere.
func (l *ledger) settles() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.back) < settlesIn
}

// found sets the ledger's location. The server may not answer.
func (l *ledger) found(at *server, name string, engine *postgres.Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine != nil {
		l.conflicts += l.engine.Conflicts()
		_ = l.engine.Close() // its connections belong to the pool
	}
	l.leave() // ends calls to the old location
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

// lost marks the ledger as away, for a reason, and starts a probe.
func (l *ledger) lost(why error) {
	l.mu.Lock()
	l.why = why
	l.leave()
	l.mu.Unlock()
	l.suspect()
}

// suspect starts a probe, unless one is running.
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

// doubt is suspect for a ledger whose connection broke. The backends of a killed server can keep answering on other
// connections for a while, so the probe opens a new one.
func (l *ledger) doubt() {
	l.mu.Lock()
	l.broken = true
	l.mu.Unlock()
	l.suspect()
}

// probe queries the ledger until it answers.
func (l *ledger) probe() {
	began := time.Now()
	for {
		tried, err := l.try()
		l.mu.Lock()
		switch {
		case l.s.life.Err() != nil || err == nil && !l.broken:
			l.barred = nil
			l.comeBack()
			l.probing = false
			l.mu.Unlock()
			return
		case err == nil: // a connection broke during the probe
		case l.engine != tried: // it was found elsewhere during the probe
		case errors.Is(err, store.ErrReadOnly):
			l.comeBack()
			l.barred = err
		default:
			l.why, l.away, l.barred = err, true, nil
			l.leave()
		}
		l.mu.Unlock()
		select {
		case <-l.s.life.Done():
		case <-time.After(l.pause(time.Since(began))):
		}
	}
}

// pause returns how long to wait before the next probe of a ledger that has been probed for some time. The pause grows,
// and it is random, so that many processes do not probe a recovering server at the same moment. The ledgers of a server
// are probed together, so that they share a refused connection.
func (l *ledger) pause(probed time.Duration) time.Duration {
	longest := min(max(probed/4, probeAgain), probeMost)
	pause := longest/2 + rand.N(longest/2)
	at, _ := l.whereabouts()
	if at == nil {
		return pause
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if next := time.Until(at.probes); next > 0 && next <= longest {
		return next
	}
	at.probes = time.Now().Add(pause)
	return pause
}

// try makes a cheap query by an engine, which it returns. If the schema is gone, it looks for the ledger on all
// servers.
func (l *ledger) try() (*postgres.Store, error) {
	l.mu.Lock()
	engine, writes, at, broken := l.engine, l.writes, l.at, l.broken
	l.broken = false
	l.mu.Unlock()
	if broken && at != nil {
		if err := at.connects(l.s.life); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.broken = true
			return engine, err
		}
	}
	ctx, cancel := context.WithTimeout(l.s.life, probeWithin)
	defer cancel()
	err := store.ErrSchemaMissing
	if engine != nil {
		_, err = engine.Records(ctx, store.RecordFilter{Names: []string{""}})
	}
	if err == nil && writes {
		err = engine.Writable(ctx)
	}
	if !errors.Is(err, store.ErrSchemaMissing) {
		return engine, err
	}
	seen, err := l.s.find(ctx)
	if err != nil {
		return engine, err
	}
	return engine, seen.problem(l.no)
}

// connects fails if the server refuses a new connection because it does not run. Other errors prove nothing: it may
// have too many clients, or take long to log them in. The ledgers of a server share the result of a dial that failed.
func (at *server) connects(ctx context.Context) error {
	at.dialing.Lock()
	defer at.dialing.Unlock()
	if time.Since(at.failedAt) < probeAgain {
		return at.refused
	}
	within, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	c, err := postgres.Dial(within, at.pool)
	if err == nil {
		_ = c.Close(within)
		return nil
	}
	if !refuses(err) {
		err = nil
	}
	at.refused, at.failedAt = err, time.Now()
	return err
}

func refuses(err error) bool {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return strings.HasPrefix(said.Code, "57P") // it shuts down, or starts
	}
	return slices.ContainsFunc([]error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, io.EOF, io.ErrUnexpectedEOF,
	}, func(one error) bool { return errors.Is(err, one) })
}

func (l *ledger) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine == nil {
		return nil
	}
	return l.engine.Close()
}
