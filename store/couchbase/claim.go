package couchbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// lockTime is for how long a claim locks the cursor of a lane. A lock that is lost lets others in; the tasks decide.
const lockTime = 2 * time.Second

// Claim implements store.Leaser.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	c := &claim{s: s, ctx: ctx, r: r, worker: r.Worker.String(), token: r.Token.String()}
	tasks, err := c.do()
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return tasks, nil
}

// claim is one request.
type claim struct {
	s             *Store
	ctx           context.Context
	r             store.ClaimRequest
	worker, token string
	got           []*doc
}

func (c *claim) do() ([]store.Task, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	c.s.claims.Add(1)
	if c.r.Again {
		return c.again()
	}
	used, err := c.living()
	if err != nil || used {
		return nil, err // a token claims once
	}
	for _, queue := range c.r.Queues {
		lanes, err := c.s.lanes(c.ctx, queue)
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			for more := true; more && len(c.got) < c.r.Limit; {
				if more, err = c.take(l); err != nil {
					return nil, err
				}
			}
		}
	}
	return c.answers(), nil
}

// living fails unless the worker lives, and reports whether the token has been used.
func (c *claim) living() (used bool, err error) {
	var found *gocb.LookupInResult
	err = c.s.again(c.ctx, func() (err error) {
		found, err = c.s.meta.LookupIn(workerKey(c.worker), []gocb.LookupInSpec{gocb.ExistsSpec("g", nil),
			gocb.ExistsSpec(leasePath(c.token), nil)},
			&gocb.LookupInOptions{Context: c.ctx})
		return err
	})
	if errors.Is(err, gocb.ErrDocumentNotFound) || err == nil && !found.Exists(0) {
		return false, store.ErrWorkerDead
	}
	return err == nil && found.Exists(1), err
}

func (c *claim) answers() []store.Task {
	tasks := make([]store.Task, len(c.got))
	for i, d := range c.got {
		tasks[i] = d.task().answer(false)
		c.s.lent.put(d)
	}
	return tasks
}

// again returns what the first request of the token has claimed, and makes sure that it claims no more. The intent
// may be gone where a lease is not, so the index is asked, too.
func (c *claim) again() ([]store.Task, error) {
	s := c.s
	meant, err := s.meant(c.ctx, c.worker, c.token)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, id := range meant {
		known[id] = true
	}
	err = query(c.ctx, s, queryHeld, args{"w": c.worker, "n": store.MaxPage}, requestPlus, func(id string) {
		if !known[id] {
			meant = append(meant, id)
		}
	})
	if err != nil {
		return nil, err
	}
	docs := make([]*doc, len(meant))
	err = each(len(meant), func(i int) (err error) {
		docs[i], err = s.load(c.ctx, ref{inTask, meant[i]})
		return err
	})
	if err != nil {
		return nil, err
	}
	var passed []*task
	for _, d := range docs {
		switch {
		case d == nil:
		case d.task().holds(c.r.Token):
			c.got = append(c.got, d)
		case d.task().State == "a" && known[d.ID]:
			passed = append(passed, d.task())
		}
	}
	return c.answers(), s.queueUp(c.ctx, passed...)
}

// take claims from one lane, and reports whether there may be more.
func (c *claim) take(l lane) (more bool, err error) {
	s := c.s
	at, look, err := c.look(l)
	if err != nil || look == nil {
		return err == nil && at != nil, err
	}
	cur, cas, err := c.lock(l)
	if err != nil {
		return false, err
	}
	unlock := func() {
		_ = s.lines.Unlock(l.cursor(), cas, &gocb.UnlockOptions{Context: c.ctx, RetryStrategy: failFast{}})
	}
	p, err := s.readPage(c.ctx, l, cur.Page)
	if err != nil || p == nil {
		unlock()
		if err == nil {
			err = s.heal(c.ctx, l, cur)
		}
		return true, err
	}
	chosen, to, err := c.choose(l, p, cur)
	if err == nil && len(chosen) > 0 {
		err = c.intend(chosen)
	}
	if err != nil {
		unlock()
		return false, err
	}
	return true, c.lease(l, cas, cur, to, chosen, unlock)
}

// look finds out without a lock whether a lane has something; most polls end here. Without a page to read it answers
// nothing; with a cursor beside that the caller looks again.
func (c *claim) look(l lane) (at *cursor, p *page, err error) {
	s := c.s
	raw, _, err := s.get(c.ctx, s.lines, l.cursor())
	if raw == nil || err != nil {
		return nil, nil, err
	}
	cur := cursor{}
	if err := json.Unmarshal(raw, &cur); err != nil {
		return nil, nil, err
	}
	var found *gocb.LookupInResult
	err = s.again(c.ctx, func() (err error) {
		found, err = s.lines.LookupIn(l.page(cur.Page), []gocb.LookupInSpec{gocb.GetSpec("c", nil),
			gocb.ExistsSpec("g", nil)},
			&gocb.LookupInOptions{Context: c.ctx})
		return err
	})
	if errors.Is(err, gocb.ErrDocumentNotFound) { // the cursor has moved on, or the page was lost
		now, err := s.open(c.ctx, l)
		if err == nil && now == cur {
			err = s.heal(c.ctx, l, cur)
		}
		return &cur, nil, err
	}
	count := 0
	if err == nil {
		err = found.ContentAt(0, &count)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case count < cur.Place: // entries were lost where the cursor was not
		return nil, nil, s.move(c.ctx, l, cur, cursor{cur.Page, count})
	case count == cur.Place && found.Exists(1):
		return nil, nil, nil
	}
	return &cur, &page{}, nil
}

