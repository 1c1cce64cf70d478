//go:build unix

package storm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

// A user's transaction may stay open for any time and hold anything that Tusk gave it: keys, lanes, attempts, notes.
// Nobody else may have to wait for it.

// holdOpen keeps users' transactions open for a while: those of handlers, which hold their tasks, and others, which
// hold keys and lanes. No other fault strikes meanwhile, so that only they can cause a standstill. Now and then a
// statement of the storm measures how busy the machine is.
func holdOpen(s *storm) error {
	if err := s.calm(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hold := min(3*stormLease, s.lasts/4)
	db, err := s.ground.users()
	if err != nil {
		return err
	}
	defer db.Close()
	road, err := engines[s.ground.engine].pool(s.ground.via)
	if err != nil {
		return err
	}
	defer road.Close()
	began, done := instant(), s.completed()
	slowest := pace(road, hold)
	for range 6 {
		o := &tusk.Options{Queue: queueOpen, Priority: -1, Backoff: tusk.ConstantBackoff(100 * time.Millisecond)}
		if _, err := s.client.Enqueue(ctx, kindOf{kind: doLinger}, o); err != nil {
			return err
		}
	}
	var open []*heldTx
	for n := range producerKeys {
		h, err := s.hold(ctx, db, fmt.Sprint("k", n))
		if err != nil {
			s.t.Logf("no transaction is held: %v", err)
			continue
		}
		open = append(open, h)
	}
	worst := <-slowest
	s.count("open transactions of users")
	s.log.write(event{Op: opHeld, Asked: began, Term: int64(worst), Items: []item{{Attempt: int(s.completed() - done)}}})
	for _, h := range open {
		err = errors.Join(err, h.end(s))
	}
	return err
}

// calm waits until everything has recovered from earlier faults.
func (s *storm) calm() error {
	s.replace()
	time.Sleep(stormLease)
	done := s.completed()
	for end := time.Now().Add(20 * time.Second); s.completed() == done; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("nothing has been completed for 20s")
		}
	}
	return nil
}

// pace measures for a while the worst time of a small write on the workers' path: through the pooler, if there is
// one, and down to the disk. A statement that changes nothing would not wait for the disk.
func pace(road *sql.DB, d time.Duration) <-chan time.Duration {
	worst := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for end := time.Now().Add(d); time.Now().Before(end); {
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			road.ExecContext(ctx, "insert into storm_pace values ('', '')")
			cancel()
			time.Sleep(50 * time.Millisecond)
			most = max(most, time.Since(began)-50*time.Millisecond)
		}
		worst <- most
	}()
	return worst
}

// heldTx is an open transaction that has enqueued a task.
type heldTx struct {
	tx   *sql.Tx
	call int64
	item item
}

// hold begins one, either with a key that others use too, or with a replacement of a task that waits in a lane.
func (s *storm) hold(ctx context.Context, db *sql.DB, key string) (*heldTx, error) {
	o := &tusk.Options{Queue: queueKeyed, ID: tusk.NewID(), Key: key,
		Backoff:    tusk.ConstantBackoff(100 * time.Millisecond),
		OnConflict: []tusk.OnConflict{tusk.Skip, tusk.Replace}[s.random.IntN(2)]}
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	h := &heldTx{tx: tx, item: item{ID: o.ID, Kind: doEcho, Queue: o.Queue, Key: o.Key, Conflict: int8(o.OnConflict)}}
	h.call = s.log.call(event{Op: opEnqueue, Text: "held", Items: []item{h.item}})
	within, cancel := context.WithTimeout(ctx, 2*time.Second) // another transaction may hold the key
	defer cancel()
	r, err := s.client.EnqueueTx(within, tx, kindOf{load{Version: time.Now().UnixNano()}, doEcho}, o)
	if err != nil {
		s.log.write(event{Op: opEnqueued, Call: h.call, Err: errNone})
		return nil, errors.Join(err, tx.Rollback())
	}
	h.item.ID, h.item.State = r.ID, r.Result.String()
	return h, nil
}

// end commits or rolls back the transaction.
func (h *heldTx) end(s *storm) error {
	answer := event{Op: opEnqueued, Call: h.call, Items: []item{h.item}}
	var err error
	if s.random.IntN(2) == 0 {
		answer.Err, err = errNone, h.tx.Rollback()
	} else {
		err = h.tx.Commit()
		answer.Err = doubt(err)
	}
	s.log.write(answer)
	return err
}

// users opens a pool for users' transactions.
func (g *ground) users() (*sql.DB, error) {
	dsn, err := named(g.dsn, nameUser)
	if err != nil {
		return nil, err
	}
	db, err := engines[g.engine].pool(dsn)
	if err == nil {
		db.SetMaxOpenConns(10)
	}
	return db, err
}

// mostWait is how long a worker's statement may wait for a user's open transaction. It gives up on two locks after
// 300 ms each, and may do so late on a busy machine.
const mostWait = time.Second

// watch checks until stopped whether a worker's own statement waits for a user's open and idle transaction.
func (s *storm) watch() (stop func()) {
	if s.ground.engine != "postgres" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		waits := map[string]wait{}
		for ctx.Err() == nil {
			waits = s.waiting(ctx, waits)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// wait is a statement that was seen to wait, with the first and the last time.
type wait struct{ first, last time.Time }

// waiting returns the statements that wait now, and judges those that no longer do.
func (s *storm) waiting(ctx context.Context, before map[string]wait) map[string]wait {
	now := s.lookAtWaits(ctx, before)
	for who, w := range before {
		if _, still := now[who]; !still && w.last.Sub(w.first) > mostWait {
			s.violation("I17", "for at least %v session %s", w.last.Sub(w.first), who)
		}
	}
	return now
}

// lookAtWaits returns the statements that wait now, or none while the server is down.
func (s *storm) lookAtWaits(ctx context.Context, before map[string]wait) map[string]wait {
	const ask = `
		select format('%s %s %s waits for "%s": %s', b.pid, b.query_start, b.wait_event, left(h.query, 100),
			left(b.query, 100))
		from pg_stat_activity b
		cross join lateral unnest(pg_blocking_pids(b.pid)) x(pid)
		join pg_stat_activity h on h.pid = x.pid
		where b.datname = current_database() and b.wait_event_type = 'Lock' and b.application_name = '` + nameWorker + `'
			and h.application_name = '` + nameUser + `' and h.state = 'idle in transaction'`
	now := map[string]wait{}
	rows, err := s.ground.admin.QueryContext(ctx, ask)
	if err != nil {
		return now
	}
	defer rows.Close()
	at := time.Now()
	for rows.Next() {
		var who string
		if rows.Scan(&who) != nil {
			return now
		}
		w := wait{first: at, last: at}
		if known, seen := before[who]; seen {
			w.first = known.first
		}
		now[who] = w
	}
	return now
}
