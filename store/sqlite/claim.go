package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// lease is a row of tusk_lease: a claim's hold on the positions of a lane from first to last. open is the number of
// tasks among them that are not finished.
type lease struct {
	lane, first, last, open int64
	token                   store.Token
	worker                  store.ID
	claimedAt               int64
	changed                 bool
}

// Claim implements store.Leaser. It moves each lane's cursor past the tasks that it takes and writes one lease row
// for all of them; it only reads the tasks themselves. There is no other writer in the meantime, and positions are
// assigned in the order of commits, so nothing can appear behind a cursor.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (tasks []store.Task, err error) {
	s.counts.queries.Add(1)
	if idle, err := s.idle(ctx, r); err != nil || idle {
		return nil, wrap("claim", err)
	}
	err = s.write(ctx, false, func(w *work) error {
		tasks, err = w.claim(r)
		return err
	})
	s.busy.Store(len(tasks) > 0)
	return answer(tasks, "claim", err)
}

// answer returns the results of a method. If there is an error, it returns only the error.
func answer[T any](got T, verb string, err error) (T, error) {
	if err != nil {
		var none T
		return none, wrap(verb, err)
	}
	return got, nil
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// idle reports whether there is nothing to claim, by reading alone. After a claim that found tasks it does not check,
// because the next one probably finds some, too.
func (s *Store) idle(ctx context.Context, r store.ClaimRequest) (bool, error) {
	if r.Again || s.busy.Load() {
		return false, nil
	}
	idle := true
	err := s.read(ctx, func(ctx context.Context, c session) error {
		if err := alive(ctx, c, r.Worker); err != nil {
			return err
		}
		for _, queue := range r.Queues {
			l, err := one(ctx, c, "claim.probe", queue)
			if err != nil || l != nil {
				idle = false
				return err
			}
		}
		return nil
	})
	return idle, err
}

// alive fails unless the worker has sent a beat and has not left or died since.
func alive(ctx context.Context, c session, worker store.ID) error {
	r, err := one(ctx, c, "worker.dead", worker)
	if err != nil {
		return err
	}
	if r == nil || r.int(0) != 0 {
		return store.ErrWorkerDead
	}
	return nil
}

func (w *work) claim(r store.ClaimRequest) ([]store.Task, error) {
	if err := alive(w.ctx, w.session, r.Worker); err != nil {
		return nil, err
	}
	if r.Again {
		return w.heldBy(r.Token)
	}
	var tasks []store.Task
	for _, queue := range r.Queues {
		for again := true; again; {
			lanes, err := w.ready(queue, int64(r.Limit-len(tasks)))
			if err != nil {
				return nil, err
			}
			again = false
			for _, l := range lanes {
				before := len(tasks)
				if before >= r.Limit {
					return tasks, nil
				}
				if tasks, err = w.claimLane(l, r, tasks); err != nil {
					return nil, err
				}
				again = again || len(tasks) == before // it counted tasks that lanes behind it may have
			}
		}
	}
	return tasks, nil
}

// ready returns the lanes of a queue with available tasks, the most urgent first, until they have enough tasks
// together.
func (w *work) ready(queue string, tasks int64) ([]*lane, error) {
	var lanes []*lane
	err := w.all("claim.lanes", func(r row) error {
		if tasks <= 0 {
			return errEnough
		}
		l := w.hold(place{queue, int16(r.int(5))}, r)
		if l.available > 0 {
			lanes = append(lanes, l)
			tasks -= l.available
		}
		return nil
	}, queue)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return lanes, err
}

// claimLane takes tasks from the head of a lane.
func (w *work) claimLane(l *lane, r store.ClaimRequest, tasks []store.Task) ([]store.Task, error) {
	names, first, before, now := w.names(), l.cursor+1, len(tasks), w.time()
	if want := min(int64(r.Limit-before), l.available); cap(tasks)-before < int(want) {
		tasks = append(make([]store.Task, 0, before+int(want)), tasks...)
	}
	err := w.all("claim.tasks", func(row row) error {
		var t stored
		if err := t.scan(row, names); err != nil {
			return err
		}
		t.hold(r.Token, r.Worker, now)
		tasks = append(tasks, t.Task)
		l.cursor = t.pos
		return nil
	}, l.id, l.cursor, r.Limit-before)
	if err != nil {
		return nil, err
	}
	n := int64(len(tasks) - before)
	if n == 0 { // the counter of a damaged file is wrong; corrected, it does not hold up other lanes
		w.store.log.Warn("sqlite: a lane counts available tasks that do not exist: its counter is set to 0", "queue", l.queue,
			"priority", l.priority, "counted", l.available)
		l.available, l.changed = 0, true
		return tasks, nil
	}
	l.available -= n
	l.running += n
	l.changed = true
	_, err = w.run("lease.add", l.id, first, l.cursor, n, r.Token, r.Worker, w.now)
	return tasks, err
}

// heldBy returns the tasks that a token's leases still hold, in the order in which they were claimed.
func (w *work) heldBy(token store.Token) ([]store.Task, error) {
	leases, err := w.leasesOf(token)
	if err != nil {
		return nil, err
	}
	var tasks []store.Task
	for _, l := range leases {
		if err := openTasks(w.ctx, w.session, w.names(), l, int(l.open), &tasks); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// openTasks appends up to limit tasks of a lease that are not finished.
func openTasks(
	ctx context.Context, c session, names func(int64) (name, error), l *lease, limit int, tasks *[]store.Task,
) error {
	return c.each(ctx, "lease.tasks", func(r row) error {
		var t stored
		if err := t.scan(r, names); err != nil {
			return err
		}
		t.hold(l.token, l.worker, at(l.claimedAt))
		*tasks = append(*tasks, t.Task)
		return nil
	}, l.lane, l.first, l.last, limit)
}

// leasesOf returns the leases of a token. Usually there is one.
func (w *work) leasesOf(token store.Token) ([]*lease, error) {
	if leases, ok := w.leases[token]; ok {
		return leases, nil
	}
	var leases []*lease
	err := w.all("lease.find", func(r row) error {
		leases = append(leases, readLease(r))
		return nil
	}, token)
	if err != nil {
		return nil, err
	}
	if w.leases == nil {
		w.leases = map[store.Token][]*lease{}
	}
	w.leases[token] = leases
	return leases, nil
}

func readLease(r row) *lease {
	return &lease{lane: r.int(0), first: r.int(1), last: r.int(2), open: r.int(3), token: r.token(4), worker: r.id(5),
		claimedAt: r.int(6)}
}

// covering returns the lease that holds a position, or nil if none does.
func covering(leases []*lease, lane, pos int64) *lease {
	for _, l := range leases {
		if l.lane == lane && l.first <= pos && pos <= l.last {
			return l
		}
	}
	return nil
}

// allLeases reads the leases of all open claims.
func allLeases(ctx context.Context, c session) ([]*lease, error) {
	var leases []*lease
	err := c.each(ctx, "lease.all", func(r row) error {
		leases = append(leases, readLease(r))
		return nil
	})
	return leases, err
}

// flushLeases writes the leases that finished tasks have shrunk.
func (w *work) flushLeases() error {
	for _, leases := range w.leases {
		for _, l := range leases {
			var err error
			switch {
			case !l.changed:
			case l.open == 0:
				_, err = w.run("lease.drop", l.token, l.lane, l.first)
			default:
				_, err = w.run("lease.write", l.open, l.token, l.lane, l.first)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
