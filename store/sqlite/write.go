package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// writer owns the connection that writes. Calls that arrive while a transaction is being made durable share the next
// one, so that many callers cost one flush to disk. Each call has a savepoint, so that the error of one does not
// affect others.
type writer struct {
	store    *Store
	conn     *direct
	calls    chan *call
	beats    chan *call // heartbeats, which have a deadline, need not wait for the calls before them
	peeks    chan chan<- bool
	full     bool          // whether synchronous is full rather than normal
	patience time.Duration // how long it waits for other writers
	looked   time.Time     // when the file was last found in its place
	version  int64         // data_version, which other connections' commits change
	stands   stands
}

// Limits of one transaction, so that a heartbeat does not wait long for it. A call that exceeds bulk alone is the last
// one.
const (
	sharing = 256  // calls
	bulk    = 2000 // tasks and outcomes of calls
)

// call is one method's part of a transaction. fn may run more than once.
type call struct {
	ctx     context.Context
	durable bool // must be on disk before the call returns
	size    int  // how many tasks or outcomes it writes, as far as that is known
	fn      func(*work) error
	state   atomic.Int32
	err     error
	done    chan struct{}
}

const (
	waiting   int32 = iota
	taken           // the writer works on it
	withdrawn       // its caller has given up
)

func newWriter(s *Store, conn *direct) *writer {
	return &writer{store: s, conn: conn, calls: make(chan *call, sharing), beats: make(chan *call, sharing),
		peeks: make(chan chan<- bool), full: true, patience: busyTimeout}
}

// write runs fn in a transaction and returns when that is committed. A durable transaction survives a loss of power.
// Any other transaction survives the death of every process, and becomes durable with the next durable one. That is
// enough for claims and heartbeats, because a lost claim leaves its tasks available.
func (s *Store) write(ctx context.Context, durable bool, fn func(*work) error) error {
	return s.submit(s.writer.calls, &call{ctx: ctx, durable: durable, size: 1, fn: fn})
}

// writeMany is a durable write of many tasks or outcomes.
func (s *Store) writeMany(ctx context.Context, size int, fn func(*work) error) error {
	return s.submit(s.writer.calls, &call{ctx: ctx, durable: true, size: size, fn: fn})
}

// submit hands a call to the writer and waits for its end.
func (s *Store) submit(to chan<- *call, c *call) error {
	ctx := c.ctx
	if err := s.check(ctx); err != nil {
		return notCommitted(err)
	}
	c.done = make(chan struct{})
	select {
	case <-s.closing:
		return notCommitted(ErrClosed)
	case <-ctx.Done():
		return notCommitted(ctx.Err())
	case to <- c:
	}
	select {
	case <-c.done:
	case <-s.closing:
		if c.state.CompareAndSwap(waiting, withdrawn) {
			return notCommitted(ErrClosed)
		}
		<-c.done
	case <-ctx.Done():
		if c.state.CompareAndSwap(waiting, withdrawn) {
			return notCommitted(ctx.Err())
		}
		<-c.done
	}
	return c.err
}

