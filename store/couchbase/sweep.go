package couchbase

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"
)

// sweepEvery is how often the leader sweeps, and sweepAfter how old the work must be that it completes.
const (
	sweepEvery = 10 * time.Second
	sweepAfter = 10 * time.Second
	sweepMost  = 1000 // of each kind, per sweep
)

// Maintain implements store.Maintainer.
func (s *Store) Maintain(ctx context.Context, term int64) (err error) {
	defer says(&err, "maintain")
	if err := s.leads(ctx, term); err != nil {
		return err
	}
	if at := s.swept.Load(); time.Since(s.opened)-time.Duration(at) < sweepEvery && at > 0 {
		return nil
	}
	s.swept.Store(int64(time.Since(s.opened)))
	_, err = s.sweep(ctx, sweepAfter)
	return err
}

// sweep completes what was recorded and left undone, and appends to their lanes the available tasks that no page lists
// any more. It returns the number of these tasks. If one of its queries fails, it does what the others find.
func (s *Store) sweep(ctx context.Context, age time.Duration) (int, error) {
	before := s.now(ctx) - age.Microseconds()
	var errs []error
	for statement, c := range map[string]string{queryTodo: inTask, queryTodoKeys: inKey, queryTodoMeta: inMeta} {
		ids, err := query[string](ctx, s, statement, args{"before": before, "n": sweepMost})
		if err == nil {
			_, err = readEach(ctx, c, ids, s.skipping(s.load)) // load completes units, and tells children
		}
		errs = append(errs, err)
	}
	n, err := s.sweepLanes(ctx, before)
	return n, errors.Join(append(errs, err)...)
}

// sweepLanes sweeps the lanes that have available tasks according to the index. If it fails at a lane, the next sweep
// begins with the lane after that.
func (s *Store) sweepLanes(ctx context.Context, before int64) (n int, err error) {
	lanes, err := query[lane](ctx, s, queryLanes, nil)
	if err != nil {
		return 0, err
	}
	lanes = slices.DeleteFunc(lanes, func(l lane) bool { return l.Queue == "" }) // of damaged tasks
	slices.SortFunc(lanes, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Priority, b.Priority))
	})
	from := int(s.sweepFrom.Load())
	for i := range lanes {
		l := lanes[(from+i)%len(lanes)]
		found, err := s.sweepLane(ctx, l, before)
		if n += found; s.passing(err) != nil {
			s.sweepFrom.Store(int64((from+i)%len(lanes) + 1))
			return n, err
		}
	}
	return n, nil
}

// sweepLane enters a lane that is not on its board. It appends the tasks of the lane that claims have passed, unless a
// page from the cursor on lists them.
func (s *Store) sweepLane(ctx context.Context, l lane, before int64) (int, error) {
	on, err := s.lanes(ctx, l.Queue)
	if err == nil && !slices.Contains(on, l) {
		err = s.enlist(ctx, s.lines, board(l.Queue), l.name())
	}
	if err != nil {
		return 0, err
	}
	at, err := s.open(ctx, l)
	if err != nil {
		return 0, err
	}
	p, err := s.readPage(ctx, l, at.Page)
	if err == nil && p == nil { // otherwise what later pages list would seem to be in no page
		var locked bool
		if locked, err = s.heal(ctx, l, at.cursor); locked { // the next sweep looks again
			return 0, err
		}
		if err == nil {
			at, err = s.open(ctx, l)
		}
	}
	if err != nil {
		return 0, err
	}
	if p, err := s.readPage(ctx, l, at.Page-1); err == nil && p != nil && p.G == nil {
		s.dropPage(ctx, l, at.Page-1, p.cas) // a claim has moved on and not deleted it
	}
	ids, err := s.passedIn(ctx, l, at.cursor, before)
	if len(ids) == 0 || err != nil {
		return 0, err
	}
	docs, err := readEach(ctx, inTask, ids, s.skipping(s.load))
	lost := map[entry]*task{}
	for _, d := range docs {
		if t := d.ready(); t != nil {
			lost[entry{d.ID, t.Lap, 0}] = t
		}
	}
	if err == nil {
		err = s.dropNamed(ctx, l, lost)
	}
	if err != nil {
		return 0, err
	}
	if len(lost) > 0 {
		s.minds.appended(l, 0) // the page that is remembered may be one that nobody reads
	}
	inOrder := slices.SortedFunc(maps.Values(lost), func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.Available, b.Available), cmp.Compare(a.ID, b.ID))
	})
	return len(lost), s.queueUp(ctx, inOrder...)
}

// passedIn returns the documents of a lane that became available by an instant, and before the task at the cursor. The
// tasks of one call became available at the same instant, and are in the lane in the order of their ids.
func (s *Store) passedIn(ctx context.Context, l lane, at cursor, by int64) (ids []string, err error) {
	first, err := s.front(ctx, l, at)
	if err != nil {
		return nil, err
	}
	if first != nil {
		by = min(by, first.Available)
	}
	type available struct {
		ID string `json:"id"`
		At int64  `json:"avl"`
	}
	rows, err := query[available](ctx, s, queryPassed, args{"q": l.Queue, "p": l.Priority, "by": by, "n": sweepMost})
	for _, r := range rows {
		if first == nil || r.At < first.Available || r.ID < first.ID {
			ids = append(ids, r.ID)
		}
	}
	return ids, err
}

// front returns the first available task of a lane, or nil if it is not in the first page that has entries from the
// cursor on: there may be many pages after that.
func (s *Store) front(ctx context.Context, l lane, at cursor) (*task, error) {
	for p, err := range s.pages(ctx, l, at) {
		if err != nil {
			return nil, err
		}
		for _, e := range p.Entries {
			d, err := s.skipping(s.peek)(ctx, ref{inTask, e.id})
			if err != nil {
				return nil, err
			}
			if d != nil && d.stands(l, e.lap) {
				return d.ready(), nil
			}
		}
		if len(p.Entries) > 0 {
			break
		}
	}
	return nil, nil
}

// dropNamed removes from lost the tasks that are listed from the cursor on. Most are near the cursor, so it stops once
// it has found all. If claims have deleted a page meanwhile, dropNamed cannot go on behind it, and begins again at the
// new cursor.
func (s *Store) dropNamed(ctx context.Context, l lane, lost map[entry]*task) error {
	at, err := s.open(ctx, l)
	for err == nil && len(lost) > 0 {
		behind := at.Page
		for p, err := range s.pages(ctx, l, at.cursor) {
			if err != nil {
				return err
			}
			for _, e := range p.Entries {
				delete(lost, entry{e.id, e.lap, 0})
			}
			if len(lost) == 0 {
				return nil
			}
			behind++
		}
		was := at
		if at, err = s.open(ctx, l); at.Page < behind || at.Page == was.Page {
			break
		}
	}
	return err
}

// pages yields the pages of a lane, without the entries before the cursor. It seals a page that is open though there is
// a next one, because claims would not go on to that. Each sweep reads the page at the cursor, and so repairs it.
func (s *Store) pages(ctx context.Context, l lane, at cursor) iter.Seq2[*page, error] {
	return func(yield func(*page, error) bool) {
		for n, more := at.Page, true; more; n++ {
			p, err := s.readPage(ctx, l, n)
			if err == nil && p == nil {
				return
			}
			if err == nil && p.G != nil {
				var next *page
				if next, err = s.readPage(ctx, l, n+1); err == nil && next != nil {
					err = s.shut(ctx, l, n)
				}
				more = next != nil
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if n == at.Page {
				p.Entries = p.Entries[min(at.Place, len(p.Entries)):]
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}
