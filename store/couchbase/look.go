package couchbase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// lookWithin is how long a claim waits for the documents of a lane, and lookAgainWithin how long it does so after one
// lane did not answer.
const (
	lookWithin      = 3 * time.Second
	lookAgainWithin = 300 * time.Millisecond
)

// looked looks at a lane, and skips it if its documents are on a node that does not answer: other lanes may have tasks.
func (c *claim) looked(l lane) (*mark, *page, error) {
	within := lookWithin
	if c.away != nil {
		within = lookAgainWithin
	}
	ctx, cancel := context.WithTimeout(c.ctx, within)
	defer cancel()
	at, p, err := c.look(ctx, l)
	if err != nil && c.ctx.Err() == nil && (ctx.Err() != nil || errors.Is(err, store.ErrUnavailable)) {
		c.away = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		return nil, nil, nil
	}
	return at, p, err
}

// look finds out whether a lane has entries; most polls end here. It returns no page if there are none. If it then
// returns a cursor, the caller looks again.
func (c *claim) look(ctx context.Context, l lane) (at *mark, p *page, err error) {
	s := c.s
	mind := s.minds.of(l)
	known := mind.known()
	if at = &mind.mark; !known {
		if at, err = s.cursorOf(ctx, l); at == nil || err != nil {
			return nil, nil, err
		}
	}
	if p, err = s.readPage(ctx, l, at.Page); err != nil {
		return nil, nil, err
	}
	empty := p != nil && len(p.Entries) == at.Place && p.G != nil
	switch {
	case empty && p.Count >= pageSize: // its seal was lost
		return at, nil, s.seal(ctx, l, at.Page)
	case empty && mind.tail > at.Page: // a failover lost its seal
		return at, nil, s.shut(ctx, l, at.Page)
	case empty:
		return nil, nil, s.retire(ctx, l, max(at.cas, p.cas))
	case p != nil && len(p.Entries) >= at.Place:
		return at, p, nil
	case known: // the remembered cursor was outdated
		s.minds.forget(l)
		return at, nil, nil
	case p != nil: // a crash lost entries but kept the cursor
		return nil, nil, refusal(s.move(ctx, l, *at, cursor{at.Page, len(p.Entries)}))
	}
	locked, err := s.heal(ctx, l, at.cursor) // or the cursor has moved
	if locked {                              // perhaps until the lock expires: the next poll looks again
		at = nil
	}
	return at, nil, err
}

// idleFor is how long an empty lane stays on its board, where claims find it, after it was last entered, appended to or
// claimed from. A process that stores a task in the lane has entered it or appended to it within tailFor, or enters it
// first. If the process then stands still for the rest of idleFor, the sweep enters the lane.
const idleFor = 2 * tailFor

// retire takes an empty lane off its board if it is idle. Its cursor and its page stay; used is the later CAS of both.
func (s *Store) retire(ctx context.Context, l lane, used gocb.Cas) error {
	before := s.now(ctx) - idleFor.Microseconds()
	if uint64(used)/1000 > uint64(before) {
		return nil
	}
	return s.strike(ctx, s.lines, board(l.Queue), l.name(), func(entered int64) (bool, error) {
		return entered <= before, nil
	})
}
