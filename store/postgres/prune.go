package postgres

import "context"

// pruneFlushes deletes up to limit completed tasks whose retention is over, together with the rows of their flushes. It
// gets the snapshot of flushesDue.
//
// Flushes are read in the order of their xids, which is nearly the order in which they ended, up to the first that is
// too young for every queue. Before it there may be any number of flushes that some queue keeps for longer, so a call
// reads a limited number, and the next call continues after them.
func (s *Store) pruneFlushes(
	ctx context.Context, term int64, r *retentions, over string, limit int,
) (deleted int, err error) {
	from, looks := s.hand.Load(), s.pruneLooks
	for many := min(fewFlushes, looks); looks > 0 && deleted < limit; many = min(4*many, mostFlushes, looks) {
		page := spentPage{from: from, left: limit - deleted}
		read := s.do("spent_flushes", from, r.youngest(), r.all[0], r.queues, r.completed, over, many)
		err = s.read(ctx, s.inOrder(read.into(page.take)))
		if err == nil && len(page.due) > 0 {
			err = s.releasePage(ctx, term, &page)
		}
		if err != nil {
			return deleted, err
		}
		deleted += page.deleted
		looks -= page.looks
		if from = page.next(many); from == 0 {
			break
		}
	}
	s.hand.Store(from)
	return deleted, nil
}

// spentPage is a page of flushes, of which some may be deleted.
type spentPage struct {
	from    int64 // the xid of the last flush that it has looked at
	left    int   // how many tasks may be deleted
	due     []*completion
	tasks   int  // of these
	rows    int  // flushes that were read
	looks   int  // flushes that it has looked at
	young   bool // the next one is too young for every queue
	deleted int
	skipped bool // the last flush that is due was not deleted
}

// take reads a row of spent_flushes.
func (p *spentPage) take(raw [][]byte) error {
	p.rows++
	if p.young = p.young || raw[5][0] != 0; p.young || p.tasks >= p.left {
		return nil
	}
	p.looks++
	p.from = int64Of(raw[0])
	if raw[4] != nil {
		f := &completion{xid: p.from, lane: int64Of(raw[1]), token: idOf(raw[2]), finished: timeOf(raw[3]),
			tasks: int(int64Of(raw[4]))}
		p.due = append(p.due, f)
		p.tasks += f.tasks
	}
	return nil
}

// next returns the xid at which the next page begins, or 0 if there are no more flushes to look at. Of the last flush
// that is due, some tasks may be left.
func (p *spentPage) next(many int) int64 {
	switch {
	case p.tasks >= p.left && !p.skipped:
		return p.from
	case p.tasks < p.left && (p.young || p.rows < many):
		return 0
	}
	return p.from + 1
}

// releasePage deletes the flushes of a page that are due, and skips those that somebody holds.
func (s *Store) releasePage(ctx context.Context, term int64, p *spentPage) error {
	tasks, last := p.tasks, len(p.due)-1
	err := s.write(ctx, []step{s.do("no_jit"), s.do("hold_lead", term),
		s.do("release_flushes", releasing(p.due, p.left)...).into(func(raw [][]byte) error {
			at := int(int32Of(raw[0])) - 1
			tasks -= p.due[at].tasks
			p.skipped = p.skipped || at == last
			return nil
		})})
	p.deleted = min(tasks, p.left)
	return err
}