// lock locks the cursor. Who finds it locked tries again soon: claimers of a lane wait for each other instead of
// failing.
func (c *claim) lock(l lane) (cur cursor, cas gocb.Cas, err error) {
	for {
		got, err := c.s.lines.GetAndLock(l.cursor(), lockTime, &gocb.GetAndLockOptions{Context: c.ctx,
			RetryStrategy: failFast{}})
		if err == nil {
			return cur, got.Cas(), got.Content(&cur)
		}
		if !errors.Is(err, gocb.ErrDocumentLocked) && !unknown(err) {
			return cur, 0, err
		}
		c.s.conflicts.Add(1) // or its answer was lost: then the lock ends by itself
		select {
		case <-c.ctx.Done():
			return cur, 0, c.ctx.Err()
		case <-time.After(100*time.Microsecond + time.Duration(rand.Int64N(400_000))):
		}
	}
}

// choose reads the tasks of a page from the cursor on, and returns those to lease and where the cursor goes.
func (c *claim) choose(l lane, p *page, cur cursor) (chosen []*doc, to cursor, err error) {
	to = cur
	want := c.r.Limit - len(c.got)
	for to.Place < len(p.Entries) && len(chosen) < want {
		batch := p.Entries[to.Place:min(len(p.Entries), to.Place+want-len(chosen))]
		found := make([]*doc, len(batch))
		err := each(len(batch), func(i int) (err error) {
			found[i], err = c.s.load(c.ctx, ref{inTask, batch[i].id})
			return err
		})
		if err != nil {
			return nil, to, err
		}
		for i, d := range found {
			if d != nil && d.task().stands(l, batch[i].lap) {
				chosen = append(chosen, d)
			}
		}
		to.Place += len(batch)
	}
	if to.Place == len(p.Entries) && p.G == nil {
		to = cursor{to.Page + 1, 0}
	}
	return chosen, to, nil
}

// stands reports whether a task is available in a lane, in a lap.
func (t *task) stands(l lane, lap int) bool {
	return t.State == "a" && t.Lap == lap && t.Queue == l.queue && t.Priority == l.priority
}

// intend writes down in the worker's document what is about to be leased, so that nothing that is leased is ever
// unknown. It fails if the worker does not live.
func (c *claim) intend(chosen []*doc) error {
	ids := make([]string, len(chosen))
	for i, d := range chosen {
		ids[i] = d.ID
	}
	return c.s.intend(c.ctx, c.worker, c.token, ids)
}

// lease moves the cursor, which unlocks it, and leases the tasks. A page that was read to its end is deleted, if the
// move is known.
func (c *claim) lease(l lane, cas gocb.Cas, from, to cursor, chosen []*doc, unlock func()) error {
	s, now := c.s, c.s.now(c.ctx)
	moved := false
	won := make([]bool, len(chosen))
	err := each(len(chosen)+1, func(i int) (err error) {
		if i > 0 {
			won[i-1], err = s.leaseOne(c.ctx, chosen[i-1], c.worker, c.token, now)
			return err
		}
		if to == from {
			unlock()
			return nil
		}
		_, err = s.lines.Replace(l.cursor(), to, &gocb.ReplaceOptions{Context: c.ctx, Cas: cas, RetryStrategy: failFast{}})
		moved = err == nil // where it is not known, the tasks decide
		return nil
	})
	if err != nil {
		return err
	}
	for i, d := range chosen {
		if won[i] {
			c.got = append(c.got, d)
		} else if err := s.lineUpAgain(c.ctx, d.ref); err != nil {
			return err
		}
	}
	if moved && to.Page != from.Page {
		s.dropPage(c.ctx, l, from.Page)
	}
	return nil
}

// leaseOne lends a task to a worker, if it is as it was read.
func (s *Store) leaseOne(ctx context.Context, d *doc, worker, token string, now int64) (bool, error) {
	t := d.task()
	t.Attempt++
	t.Claimed = max(now, t.Since, t.Written)
	t.State, t.Since, t.Available = "r", t.Claimed, 0
	t.Run = []lease{{worker, token}}
	won, err := s.replace(ctx, d, gocb.DurabilityLevelUnknown)
	if err == nil && !won {
		s.conflicts.Add(1)
	}
	return won, err
}

// lineUpAgain appends a task that is still available where the cursor may have passed it.
func (s *Store) lineUpAgain(ctx context.Context, r ref) error {
	d, err := s.load(ctx, r)
	if d == nil || err != nil || d.task().State != "a" {
		return err
	}
	return s.queueUp(ctx, d.task())
}
