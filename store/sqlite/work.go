package sqlite

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// transaction is the state of the calls that share a transaction.
type transaction struct {
	session
	ctx    context.Context
	store  *Store
	now    int64
	high   int64          // the stored high-water mark of the clock
	place  int64          // the last place given out in any line
	moved  bool           // this transaction has given out a place
	wrote  bool           // somebody wrote
	ledger int64          // the ledger's random number
	fresh  map[name]int64 // kinds that are not committed yet
	stood  map[turn]stand // rows of tusk_turn that are not committed yet
	// The rows of tusk_turn that the writer remembers; nil in a user's transaction.
	stands *stands
	// What to ring for: queues with new tasks, and names of package bell.
	woken map[string]bool
}

// open reads the clock, the ledger's number, and the last place given out.
func (t *transaction) open() error {
	r, err := one(t.ctx, t.session, "clock.read")
	if err != nil {
		return err
	}
	if r == nil {
		return store.ErrSchemaMissing
	}
	t.store.clock.meet(r.int(0))
	t.ledger = r.int(1)
	t.store.kinds.belong(t.ledger)
	t.store.seen.belong(t.ledger)
	t.high, t.place, t.now = r.int(0), r.int(2), t.store.clock.now()
	return nil
}

// nextPlace gives out a place after all others in any line.
func (t *transaction) nextPlace() int64 {
	t.place++
	t.moved = true
	return t.place
}

// do runs one call's part and writes its changes in memory. A panic is an error of that call, because the goroutine
// of the writer serves all others.
func (t *transaction) do(ctx context.Context, fn func(*work) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w := &work{transaction: t, caller: ctx}
	if err := fn(w); err != nil {
		return err
	}
	return w.flush()
}

// stampEvery is how far behind, in microseconds, a process may be that starts after the clock was set back.
const stampEvery = 100_000

// stamp moves the stored marks of the clock and of places.
func (t *transaction) stamp() error {
	if !t.moved && (!t.wrote || t.now-t.high < stampEvery) {
		return nil
	}
	_, err := t.session.exec(t.ctx, "clock.write", max(t.now, t.high), t.place)
	return err
}

func (t *transaction) wake(name string) {
	if t.woken == nil {
		t.woken = map[string]bool{}
	}
	t.woken[name] = true
}

// work is one call's part of a transaction. Lanes, leases and counters are changed here in memory and written once, by
// flush.
type work struct {
	*transaction
	caller context.Context // its end ends the work before the next statement
	lanes  map[place]*lane
	rows   map[store.ID]*stored // tasks that the rules have seen
	leases map[store.Token][]*lease
	claims []*lease // all leases; only read if needed
	// How many tasks began to wait, or stopped.
	waiting map[wait]int64
	// How many tasks of each error group began to wait for a retry, or died.
	groups map[int64]standing
	stats  map[minute]*store.Stat
	// First arrivals in lines in which possibly nobody waited.
	lines map[turn]arrival
}

// place is a queue and a priority.
type place struct {
	queue    string
	priority int16
}

// lane is a row of tusk_lane.
type lane struct {
	place
	id, tail, cursor, available, running int64
	changed                              bool
}

// wait is a key of tusk_waiting.
type wait struct {
	queue string
	state store.State
}

func (w *work) run(name string, args ...any) (int64, error) {
	if err := w.caller.Err(); err != nil {
		return 0, err
	}
	w.wrote = true
	return w.session.exec(w.ctx, name, args...)
}

func (w *work) all(name string, fn func(row) error, args ...any) error {
	if err := w.caller.Err(); err != nil {
		return err
	}
	return w.session.each(w.ctx, name, fn, args...)
}

func (w *work) one(name string, args ...any) (row, error) {
	if err := w.caller.Err(); err != nil {
		return nil, err
	}
	return one(w.ctx, w.session, name, args...)
}

func (w *work) time() time.Time { return at(w.now) }

// kind returns the number of a queue and kind, and adds it if it is new.
func (w *work) kind(queue, kind string) (int64, error) {
	n := name{queue, kind}
	if id, ok := w.store.kinds.id(n); ok {
		return id, nil
	}
	if id, ok := w.fresh[n]; ok {
		return id, nil
	}
	r, err := w.one("kind.find", queue, kind)
	if err != nil {
		return 0, err
	}
	if r == nil {
		w.wrote = true
		if r, err = w.one("kind.add", queue, kind); err != nil {
			return 0, err
		}
	}
	w.learn(n, r.int(0))
	return r.int(0), nil
}

// lane returns the lane of a queue and priority, and adds it if it is new.
func (w *work) lane(queue string, priority int16) (*lane, error) {
	at := place{queue, priority}
	if l, ok := w.lanes[at]; ok {
		return l, nil
	}
	r, err := w.one("lane.find", queue, priority)
	if err != nil {
		return nil, err
	}
	if r == nil {
		w.wrote = true
		if r, err = w.one("lane.add", queue, priority); err != nil {
			return nil, err
		}
	}
	return w.hold(at, r), nil
}

// hold keeps a lane that was read with the columns id, tail, cursor, available and running.
func (w *work) hold(at place, r row) *lane {
	if l, ok := w.lanes[at]; ok {
		return l
	}
	if w.lanes == nil {
		w.lanes = map[place]*lane{}
	}
	l := &lane{place: at, id: r.int(0), tail: r.int(1), cursor: r.int(2), available: r.int(3), running: r.int(4)}
	w.lanes[at] = l
	return l
}

// next gives out a position at the end of the lane.
func (l *lane) next() int64 {
	l.tail++
	l.available++
	l.changed = true
	return l.tail
}

func (w *work) waits(queue string, state store.State, tasks int64) {
	if w.waiting == nil {
		w.waiting = map[wait]int64{}
	}
	w.waiting[wait{queue, state}] += tasks
}

// flush writes the changes that this call has made in memory.
func (w *work) flush() error {
	for _, l := range w.lanes {
		if !l.changed {
			continue
		}
		if _, err := w.run("lane.write", l.tail, l.cursor, l.available, l.running, l.id); err != nil {
			return err
		}
	}
	for of, tasks := range w.waiting {
		if tasks == 0 {
			continue
		}
		if _, err := w.run("waiting.write", of.queue, of.state, tasks); err != nil {
			return err
		}
		if tasks < 0 {
			if _, err := w.run("waiting.drop", of.queue, of.state); err != nil {
				return err
			}
		}
	}
	if err := w.flushLeases(); err != nil {
		return err
	}
	if err := w.flushGroups(); err != nil {
		return err
	}
	if err := w.flushTurns(); err != nil {
		return err
	}
	return w.flushStats()
}
