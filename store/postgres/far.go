package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

// Elsewhere says what has become of a task that lives in another ledger of the same queue,
// and that tasks of this one need.
type Elsewhere struct {
	ID    store.ID
	State store.State // 0: there is no such task; of one that has not ended any other

	// Announced says that no stored task needs it yet. Those that will may be stored in one
	// transaction with it, so that it need not exist yet either.
	Announced bool
}

// The table far says in one number that a task has not ended.
const farUnfinished = 9

func (e Elsewhere) number() int16 {
	if e.State == 0 || e.State.Finished() {
		return int16(e.State)
	}
	return farUnfinished
}

func stateElsewhere(number int16) store.State {
	if number == farUnfinished {
		return store.Pending
	}
	return store.State(number)
}

// Hear takes note of what has become of tasks that live in other ledgers, and tells those
// that need them. What a task needs is to be heard of before that task is enqueued, or goes to
// pending: what nobody has heard of does not exist.
func (s *Store) Hear(ctx context.Context, all []Elsewhere) error {
	ids, states := make(uuids, len(all)), make([]int16, len(all))
	over, how := uuids{}, []int16{} // those that have ended, or are gone
	for i, e := range all {
		if ids[i], states[i] = e.ID, e.number(); states[i] != farUnfinished {
			over, how = append(over, e.ID), append(how, states[i])
		}
	}
	var children uuids
	err := s.write(ctx, s.pinned(s.do("hear", ids, states), s.do("forget_far", ids), s.do("doubt_children", over, how),
		s.do("children", over).into(func(raw [][]byte) error {
			children = append(children, idOf(raw[0]))
			return nil
		})))
	if err != nil {
		return fmt.Errorf("hear: %w", err)
	}
	s.settle(ctx, children)
	return nil
}

// Needs are tasks of other ledgers that tasks of this one need, or are about to need, as they were last heard of.
type Needs struct {
	Of   []Elsewhere
	Mail bool // tasks of a queue, of priority 0, wait for their time
}

// NeedsOf returns the needs of engines on one server, in one trip: of each the first ones, up to a limit, above an id.
func NeedsOf(ctx context.Context, all []*Store, after []store.ID, limit int, queue string) ([]Needs, error) {
	needs, batch := make([]Needs, len(all)), pgx.Batch{}
	batch.Queue(all[0].sql["pin"])
	for i, s := range all {
		batch.Queue(s.sql["needed"], [16]byte(after[i]), limit, laneOf(queue, 0)).Query(func(rows pgx.Rows) error {
			return eachRow(rows, func(raw [][]byte) error {
				if raw[0] == nil {
					needs[i].Mail = true
					return nil
				}
				needs[i].Of = append(needs[i].Of, Elsewhere{
					ID: store.ID(idOf(raw[0])), State: stateElsewhere(int16(stateOf(raw[1]))), Announced: raw[2][0] != 0,
				})
				return nil
			})
		})
	}
	if err := all[0].sendAll(ctx, &batch); err != nil {
		return nil, fmt.Errorf("needed: %w", err)
	}
	return needs, nil
}

// Deliver stores tasks that another ledger sends, but for those that it has sent before, of
// which it says nothing. It may be repeated for a week. A task whose key a user's transaction holds is
// waited for a tenth of a second: then none of the call is stored, and a store.HeldError names them all.
func (s *Store) Deliver(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	err = s.repeat(ctx, func() error {
		results, err = s.deliver(ctx, tasks)
		return s.noted(translate(err))
	})
	if isBusy(err) && ctx.Err() == nil {
		held := make([]store.ID, len(tasks))
		for i := range tasks {
			held[i] = tasks[i].ID
		}
		err = errors.Join(err, heldError(held))
	}
	if err != nil {
		return nil, fmt.Errorf("deliver: %w", err)
	}
	return results, nil
}

// briefly waits for nobody's lock for long.
var briefly = pgx.TxOptions{BeginQuery: "begin; set local lock_timeout = '100ms'"}

