package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// stored is a row of tusk_task.
type stored struct {
	store.Task
	num     int64
	lane    int64 // 0: not in the log
	pos     int64
	runAt   int64
	failure int64    // error group of the latest failed attempt; 0: none failed
	last    store.ID // who ran the last attempt, if that has no row of its own
	needs   int64    // how many tasks it needs
	needed  bool     // others need it, or did
	turn    int64    // the row of the turn that it waits for or has; 0: none
	place   int64    // where it stands in line for that; 0: it has its turn
}

// holds reports whether a task that has not ended has its turn.
func (t *stored) holds() bool { return t.turn != 0 && t.place == 0 && !t.State.Finished() }

// scan reads a row of the columns that list.tasks names. names turns the number
// of a kind into its queue and kind.
func (t *stored) scan(r row, names func(int64) (name, error)) error {
	of, err := names(r.int(2))
	if err != nil {
		return err
	}
	t.num, t.ID, t.Queue, t.Kind = r.int(0), r.id(1), of.queue, of.kind
	t.Priority, t.State = int16(r.int(3)), store.State(r.int(4))
	t.lane, t.pos = r.int(5), r.int(6)
	t.Args, t.Tenant, t.Key, t.Settings = r.blob(7), r.text(8), r.text(10), r.blob(11)
	if !r.null(9) {
		if err := json.Unmarshal(r.blob(9), &t.Tags); err != nil {
			t.Damage = "its tags cannot be read: " + err.Error()
		}
	}
	t.Attempt, t.Crashes, t.Reason = int(r.int(12)), int(r.int(13)), r.text(14)
	t.failure = r.int(15)
	t.EnqueuedAt, t.runAt, t.RunAt = r.time(16), r.int(17), r.time(17)
	t.ExpiresAt, t.Workflow = r.time(18), r.id(19)
	t.Turn, t.Partition = !r.null(20), r.text(20)
	return nil
}

// scanRest reads what follows in statements about tasks that need not be in the
// log: claimed_at, finished_at, worker, the cursor of the lane, needs, needed,
// turn and place.
func (t *stored) scanRest(r row) {
	t.ClaimedAt, t.FinishedAt, t.last = r.time(21), r.time(22), r.id(23)
	t.needs, t.needed, t.turn, t.place = r.int(25), !r.null(26), r.int(27), r.int(28)
	if t.State == store.Available && t.pos <= r.int(24) {
		t.State = store.Running
	}
}

// hold makes a task in the log one that a lease holds.
func (t *stored) hold(token store.Token, worker store.ID, claimedAt time.Time) {
	t.State, t.Lease, t.Worker, t.ClaimedAt = store.Running, token, worker, claimedAt
	t.Attempt++
}

// naming turns numbers of kinds into names, by memory or by looking them up, and
// lets learn know of the latter.
func naming(ctx context.Context, c session, of *Store, learn func(name, int64)) func(int64) (name, error) {
	return func(id int64) (name, error) {
		if n, ok := of.kinds.name(id); ok {
			return n, nil
		}
		r, err := one(ctx, c, "kind.name", id)
		if err != nil {
			return name{}, err
		}
		if r == nil {
			return name{}, fmt.Errorf("kind %d is unknown", id)
		}
		n := name{r.text(0), r.text(1)}
		learn(n, id)
		return n, nil
	}
}

func (w *work) names() func(int64) (name, error) {
	return naming(w.ctx, w.session, w.store, w.learn)
}

// learn remembers a kind when the transaction is committed.
func (w *work) learn(n name, id int64) {
	if w.fresh == nil {
		w.fresh = map[name]int64{}
	}
	w.fresh[n] = id
}

func readNames(ctx context.Context, c session, s *Store) func(int64) (name, error) {
	return naming(ctx, c, s, func(n name, id int64) { s.kinds.add(map[name]int64{n: id}) })
}

// find reads a task by its id; nil when there is none. A running one comes
// without its lease.
func (w *work) find(id store.ID) (*stored, error) {
	var found *stored
	names := w.names()
	r, err := w.one("task.find", id)
	if err != nil || r == nil {
		return nil, err
	}
	found = &stored{}
	if err := found.scan(r, names); err != nil {
		return nil, err
	}
	found.scanRest(r)
	return found, nil
}

// take lifts a task that is not running out of wherever its state had put it, in
// the counters; what is written next puts it somewhere else.
func (w *work) take(t *stored) error {
	w.regroup(t.failure, t.State, -1)
	switch t.State {
	case store.Available:
		l, err := w.lane(t.Queue, t.Priority)
		if err != nil {
			return err
		}
		l.available--
		l.changed = true
	case store.Scheduled, store.Retryable, store.Pending:
		w.waits(t.Queue, t.State, -1)
		if t.place != 0 {
			return w.leave(t)
		}
	}
	return nil
}

// putDue makes a task available, or has it wait: pending while something that it
// needs is open, in the given state when its run time has not come, and pending
// again for its turn. It takes on the queue and priority given.
func (w *work) putDue(t *stored, queue string, priority int16, due int64, wait store.State) error {
	is, err := w.isOpen(t)
	if err != nil {
		return err
	}
	if is {
		return w.putWaiting(t, queue, store.Pending, due)
	}
	return w.putReady(t, queue, priority, due, wait)
}

// putReady is putDue for a task that waits for no other.
func (w *work) putReady(t *stored, queue string, priority int16, due int64, wait store.State) error {
	switch {
	case due > w.now:
		return w.putWaiting(t, queue, wait, due)
	case t.Turn && !t.holds():
		return w.putInLine(t, queue, due)
	}
	return w.putAvailable(t, queue, priority, w.now)
}

// putWaiting has a task wait.
func (w *work) putWaiting(t *stored, queue string, state store.State, due int64) error {
	w.waits(queue, state, 1)
	w.regroup(t.failure, state, 1)
	t.State = state
	_, err := w.run("task.wait", state, due, t.num)
	return err
}

// putInLine has a task wait for its turn.
func (w *work) putInLine(t *stored, queue string, due int64) error {
	row, err := w.turnsOf(turn{queue, t.Tenant, t.Partition})
	if err != nil {
		return err
	}
	w.waits(queue, store.Pending, 1)
	w.regroup(t.failure, store.Pending, 1)
	t.State, t.turn, t.place = store.Pending, row, w.nextPlace()
	w.came(row, t.place)
	_, err = w.run("line.join", due, row, t.place, t.num)
	return err
}

// putAvailable puts a task at the end of its lane.
func (w *work) putAvailable(t *stored, queue string, priority int16, due int64) error {
	l, err := w.lane(queue, priority)
	if err != nil {
		return err
	}
	w.wake(queue)
	t.State = store.Available
	_, err = w.run("task.place", l.id, l.next(), due, t.num)
	return err
}
