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

// Elsewhere is the state of a task that lives in another ledger of the same queue, and that
// tasks of this ledger need.
type Elsewhere struct {
	ID    store.ID
	State store.State // 0 if there is no such task; any unfinished state if it has not ended

	// Announced says that no stored task needs it yet. The tasks that need it may be stored in the same transaction,
	// so it may not exist yet either.
	Announced bool
}

// farUnfinished is the number in the table far for all states of a task that has not ended.
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

// Hear records the states of tasks in other ledgers, and applies them to the tasks that need these. Before a task is
// enqueued or becomes pending, Hear must be called with the tasks that it needs. A task that was never reported
// counts as one that does not exist.
func (s *Store) Hear(ctx context.Context, all []Elsewhere) error {
	ids, states := make(uuids, len(all)), make([]int16, len(all))
	over, how := uuids{}, []int16{} // tasks that have ended or are gone
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

// Needs are the tasks of other ledgers that tasks of this ledger need, or are about to need, in their last known
// states.
type Needs struct {
	Of   []Elsewhere
	Mail bool // tasks of priority 0 in the queue that NeedsOf was given wait for their time
}

// NeedsOf returns the needs of engines on one server, in one round trip. For each engine, these are the first ones
// after an id, up to a limit.
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

// Deliver stores tasks sent by another ledger, except those that were delivered before, whose results are zero. It
// may be repeated for a week. If a user's transaction holds the key of a task for longer than a tenth of a second,
// Deliver stores none of the tasks and returns a store.HeldError that names them all.
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
	s.settle(ctx, inDoubt(tasks))
	return results, nil
}

// briefly begins a transaction that waits for locks for at most a tenth of a second.
var briefly = pgx.TxOptions{BeginQuery: "begin; set local lock_timeout = '100ms'"}

func (s *Store) deliver(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	c, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	s.known.meet(c.Conn())
	if err := s.atHome(ctx, c); err != nil {
		return nil, err
	}
	results := make([]store.Enqueued, len(tasks))
	err = pgx.BeginTxFunc(ctx, c, briefly, func(tx pgx.Tx) error {
		fresh, places, err := s.undelivered(ctx, tx, tasks)
		if err != nil || len(fresh) == 0 {
			return err
		}
		stored, err := (&userTx{s, driverSession{tx}}).enqueue(ctx, fresh)
		for i := range stored {
			results[places[i]] = stored[i]
		}
		return err
	})
	return results, err
}

// undelivered records tasks as delivered. It returns those that are new here, and their places among all.
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

// EndProcess terminates a process of the server whose client has given it up, and reports whether it has ended. A
// process of another role cannot be terminated and has to end by itself. A process that did not begin before the
// given time is a different one. Behind a pooler, processes are unknown, and each counts as ended.
func (s *Store) EndProcess(ctx context.Context, process uint32, before time.Time) (gone bool, err error) {
	err = s.own(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, s.sql["end_process"], int32(process), int32(c.Conn().PgConn().PID()), before).Scan(&gone)
	})
	if err = s.noted(translate(err)); err != nil {
		return false, fmt.Errorf("end process: %w", err)
	}
	return gone, nil
}

// Running identifies a database of a running server. Even a server that began as a copy of another was not started in
// the same microsecond.
type Running struct {
	Database string
	Since    time.Time
}

// Is reports whether both are the same.
func (r Running) Is(other Running) bool {
	return r.Database == other.Database && r.Since.Equal(other.Since)
}

// Running identifies the engine's database. It works even while users' transactions hold all connections of the pool.
func (s *Store) Running(ctx context.Context) (r Running, err error) {
	err = s.scan(ctx, "running", []any{&r.Database, &r.Since})
	if err = s.noted(translate(err)); err != nil {
		return r, fmt.Errorf("running: %w", err)
	}
	return r, nil
}

// Writable fails with store.ErrReadOnly on a standby or a server that is set to read-only.
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

// InFlight returns the ids of the oldest transaction of the server that has not ended, and of the
// next one to begin.
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

// Prepared returns the names of the prepared transactions in the database. Their outcome is decided elsewhere.
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