func (s *Store) deliver(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	c, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	results := make([]store.Enqueued, len(tasks))
	err = pgx.BeginTxFunc(ctx, c, briefly, func(tx pgx.Tx) error {
		fresh, places, err := s.undelivered(ctx, tx, tasks)
		if err != nil || len(fresh) == 0 {
			return err
		}
		in, err := s.Tx(tx)
		if err != nil {
			return err
		}
		stored, err := in.Enqueue(ctx, fresh)
		for i := range stored {
			results[places[i]] = stored[i]
		}
		return err
	})
	return results, err
}

// undelivered returns the tasks that are new here, and their places among all.
func (s *Store) undelivered(ctx context.Context, tx pgx.Tx, tasks []store.NewTask) ([]store.NewTask, []int, error) {
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	var names []string
	var batch pgx.Batch
	batch.Queue(s.sql["pin"])
	batch.Queue(s.sql["forget_delivered"])
	batch.Queue(s.sql["deliver"], uuidsOf(ids)).Query(func(rows pgx.Rows) (err error) {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, err
	}
	taken := make(map[string]bool, len(names))
	for _, name := range names {
		taken[name] = true
	}
	var fresh []store.NewTask
	var places []int
	for i := range tasks {
		if taken[ids[i].String()] {
			fresh, places = append(fresh, tasks[i]), append(places, i)
		}
	}
	return fresh, places, nil
}

// EndProcess ends a process of the server, which does nothing more for a client that has given it up, and reports
// whether it is gone. One of another role ends by itself. A process that began after some time is another one.
// Behind a pooler nobody knows processes, and each counts as gone.
func (s *Store) EndProcess(ctx context.Context, process uint32, before time.Time) (gone bool, err error) {
	err = s.own(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, s.sql["end_process"], int32(process), int32(c.Conn().PgConn().PID()), before).Scan(&gone)
	})
	if err = s.noted(translate(err)); err != nil {
		return false, fmt.Errorf("end process: %w", err)
	}
	return gone, nil
}

// Running names a database of a server that runs. Two servers, of which one may have begun as a copy of the other, were
// not started at the same microsecond.
type Running struct {
	Database string
	Since    time.Time
}

// Is reports whether two are the same.
func (r Running) Is(other Running) bool {
	return r.Database == other.Database && r.Since.Equal(other.Since)
}

// Running names the engine's database. It goes on while a user's transactions have the pool's connections.
func (s *Store) Running(ctx context.Context) (r Running, err error) {
	err = s.scan(ctx, "running", []any{&r.Database, &r.Since})
	if err = s.noted(translate(err)); err != nil {
		return r, fmt.Errorf("running: %w", err)
	}
	return r, nil
}

// Writable fails with store.ErrReadOnly where nobody can write: on a standby, or on a server that is set so.
func (s *Store) Writable(ctx context.Context) error {
	var readOnly bool
	if err := s.noted(translate(s.scan(ctx, "read_only", []any{&readOnly}))); err != nil {
		return fmt.Errorf("writable: %w", err)
	}
	if readOnly {
		return store.ErrReadOnly
	}
	return nil
}

// InFlight returns the oldest transaction of the server that has not ended, and the one that
// begins next.
func (s *Store) InFlight(ctx context.Context) (oldest, next int64, err error) {
	err = s.query(ctx, "in_flight", func(raw [][]byte) error {
		oldest, next = int64Of(raw[0]), int64Of(raw[1])
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("in flight: %w", err)
	}
	return oldest, next, nil
}

// Prepared returns the names of the transactions in the database that are prepared: somebody else
// decides how they end.
func (s *Store) Prepared(ctx context.Context) (names []string, err error) {
	err = s.query(ctx, "prepared", func(raw [][]byte) error {
		names = append(names, string(raw[0]))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("prepared: %w", err)
	}
	return names, nil
}
