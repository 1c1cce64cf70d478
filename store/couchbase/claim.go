package couchbase

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// lockTime is how long a claim locks the cursor of a lane. If a lock is lost, others claim from the lane too, and the
// CAS of the tasks decides.
const lockTime = 2 * time.Second

// Claim implements store.Leaser.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (_ []store.Task, err error) {
	defer says(&err, "claim")
	c := &claim{s: s, ctx: ctx, r: r, worker: r.Worker.String(), token: r.Token.String()}
	s.claims.Add(1)
	if r.Again {
		return c.again()
	}
	for _, queue := range r.Queues {
		lanes, err := s.lanes(ctx, queue)
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			for more := true; more && len(c.got) < r.Limit && (c.away == nil || len(c.got) == 0); {
				if more, err = c.take(l); err == errUsed {
					return nil, nil
				} else if err = s.passing(err); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(c.got) > 0 {
		return c.answers(), nil
	}
	// Check that the worker lives. A claim that finds tasks learns this from its intent.
	_, err = s.meant(ctx, c.worker, c.token)
	if err = cmp.Or(err, c.away); err == nil && c.meant { // others have claimed all of it
		s.lent.forgo(c.worker, c.token)
	}
	return nil, err
}

// claim is one call of Claim.
type claim struct {
	s             *Store
	ctx           context.Context
	r             store.ClaimRequest
	worker, token string
	got           []*doc
	meant         bool  // the worker's document has an intent with the token
	locked        bool  // the cursor of the lane is locked
	away          error // why a lane could not be read
}

// errUsed refuses a token that was used for another claim.
var errUsed = errors.New("the token has been used")

func (c *claim) answers() []store.Task {
	tasks := make([]store.Task, len(c.got))
	for i, d := range c.got {
		tasks[i] = d.task().lentOut()
	}
	c.s.lent.put(c.got)
	return tasks
}

// again returns what the first call with the token has claimed. A failover may have lost an intent and kept its lease,
// so again also queries the index. If the index does not answer, claims go on, and the leader queries it later.
func (c *claim) again() ([]store.Task, error) {
	s := c.s
	meant, err := s.meant(c.ctx, c.worker, c.token)
	if err != nil {
		return nil, err
	}
	held, err := s.heldBy(c.ctx, c.worker)
	if err != nil {
		err = s.mutate(c.ctx, s.meta, workerKey(c.worker), 0, replaceG, gocb.UpsertSpec("doubt", s.now(c.ctx), nil))
	}
	if absent(err) {
		err = store.ErrWorkerDead
	}
	if err != nil {
		return nil, err
	}
	ids := slices.Compact(slices.Sorted(slices.Values(slices.Concat(meant, held))))
	var passed []*task
	err = until(c.ctx, func(int) (refused bool, err error) {
		docs, err := s.spread(c.ctx, ids, s.load)
		if err != nil {
			return false, err
		}
		var left []*doc
		c.got = nil
		for _, d := range docs {
			if t, is := d.taskIn(); is && t.holds(c.r.Token) {
				c.got = append(c.got, d)
			} else if d != nil && slices.Contains(meant, d.ID) {
				left = append(left, d)
			}
		}
		passed, refused, err = s.refuseLeases(c.ctx, left)
		return refused, err
	})
	if err != nil {
		return nil, err
	}
	_ = s.queueUp(c.ctx, passed...) // otherwise the sweep does it
	if len(c.got) == 0 && len(meant) > 0 {
		err = c.forgo(meant)
	}
	return c.answers(), err // last, because Finish may then change the documents
}

// forgo removes the intent of a claim that got nothing, unless the first call has meant to lease more since.
func (c *claim) forgo(meant []string) error {
	return c.s.alter(c.ctx, workerRef(c.worker), func(d *doc) bool {
		w := d.worker()
		same := w.G != nil && slices.Equal(w.meant(c.token), meant)
		delete(w.Leases, c.token)
		return same
	})
}

// take claims from one lane and reports whether there may be more tasks. As long as nobody else moves the lane's
// cursor, take moves it by CAS. After a clash, claims lock the cursor for a while, and so wait for each other.
func (c *claim) take(l lane) (more bool, err error) {
	s := c.s
	at, p, err := c.looked(l)
	if err != nil || p == nil {
		return err == nil && at != nil, err
	}
	if is := s.minds.of(l); is.busy() || at.cas == maskedCAS {
		was := at.cursor
		if at.cursor, at.cas, err = c.lock(l); err != nil {
			return false, err
		}
		if at.cursor != was {
			p, err = s.readPage(c.ctx, l, at.Page)
		}
		if err != nil || p == nil {
			c.unlock(l, at)
			return true, err // look repairs the cursor
		}
	}
	chosen, most, to, err := c.choose(l, p, at.cursor)
	if err == nil && len(chosen) > 0 {
		err = c.intend(chosen)
	}
	if err != nil {
		c.unlock(l, at)
		return false, err
	}
	lost, err := c.lease(l, at, to, chosen, most)
	return lost || to.Page != at.Page || to.Place < len(p.Entries), err
}

// maskedCAS is the CAS that the server returns for a locked document.
const maskedCAS = ^gocb.Cas(0)

// lock locks the cursor. While others have locked it, lock tries again after a pause, which grows with each try and is
// remembered for the next lock. So the more processes claim from a lane, the less often each of them tries.
func (c *claim) lock(l lane) (cur cursor, cas gocb.Cas, err error) {
	pause := max(c.s.minds.of(l).pause, leastPause)
	for try := 1; ; try++ {
		got, err := c.s.lines.GetAndLock(l.cursor(), lockTime, &gocb.GetAndLockOptions{Context: c.ctx})
		if err == nil {
			c.s.minds.locked(l, try, pause)
			err = got.Content(&cur)
			if c.locked = err == nil; !c.locked { // the next reader resets it
				c.s.minds.forget(l)
			}
			return cur, got.Cas(), err
		}
		if !errors.Is(err, gocb.ErrDocumentLocked) && !unknown(err) {
			return cur, 0, err
		}
		c.s.conflicts.Add(1) // or the answer was lost: then the lock expires by itself
		if err := sleep(c.ctx, pause/2+rand.N(pause)); err != nil {
			return cur, 0, err
		}
		pause = min(2*pause, mostPause)
	}
}

// unlock unlocks the cursor if this claim has locked it, by writing it unchanged. A request to unlock it would make
// servers before 7.6 ask for further tries if the lock has expired.
func (c *claim) unlock(l lane, at *mark) {
	if c.locked {
		_ = c.s.move(c.ctx, l, *at, at.cursor)
	}
	c.locked = false
}

// choose reads the tasks of a page from the cursor on. It returns those to lease, and the new cursor. If only a part of
// the last one, a sheet, is to be leased, most is the number of tasks, and the new cursor points to the sheet.
func (c *claim) choose(l lane, p *page, cur cursor) (chosen []*doc, most int, to cursor, err error) {
	to = cur
	want := c.r.Limit - len(c.got)
	for to.Place < len(p.Entries) && want > 0 {
		batch := p.Entries[to.Place:]
		for i, sum := 0, 0; i < len(batch) && sum < want; i++ {
			if sum += max(batch[i].n, 1); sum >= want {
				batch = batch[:i+1]
			}
		}
		found, err := collect(len(batch), func(i int) (*doc, error) {
			return c.s.skipping(c.s.load)(c.ctx, ref{inTask, batch[i].id})
		})
		if err != nil {
			return nil, 0, to, err
		}
		for i, d := range found {
			if d != nil && d.stands(l, batch[i].lap) {
				if want <= 0 {
					return chosen, 0, to, nil
				}
				chosen = append(chosen, d)
				if want -= d.ready().N; want < 0 {
					return chosen, want + d.ready().N, to, nil
				}
			}
			to.Place++
		}
	}
	if to.Place == len(p.Entries) && p.G == nil {
		to = cursor{to.Page + 1, 0}
	}
	return chosen, 0, to, nil
}

// intend writes into the worker's document what is about to be leased, so that a rescue finds each lease. It also
// removes tokens under which the worker holds nothing. It fails if the worker is dead, or if another claim has used the
// token.
func (c *claim) intend(chosen []*doc) error {
	s, ids := c.s, make([]string, len(chosen))
	for i, d := range chosen {
		ids[i] = d.ID
	}
	name := gocb.InsertSpec(leasePath(c.token), ids, nil)
	if c.meant {
		name = gocb.ArrayAppendSpec(leasePath(c.token), ids, &gocb.ArrayAppendSpecOptions{HasMultiple: true,
			CreatePath: true})
	}
	write := func(specs ...gocb.MutateInSpec) error {
		return s.mutate(c.ctx, s.meta, workerKey(c.worker), 0, append([]gocb.MutateInSpec{replaceG}, specs...)...)
	}
	closed := s.lent.closed(c.worker, 12)
	specs := []gocb.MutateInSpec{name}
	for _, token := range closed {
		specs = append(specs, gocb.RemoveSpec(leasePath(token), nil))
	}
	err := write(specs...)
	if errors.Is(err, gocb.ErrPathNotFound) && len(closed) > 0 { // g does not exist, or one of the closed tokens
		if err = write(name); err == nil {
			for _, remove := range specs[1:] {
				_ = write(remove)
			}
		}
	}
	if absent(err) {
		return store.ErrWorkerDead
	}
	if err != nil {
		s.lent.forgo(c.worker, closed...)
	}
	if errors.Is(err, gocb.ErrPathExists) { // from another claim, or from this one if the answer was lost
		slices.Sort(ids)
		is, err := s.meant(c.ctx, c.worker, c.token)
		if err == nil && !slices.Equal(is, slices.Compact(ids)) {
			err = errUsed
		}
		c.meant = err == nil
		return err
	}
	c.meant = c.meant || err == nil
	return err
}

// lease moves the cursor, which also unlocks it, and leases the tasks. It reports whether others got any of them.
//
// The move comes first. If there is no lock and the move is refused, others have claimed the tasks, and lease returns.
// Under a lock, a part of a sheet is leased before the move, because the next claim begins at that sheet. The page is
// deleted only if the move is known to have happened.
func (c *claim) lease(l lane, from *mark, to cursor, chosen []*doc, most int) (lost bool, err error) {
	s, now := c.s, c.s.now(c.ctx)
	locked, moved := c.locked, false
	c.locked = false
	move := func() error {
		if to == from.cursor && !locked {
			return nil
		}
		err := s.move(c.ctx, l, *from, to)
		if moved = err == nil; !moved { // if the lock was lost, or the result is unknown, the CAS of the tasks decides
			s.minds.clash(l)
			s.conflicts.Add(1)
		}
		return err
	}
	partly := locked && most > 0
	if !partly && mismatch(move()) && !locked {
		return true, nil
	}
	won, err := collect(len(chosen), func(i int) ([]*doc, error) {
		n := blockSize
		if most > 0 && i == len(chosen)-1 {
			n = most
		}
		return s.lease(c.ctx, chosen[i], n, c.worker, c.token, now)
	})
	if partly {
		_ = move()
	}
	if moved && to.Page != from.Page {
		s.dropPage(c.ctx, l, from.Page, 0)
	}
	if err != nil {
		return false, err
	}
	var passed []*task
	for i, d := range chosen {
		if len(won[i]) > 0 {
			c.got = append(c.got, won[i]...)
			continue
		}
		lost = true
		if most > 0 && i == len(chosen)-1 { // the cursor still points to it
			s.minds.clash(l)
		} else if is, err := s.load(c.ctx, d.ref); err != nil {
			return lost, err
		} else if t := is.ready(); t != nil { // the cursor has passed it
			passed = append(passed, t)
		}
	}
	return lost, s.queueUp(c.ctx, passed...)
}

// lease leases a task, or up to most tasks of a sheet, to a worker, if the document is unchanged. It returns the tasks.
func (s *Store) lease(ctx context.Context, d *doc, most int, worker, token string, now int64) ([]*doc, error) {
	tasks := d.available(most)
	for _, one := range tasks {
		t := one.task()
		t.lend(worker, token, max(now, t.Since, t.Written))
		if one.sheet != nil {
			d.keep(t)
		}
	}
	won, err := s.writeAt(ctx, d, gocb.DurabilityLevelUnknown)
	switch {
	case err == nil && !won && d.cas == passed: // the caller asks again with the token
		return nil, errUntold
	case err == nil && !won:
		s.conflicts.Add(1)
		return nil, nil
	}
	return tasks, err
}

// lend marks a task as running on a worker.
func (t *task) lend(worker, token string, at int64) {
	t.Attempt++
	t.Claimed = at
	t.State, t.Since, t.Available = "r", t.Claimed, 0
	t.Run = []lease{{worker, token}}
}

// lentOut returns a running task as a claim returns it.
func (t *task) lentOut() store.Task {
	a := t.answer(false)
	if t.inSheet {
		a.Piece = 1
	}
	return a
}
