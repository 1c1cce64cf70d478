package couchbase

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// lockTime is for how long a claim locks the cursor of a lane. A lock that is lost lets others in; the tasks decide.
const lockTime = 2 * time.Second

// Claim implements store.Leaser.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (_ []store.Task, err error) {
	defer says(&err, "claim")
	c := &claim{s: s, ctx: ctx, r: r, worker: r.Worker.String(), token: r.Token.String()}
	return c.do()
}

// claim is one request.
type claim struct {
	s             *Store
	ctx           context.Context
	r             store.ClaimRequest
	worker, token string
	got           []*doc
	meant         bool // an intent stands in the worker's document
}

func (c *claim) do() ([]store.Task, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	c.s.claims.Add(1)
	if c.r.Again {
		return c.again()
	}
	for _, queue := range c.r.Queues {
		lanes, err := c.s.lanes(c.ctx, queue)
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			for more := true; more && len(c.got) < c.r.Limit; {
				if more, err = c.take(l); err == errUsed {
					return nil, nil
				} else if err = c.s.passing(err); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(c.got) == 0 {
		if c.meant { // and others have got it all
			c.s.lent.forgo(c.worker, c.token)
		}
		_, err := c.s.meant(c.ctx, c.worker, c.token) // it lives: a claim that finds something learns that from its intent
		return nil, err
	}
	return c.answers(), nil
}

// errUsed refuses a token that has claimed already.
var errUsed = errors.New("the token has been used")

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
	held, err := query[string](c.ctx, s, queryHeld, args{"w": c.worker, "n": store.MaxPage}, requestPlus)
	if err != nil {
		return nil, err
	}
	for _, id := range held {
		if !known[id] {
			meant = append(meant, id)
		}
	}
	docs, err := readEach(c.ctx, inTask, meant, s.load)
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

// take claims from one lane, and reports whether there may be more. While nobody else moves the lane's cursor, its
// move by CAS is enough. After a conflict claimers lock the cursor for a while, and so wait for each other.
func (c *claim) take(l lane) (more bool, err error) {
	s := c.s
	at, p, err := c.look(l)
	if err != nil || p == nil {
		return err == nil && at != nil, err
	}
	var unlock func() // nil: it is not locked
	if s.minds.busy(l) || at.cas == maskedCAS {
		was := at.cursor
		if at.cursor, at.cas, err = c.lock(l); err != nil {
			return false, err
		}
		unlock = func() {
			_ = s.lines.Unlock(l.cursor(), at.cas, &gocb.UnlockOptions{Context: c.ctx, RetryStrategy: failFast{}})
		}
		if at.cursor != was {
			p, err = s.readPage(c.ctx, l, at.Page)
		}
		if err != nil || p == nil {
			unlock()
			if err == nil {
				err = s.heal(c.ctx, l, at.cursor)
			}
			return true, err
		}
	}
	chosen, to, err := c.choose(l, p, at.cursor)
	if err == nil && len(chosen) > 0 {
		err = c.intend(chosen)
	}
	if err != nil {
		if unlock != nil {
			unlock()
		}
		return false, err
	}
	lost, err := c.lease(l, at, to, chosen, unlock)
	return lost || to.Page != at.Page || to.Place < len(p.Entries), err
}

// maskedCAS is what a locked document shows instead of its CAS.
const maskedCAS = ^gocb.Cas(0)

// look finds out without a lock whether a lane has something; most polls end here. Without a page it has found
// nothing; if it then returns a cursor, the caller looks again.
func (c *claim) look(l lane) (at *mark, p *page, err error) {
	s := c.s
	at, known := s.minds.get(l)
	if !known {
		is, cas, err := s.cursorOf(c.ctx, l)
		if is == nil || err != nil {
			return nil, nil, err
		}
		at = &mark{*is, cas}
	}
	if p, err = s.readPage(c.ctx, l, at.Page); err != nil {
		return nil, nil, err
	}
	switch {
	case p != nil && len(p.Entries) == at.Place && p.G != nil:
		return nil, nil, nil
	case p != nil && len(p.Entries) >= at.Place:
		return at, p, nil
	case known: // it was not so when the cursor was read
		s.minds.forget(l)
		return at, nil, nil
	case p != nil: // entries were lost where the cursor was not
		return nil, nil, s.move(c.ctx, l, at.cursor, cursor{at.Page, len(p.Entries)})
	}
	now, err := s.open(c.ctx, l) // the cursor has moved on, or the page was lost
	if err == nil && now == at.cursor {
		err = s.heal(c.ctx, l, now)
	}
	return at, nil, err
}

// lock locks the cursor. Who finds it locked tries again after a pause, which grows with each try and is remembered
// for the next lock: claimers of a lane wait for each other instead of failing, and ask rarely while they are many.
func (c *claim) lock(l lane) (cur cursor, cas gocb.Cas, err error) {
	pause := c.s.minds.pause(l)
	for try := 1; ; try++ {
		got, err := c.s.lines.GetAndLock(l.cursor(), lockTime, &gocb.GetAndLockOptions{Context: c.ctx,
			RetryStrategy: failFast{}})
		if err == nil {
			c.s.minds.locked(l, try, pause)
			if err = got.Content(&cur); err != nil { // whoever reads it next mends it
				c.s.minds.forget(l)
			}
			return cur, got.Cas(), err
		}
		if !errors.Is(err, gocb.ErrDocumentLocked) && !unknown(err) {
			return cur, 0, err
		}
		c.s.conflicts.Add(1) // or its answer was lost: then the lock ends by itself
		select {
		case <-c.ctx.Done():
			return cur, 0, c.ctx.Err()
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, mostPause)
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
			return c.s.passing(err)
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
// unknown. It fails if the worker does not live, and the first time also if the token has been used.
func (c *claim) intend(chosen []*doc) error {
	ids := make([]string, len(chosen))
	for i, d := range chosen {
		ids[i] = d.ID
	}
	name := gocb.InsertSpec(leasePath(c.token), ids, nil)
	if c.meant {
		name = gocb.ArrayAppendSpec(leasePath(c.token), ids, &gocb.ArrayAppendSpecOptions{HasMultiple: true,
			CreatePath: true})
	}
	err := c.s.intend(c.ctx, c.worker, name)
	if errors.Is(err, gocb.ErrPathExists) { // by another request, or by this one, whose answer was lost
		slices.Sort(ids)
		is, err := c.s.meant(c.ctx, c.worker, c.token)
		if err == nil && !slices.Equal(is, slices.Compact(ids)) {
			err = errUsed
		}
		c.meant = err == nil
		return err
	}
	c.meant = c.meant || err == nil
	return err
}

// lease moves the cursor, which unlocks it if it was locked, and leases the tasks. It reports whether any was lost to
// others. Without a lock the move comes first: if it is refused, others have claimed from there, and nothing is
// leased. A page that was read to its end is deleted, if the move is known.
func (c *claim) lease(l lane, from *mark, to cursor, chosen []*doc, unlock func()) (lost bool, err error) {
	s, now := c.s, c.s.now(c.ctx)
	moved := false
	move := func() error {
		done, err := s.lines.Replace(l.cursor(), to, &gocb.ReplaceOptions{Context: c.ctx, Cas: from.cas,
			RetryStrategy: failFast{}})
		if moved = err == nil; moved {
			s.minds.set(l, &mark{to, done.Cas()})
		} else { // where it is not known, the tasks decide
			s.minds.clash(l)
			s.conflicts.Add(1)
		}
		return err
	}
	if unlock == nil && to != from.cursor && mismatch(move()) {
		return true, nil
	}
	won := make([]bool, len(chosen))
	err = each(len(chosen)+1, func(i int) (err error) {
		switch {
		case i > 0:
			won[i-1], err = s.leaseOne(c.ctx, chosen[i-1], c.worker, c.token, now)
		case unlock == nil: // it has been moved
		case to == from.cursor:
			unlock()
		default:
			_ = move() // a lock may be lost: the tasks decide
		}
		return err
	})
	if err != nil {
		return false, err
	}
	for i, d := range chosen {
		if won[i] {
			c.got = append(c.got, d)
			continue
		}
		lost = true
		if err := s.lineUpAgain(c.ctx, d.ref); err != nil {
			return lost, err
		}
	}
	if moved && to.Page != from.Page {
		s.dropPage(c.ctx, l, from.Page)
	}
	return lost, nil
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
