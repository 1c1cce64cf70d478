package mysql

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// Claim implements store.Leaser. A poll that finds nothing reads two indexes and begins no transaction.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	s.claims.Add(1)
	queues := r.Queues
	if !r.Again && !s.hint(r.Queues).busy {
		var err error
		if queues, err = s.probe(ctx, r); err != nil || len(queues) == 0 {
			if err == nil {
				s.wakes.claimed(r.Queues, 0)
			}
			return nil, wrap("claim", err)
		}
	}
	c := &claim{request: r, queues: queues}
	done, err := false, error(nil)
	if !r.Again && r.Limit > 0 {
		done, err = s.claiming.Do(ctx, c, r.Limit, joinable, s.claimTogether)
	}
	if !done {
		err = s.claimAlone(ctx, c)
	}
	if err != nil {
		return nil, wrap("claim", err)
	}
	if len(c.tasks) < r.Limit {
		s.wakes.claimed(r.Queues, len(c.tasks))
	}
	return c.tasks, nil
}

// joinable reports whether claims want the same queues.
func joinable(a, b *claim) bool {
	return slices.Equal(a.queues, b.queues) && a.request.Token != b.request.Token
}

// claimTogether answers several claims at once, or none if one of their workers is dead.
func (s *Store) claimTogether(ctx context.Context, all []*claim) (done bool, err error) {
	err = s.again(ctx, patientTries, func() (bool, error) { return s.take(ctx, all) })
	return len(all) == 1 || !errors.Is(err, store.ErrWorkerDead), err
}

// claimAlone answers one claim.
func (s *Store) claimAlone(ctx context.Context, c *claim) error {
	return s.again(ctx, patientTries, func() (sent bool, err error) {
		if c.request.Again {
			return false, s.repeat(ctx, c)
		}
		return s.take(ctx, []*claim{c})
	})
}

// probe returns the queues with available tasks.
func (s *Store) probe(ctx context.Context, r store.ClaimRequest) (found []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	parts, args := []string{q("probe.worker")}, []any{r.Worker[:]}
	for i, queue := range r.Queues {
		parts = append(parts, q("probe.queue"))
		args = append(args, i, []byte(queue))
	}
	living := false
	err = s.query(ctx, func(rows *sql.Rows) error {
		var queue, dead int
		err := rows.Scan(&queue, &dead)
		if queue < 0 {
			living = dead == 0
		} else {
			found = append(found, r.Queues[queue])
		}
		return err
	}, strings.Join(parts, " union all "), args...)
	if err != nil {
		return nil, err
	}
	if !living {
		return nil, store.ErrWorkerDead
	}
	return found, nil
}

// hint is what the last claim learned about a queue.
type hint struct {
	busy   bool
	perRow int // how many tasks a row covered
}

func (s *Store) hint(queues []string) hint {
	if len(queues) > 0 {
		if h, known := s.hints.Load(queues[0]); known {
			return h.(hint)
		}
	}
	return hint{false, 1}
}

// claim is a request and its result.
type claim struct {
	request store.ClaimRequest
	queues  []string // the queues with available tasks
	tasks   []store.Task
	lease   lease
	where   map[store.ID]ref
	early   bool // a task was read as it was before it became available
}

// empty resets a claim that may have had results before it was rolled back.
func (c *claim) empty() {
	c.tasks = make([]store.Task, 0, min(max(c.request.Limit, 0), 1000))
	c.where = make(map[store.ID]ref, cap(c.tasks))
	c.lease, c.early = lease{token: c.request.Token, worker: c.request.Worker}, false
}

// add adds a task that was leased in the given lap.
func (c *claim) add(t *row, claimed int64, lap int32) {
	c.early = c.early || t.lap != lap
	t.lap, c.lease.claimedAt = lap, claimed
	if n := len(c.lease.spans); n > 0 && c.lease.spans[n-1].place == t.place && c.lease.spans[n-1].last+1 == t.n &&
		c.lease.spans[n-1].lap == t.lap {
		c.lease.spans[n-1].last = t.n
	} else {
		c.lease.spans = append(c.lease.spans, span{t.place, t.n, t.n, t.lap})
	}
	c.tasks = append(c.tasks, t.lent(&c.lease))
	c.where[t.ID] = t.ref
}

