package mysql

import (
	"context"
	"database/sql"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// Claim implements store.Leaser. A poll that finds nothing reads two indexes and
// begins no transaction.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	s.claims.Add(1)
	queues := r.Queues
	if !r.Again && !s.busy(r.Queues) {
		var err error
		if queues, err = s.probe(ctx, r); err != nil || len(queues) == 0 {
			return nil, wrap("claim", err)
		}
	}
	var c *claim
	err := s.write(ctx, func(w *work) error {
		c = &claim{work: w, request: r}
		return c.run(queues)
	})
	if err != nil {
		return nil, wrap("claim", err)
	}
	if c.again != nil {
		return c.again, nil
	}
	return c.tasks(), nil
}

// probe returns the queues in which something is available.
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
	s.trips.Add(1)
	rows, err := s.db.QueryContext(ctx, strings.Join(parts, " union all "), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var queue, dead int
		if err := rows.Scan(&queue, &dead); err != nil {
			return nil, err
		}
		if queue < 0 {
			living = dead == 0
		} else {
			found = append(found, r.Queues[queue])
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if !living {
		return nil, store.ErrWorkerDead
	}
	return found, nil
}

// busy reports whether the last claim of the first queue left something there.
func (s *Store) busy(queues []string) bool {
	if len(queues) == 0 {
		return false
	}
	h, known := s.hints.Load(queues[0])
	return known && h.(hint).busy
}

// hint is what the last claim saw of a queue.
type hint struct {
	busy   bool
	perRow int // how many tasks a row stood for
}

func (s *Store) perRow(queue string) int {
	if h, known := s.hints.Load(queue); known {
		return h.(hint).perRow
	}
	return 1
}

// claim is one attempt to answer a request.
type claim struct {
	*work
	request store.ClaimRequest
	dead    bool // the worker is
	taken   []span
	lanes   []lane // of the same
	found   map[ref]*row
	lease   lease
	again   []store.Task
}

// run takes tasks for a worker that lives.
func (c *claim) run(queues []string) error {
	if c.request.Again {
		if done, err := c.repeat(); done || err != nil {
			return err
		}
	}
	left := c.request.Limit
	for _, queue := range queues {
		if left <= 0 {
			break
		}
		taken, err := c.take(queue, left)
		if err != nil {
			return err
		}
		left -= taken
	}
	if len(c.taken) == 0 {
		return c.living()
	}
	if c.dead {
		return store.ErrWorkerDead
	}
	c.write()
	return nil
}

// living fails unless the worker lives.
func (c *claim) living() error {
	living := false
	err := c.ask(func(rows *sql.Rows) error {
		dead := 0
		err := rows.Scan(&dead)
		living = dead == 0
		return err
	}, q("worker.read"), c.request.Worker[:])
	if err == nil && !living {
		return store.ErrWorkerDead
	}
	return err
}

// repeat finds what an earlier request with the same token has got.
func (c *claim) repeat() (done bool, err error) {
	found, err := c.readLeases(list("lease.read", "?", 1), c.request.Token[:])
	if err != nil || len(found) == 0 {
		return false, err
	}
	if err := c.living(); err != nil {
		return false, err
	}
	c.again, err = c.open(found[0])
	if err != nil || len(c.again) > 0 {
		return true, err
	}
	c.deleteLeases([]leaseKey{found[0].key()})
	return false, nil
}

// take takes up to limit tasks off the list of a queue, passing over what others
// are taking, and returns how many it took.
func (c *claim) take(queue string, limit int) (int, error) {
	perRow := c.store.perRow(queue)
	var rows []*ready
	seen := 0
	ask := (limit + perRow - 1) / perRow
	if perRow > 1 { // of the first row some may be gone
		ask++
	}
	for {
		rows, seen = rows[:0], 0
		err := c.ask(func(r *sql.Rows) error {
			y, err := readReady(r, &c.now, &c.dead)
			rows = append(rows, y)
			seen += int(y.last-y.next) + 1
			return err
		}, q("ready.take"), c.request.Worker[:], []byte(queue), ask)
		if err != nil {
			return 0, err
		}
		if seen >= limit || len(rows) < ask {
			break
		}
		perRow = max(seen/len(rows), 1)
		ask = len(rows) + (limit-seen+perRow-1)/perRow
	}
	if len(rows) > 0 {
		c.store.hints.Store(queue, hint{seen >= limit, max(seen/len(rows), 1)})
	} else if c.store.busy([]string{queue}) {
		c.store.hints.Store(queue, hint{false, perRow})
		c.store.conflicts.Add(1)
	}
	return c.cut(queue, rows, limit), nil
}

// cut takes tasks from the head of a queue's rows.
func (c *claim) cut(queue string, rows []*ready, limit int) (taken int) {
	for _, y := range rows {
		if taken == limit {
			break
		}
		n := min(limit-taken, int(y.last-y.next)+1)
		c.taken = append(c.taken, span{y.place, y.next, y.next + int16(n) - 1, y.lap})
		c.lanes = append(c.lanes, lane{queue, y.priority, store.Available})
		taken += n
		if y.next += int16(n); y.next > y.last {
			c.do(q("ready.delete"), y.key()...)
		} else {
			c.do(q("ready.cut"), append([]any{y.next, y.last}, y.key()...)...)
		}
	}
	c.sums.count(queue, store.Available, -int64(taken))
	c.sums.count(queue, store.Running, int64(taken))
	return taken
}

// write reads the tasks and writes the lease, with the commit.
func (c *claim) write() {
	c.found = map[ref]*row{}
	byLane := map[lane][]span{}
	for i, s := range c.taken {
		byLane[c.lanes[i]] = append(byLane[c.lanes[i]], s)
	}
	for of, spans := range byLane {
		c.read(of, spans)
	}
	r := &c.request
	c.lease = lease{r.Token, r.Worker, c.now, c.taken}
	c.do(q("lease.insert"), r.Token[:], r.Worker[:], c.now, encodeSpans(c.taken))
}

// read reads the tasks of a lane, with the commit.
func (c *claim) read(of lane, spans []span) {
	inParts(spans, maxSpans, func(part []span) error {
		text, args := among("task.lent", part)
		c.buf = append(c.buf, stmt{text, args, func(rows *sql.Rows) error {
			r, err := readLent(rows, of)
			if err == nil {
				c.found[ref{r.place, r.n, 0}] = r
			}
			return err
		}})
		return nil
	})
}

// tasks returns what was claimed, in order.
func (c *claim) tasks() (tasks []store.Task) {
	where := map[store.ID]ref{}
	for _, r := range refsOf(c.taken) {
		if t := c.found[ref{r.place, r.n, 0}]; t != nil {
			tasks = append(tasks, t.lent(&c.lease))
			where[t.ID] = r
		}
	}
	if len(tasks) > 0 {
		c.store.leases.add(c.lease, where)
	}
	return tasks
}