// notCommitted marks an error as one after which nothing was stored, unless the error says so itself.
func notCommitted(err error) error {
	for _, clear := range []error{store.ErrNotCommitted, store.ErrWorkerDead, store.ErrNotLeader, store.ErrConflict} {
		if errors.Is(err, clear) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
}

// run is the writer's goroutine.
func (w *writer) run() {
	defer w.conn.close()
	for {
		select {
		case <-w.store.closing:
			return
		case answer := <-w.peeks:
			answer <- w.changed()
		case first := <-w.beats:
			w.share(first)
		case first := <-w.calls:
			w.share(first)
		}
	}
}

// next returns a waiting call, heartbeats first, or nil if none waits.
func (w *writer) next(onlyBeats bool) *call {
	select {
	case c := <-w.beats:
		return c
	default:
	}
	if onlyBeats {
		return nil
	}
	select {
	case c := <-w.calls:
		return c
	default:
		return nil
	}
}

// share adds the other waiting calls to the first call's transaction.
func (w *writer) share(first *call) {
	var calls []*call
	size := 0
	for next := first; next != nil; next = w.next(size >= bulk) {
		if next.state.Load() == waiting {
			calls, size = append(calls, next), size+next.size
		}
		if len(calls) >= sharing {
			break
		}
	}
	if len(calls) == 0 {
		return
	}
	err := w.conn.use(func() error {
		if !w.together(calls) {
			// One of them broke the shared transaction, so each gets its own.
			for _, c := range calls {
				w.together([]*call{c})
			}
		}
		return nil
	})
	for _, c := range calls {
		if err != nil {
			c.err = explain(err)
		}
		close(c.done)
	}
}

// together runs calls in one transaction, except those whose callers gave up while it waited to begin. It returns
// false, with nothing written, if the error of one of several calls has ended the transaction.
func (w *writer) together(calls []*call) bool {
	w.store.counts.roundTrips.Add(1)
	durable := false
	for _, c := range calls {
		c.err = nil
		durable = durable || c.durable
	}
	var t *transaction
	err := w.begin(durable)
	if calls = present(calls); len(calls) == 0 {
		w.rollback()
		return true
	}
	if err == nil {
		t, err = w.each(calls)
	}
	if errors.Is(err, errBroken) && len(calls) > 1 {
		w.rollback()
		return false
	}
	if err != nil {
		w.rollback()
		err = notCommitted(explain(err))
	} else if _, err = w.conn.exec(context.Background(), "commit"); err != nil {
		w.rollback()
		if codeOf(err) == codeIOErr {
			err = explain(err) // it may or may not have reached the disk
		} else {
			err = notCommitted(explain(err))
		}
	}
	for _, c := range calls {
		if err != nil {
			c.err = err
		}
	}
	if err == nil {
		w.store.kinds.add(t.fresh)
		w.stands.add(t.stood)
		for name := range t.woken {
			w.store.bell.Ring(name)
		}
	}
	return true
}

// present returns the calls whose callers have not given up. From now on these wait for the answer.
func present(calls []*call) (there []*call) {
	for _, c := range calls {
		if c.state.CompareAndSwap(waiting, taken) || c.state.Load() == taken {
			there = append(there, c)
		}
	}
	return there
}

// errBroken says that a transaction is gone, or in doubt.
var errBroken = errors.New("transaction was rolled back")

// each runs the calls one after another, and keeps their errors apart.
func (w *writer) each(calls []*call) (*transaction, error) {
	ctx := context.Background()
	t := &transaction{session: w.conn, ctx: ctx, store: w.store}
	if err := t.open(); err != nil {
		return nil, err
	}
	if err := w.stands.meet(ctx, w.conn, t.ledger); err != nil {
		return nil, err
	}
	t.stands = &w.stands
	if len(calls) == 1 {
		if err := t.do(calls[0].ctx, calls[0].fn); err != nil {
			return nil, err
		}
		return t, t.stamp()
	}
	for _, c := range calls {
		if _, err := w.conn.exec(ctx, "savepoint call"); err != nil {
			return nil, err
		}
		if err := t.do(c.ctx, c.fn); err != nil {
			c.err = notCommitted(explain(err))
			clear(t.fresh)
			clear(t.stood)
			if _, err := w.conn.exec(ctx, "rollback to call"); err != nil {
				return nil, errors.Join(errBroken, err)
			}
		}
		if _, err := w.conn.exec(ctx, "release call"); err != nil {
			return nil, errors.Join(errBroken, err)
		}
	}
	return t, t.stamp()
}

// begin starts a transaction as the file's only writer.
func (w *writer) begin(durable bool) error {
	if err := w.inPlace(); err != nil {
		return err
	}
	if durable != w.full {
		mode := "pragma synchronous = normal"
		if durable {
			mode = "pragma synchronous = full"
		}
		if err := w.conn.run(mode); err != nil {
			return err
		}
		w.full = durable
	}
	err := patiently(w.patience, func() error {
		_, err := w.conn.exec(context.Background(), "begin immediate")
		return err
	})
	if isBusy(err) {
		return fmt.Errorf("another transaction has been writing for %s: %w", w.patience, err)
	}
	return err
}

func (w *writer) rollback() {
	// An error means that there is no transaction any longer, which is the aim.
	w.conn.exec(context.Background(), "rollback")
}

// changed reports whether any other connection has committed since changed was last called: another process, or a
// user's transaction.
func (w *writer) changed() bool {
	changed := false
	w.conn.use(func() error {
		return w.conn.each(context.Background(), "pragma data_version", func(r row) error {
			version := r.int(0)
			changed = w.version != 0 && version != w.version
			w.version = version
			return nil
		})
	})
	return changed
}