// repeat finds the result of an earlier request with the same token. If the connection broke while that request was
// being committed, the lock waits for the end of the commit.
func (s *Store) repeat(ctx context.Context, c *claim) error {
	r := &c.request
	_, err := s.attempt(ctx, false, func(w *work) error {
		c.tasks = nil // an earlier try may have read some, and failed at its commit
		if err := w.living(r.Worker); err != nil {
			return err
		}
		found, err := w.readLeases(list("lease.read", "?", 1)+" for update", r.Token[:])
		if err != nil || len(found) == 0 {
			return err
		}
		unseen := 0
		c.tasks, unseen, err = w.open(found[0])
		w.echoes = len(c.tasks) > 0
		if err == nil && !w.echoes && unseen == 0 && !found[0].damaged {
			w.deleteLeases([]leaseKey{found[0].key()})
		}
		return err
	})
	return err
}

// living fails unless the worker is alive.
func (w *work) living(worker store.ID) error {
	living := false
	err := w.ask(func(rows *sql.Rows) error {
		dead := 0
		err := rows.Scan(&dead)
		living = dead == 0
		return err
	}, q("worker.read"), worker[:])
	if err == nil && !living {
		return store.ErrWorkerDead
	}
	return err
}

// take takes tasks off the lists of the queues that the claims name. The first claim gets the first tasks.
func (s *Store) take(ctx context.Context, all []*claim) (sent bool, err error) {
	queues := all[0].queues
	was := s.hint(queues)
	var requests []byte
	wanted, got, spans, i := 0, 0, 0, 0
	for _, c := range all {
		c.empty()
		limit := max(c.request.Limit, 0)
		wanted += limit
		requests = append(append(requests, c.request.Token[:]...), c.request.Worker[:]...)
		requests = binary.BigEndian.AppendUint32(requests, uint32(limit))
	}
	leased, sent, err := s.call(ctx, func(rows *sql.Rows) error {
		var claimed int64
		var lap int32
		t, err := readLent(rows, &claimed, &lap)
		if err != nil {
			return err
		}
		for len(all[i].tasks) == all[i].request.Limit {
			i++
		}
		all[i].add(t, claimed, lap)
		return nil
	}, "tusk_claim", requests, wanted, namesOf(queues), was.perRow)
	if codeOf(err) == codeWorkerDead {
		return sent, store.ErrWorkerDead
	}
	if err != nil || len(queues) == 0 {
		return sent, err
	}
	early := false
	for _, c := range all {
		got, early = got+len(c.tasks), early || c.early
	}
	early = early || got < leased
	for _, c := range all {
		whole := true
		if early {
			if whole, err = s.reread(ctx, c); err != nil {
				return true, err
			}
		}
		if whole && len(c.tasks) > 0 {
			s.leases.add(c.lease, c.where)
		}
		spans += len(c.lease.spans)
	}
	is := hint{false, was.perRow}
	if leased > 0 {
		is = hint{leased == wanted, min(max(leased/max(spans, 1), 1), maxSpan)}
	}
	s.learn(queues[0], was, is)
	return sent, nil
}

// reread reads a lease and its tasks again until all of them are there. InnoDB releases the locks of a transaction
// before other transactions can see its changes: a moment before, or longer if the server's thread has to wait for a
// processor in between. So a claim may find a task in tusk_ready and read an old version of its row, or no row. Tasks
// that are still missing after many tries are not remembered as part of the lease, and come back as strays.
func (s *Store) reread(ctx context.Context, c *claim) (whole bool, err error) {
	for n := 1; !whole && err == nil && n <= tries; n++ {
		if n > 1 {
			pause(ctx, n)
		}
		_, err = s.attempt(ctx, false, func(w *work) error {
			c.empty()
			found, err := w.readLeases(list("lease.read", "?", 1), c.request.Token[:])
			if whole = err == nil && len(found) == 0; err != nil || whole {
				return err
			}
			c.lease = *found[0]
			refs := refsOf(c.lease.spans)
			c.tasks, _, err = w.open(&c.lease)
			if whole = err == nil && len(c.tasks) == len(refs); whole {
				for i, r := range refs {
					c.where[c.tasks[i].ID] = r
				}
			}
			return err
		})
	}
	return whole, err
}

// namesOf encodes the names of queues as procedures take them.
func namesOf(queues []string) (names []byte) {
	for _, queue := range queues {
		names = append(append(names, byte(len(queue))), queue...)
	}
	return names
}

// learn records what a claim saw.
func (s *Store) learn(queue string, was, is hint) {
	if was.busy && !is.busy {
		s.conflicts.Add(1)
	}
	if is != was {
		s.hints.Store(queue, is)
	}
}
