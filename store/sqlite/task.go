package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// stored is a row of tusk_task.
type stored struct {
	rules.Row
	num  int64
	lane int64 // 0 if not in the log
	pos  int64
	// Error group of the latest failed attempt; 0 if none failed.
	failure int64
	// Worker of the last attempt, if the attempt has no row of its own.
	last store.ID
	// The row of the turn that it waits for or has; 0 if none.
	turn int64
	// Its place in line for the turn; 0 if it has the turn.
	place int64

	// What apply will write.
	group int64 // the new error group
	// Worker of the attempt that has just ended, if the attempt needs no row of its own.
	runner store.ID
}

// scan reads a row with the columns that list.tasks names. names returns the queue and kind for the number of a kind.
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
	t.failure, t.group = r.int(15), r.int(15)
	t.EnqueuedAt, t.RunAt = r.time(16), r.time(17)
	t.ExpiresAt, t.Workflow = r.time(18), r.id(19)
	t.Turn, t.Partition = !r.null(20), r.text(20)
	return nil
}

// scanRest reads the columns that follow in statements about tasks that may not be in the log: claimed_at, finished_at,
// worker, the cursor of the lane, open, needed, turn and place.
func (t *stored) scanRest(r row) {
	t.ClaimedAt, t.FinishedAt, t.last = r.time(21), r.time(22), r.id(23)
	t.Open, t.Needs, t.Needed, t.turn, t.place = int(r.int(25)), !r.null(25), !r.null(26), r.int(27), r.int(28)
	t.HasTurn = t.turn != 0 && t.place == 0 && !t.State.Finished()
	if t.State == store.Available && t.pos <= r.int(24) {
		t.State = store.Running
	}
}

// hold marks a task in the log as held by a lease.
func (t *stored) hold(token store.Token, worker store.ID, claimedAt time.Time) {
	t.State, t.Lease, t.Worker, t.ClaimedAt = store.Running, token, worker, claimedAt
	t.Attempt++
}

// naming returns a function that looks up the names for numbers of kinds, first in memory and then in the database. It
// calls learn for names from the database.
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

// learn caches a kind once the transaction is committed.
func (w *work) learn(n name, id int64) {
	if w.fresh == nil {
		w.fresh = map[name]int64{}
	}
	w.fresh[n] = id
}

func readNames(ctx context.Context, c session, s *Store) func(int64) (name, error) {
	return naming(ctx, c, s, func(n name, id int64) { s.kinds.add(map[name]int64{n: id}) })
}
