package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
)

// engine is Tusk. All workers share one handle in one process or, if apart is set, each has a
// handle and connections of its own.
type engine struct {
	apart   bool
	history int // finished tasks at the start
	stores  []*mysql.Store
	leader  *mysql.Store
	term    int64
}

func (e *engine) name() string {
	if e.history > 0 {
		return fmt.Sprintf("tusk, %d finished", e.history)
	}
	if e.apart {
		return "tusk, a handle each"
	}
	return "tusk"
}

func (e *engine) open(ctx context.Context, dsn string, workers int) error {
	if !e.apart {
		workers = 1
	}
	for range workers + 1 {
		s, err := mysql.Open(ctx, dsn)
		if err != nil {
			return err
		}
		e.stores = append(e.stores, s)
	}
	e.leader, e.stores = e.stores[workers], e.stores[:workers]
	if _, err := e.leader.Migrate(ctx, -1); err != nil {
		return err
	}
	lead, err := e.leader.Lead(ctx, store.Candidate{ID: tusk.NewID(), TTL: 24 * time.Hour})
	if err != nil {
		return err
	}
	e.term = lead.Term
	return e.fillHistory(ctx)
}

func (e *engine) close() (err error) {
	for _, s := range append(e.stores, e.leader) {
		err = s.Close()
	}
	return err
}

// fillHistory makes tasks that finished an hour ago, without running them.
func (e *engine) fillHistory(ctx context.Context) error {
	for i := 0; i < e.history; i += 100000 {
		_, err := e.leader.DB().ExecContext(ctx,
			`insert into tusk_task (place, n, id, queue, kind, priority, state, lap, attempt, crashes,
				enqueued_at, run_at, claimed_at, finished_at, worker, needs, needed, awaits, turn, args)
			with recursive digits (d) as (select 0 union all select d + 1 from digits where d < 9),
			numbers (seq) as (
				select a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d
				from digits a, digits b, digits c, digits e, digits f)
			select (unix_timestamp() - 1704067200 - 3600) * 1000 * 4194304 + (? + seq) div 1000, (? + seq) % 1000,
				unhex(concat('01', lpad(hex(? + seq), 30, '0'))), 'bench', 'work', 0, 6, 0, 1, 0, 1.7e15, 1.7e15, 1.7e15, 1.7e15,
				'', 0, 0, 0, 0, ?
			from numbers`, i, i, i, args)
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) fill(ctx context.Context, n int) error {
	for ; n > 0; n -= 500 {
		tasks := make([]store.NewTask, min(n, 500))
		for i := range tasks {
			tasks[i] = store.NewTask{ID: tusk.NewID(), Kind: "work", Queue: "bench", Args: []byte(args)}
		}
		if _, err := e.leader.Enqueue(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) worker(ctx context.Context, i, batch int) (func() (int, error), error) {
	s, id := e.stores[i%len(e.stores)], tusk.NewID()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}, TTL: 24 * time.Hour}); err != nil {
		return nil, err
	}
	return func() (int, error) {
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: id, Queues: []string{"bench"}, Limit: batch,
			Token: store.NewToken()})
		if err != nil || len(tasks) == 0 {
			return 0, err
		}
		outcomes := make([]store.Outcome, len(tasks))
		for i := range tasks {
			outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt,
				Ran: time.Millisecond}
		}
		lost, err := s.Finish(ctx, outcomes)
		if err == nil && len(lost) > 0 {
			err = fmt.Errorf("%d finishes of open leases were lost", len(lost))
		}
		return len(tasks), err
	}, nil
}

// chores does the leader's chores. It is called once a second.
func (e *engine) chores(ctx context.Context) error {
	if _, err := e.leader.Rescue(ctx, e.term, 100); err != nil {
		return err
	}
	if _, err := e.leader.Admit(ctx, e.term, 1000); err != nil {
		return err
	}
	return e.leader.Maintain(ctx, e.term)
}

// trips returns the number of the engine's round trips.
func (e *engine) trips(ctx context.Context) (n int64) {
	for _, s := range e.stores {
		m, err := s.Measure(ctx)
		if err != nil {
			return -1
		}
		n += m.RoundTrips
	}
	return n
}
