package ledgers

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// What a task needs may live in another ledger. Before the task is stored, its ledger hears of
// that. When it ends, the process that ended it tells the ledgers that need it, if it knows
// of them; else whoever leads asks each ledger what it needs, and finds out, before it admits.
// So a need is met by the next admission at the latest.

const (
	farEvery = 500 * time.Millisecond // a leader asks ledgers that needed nothing
	farPage  = 1000                   // tasks that a ledger is asked for at once
	farMost  = 1 << 16                // tasks that a process remembers
)

// far is what this process knows of needs across ledgers.
type far struct {
	mu     sync.Mutex
	of     map[store.ID]bits // the ledgers that need a task of another one
	known  atomic.Bool       // there are any in of
	asked  time.Time         // when ledgers were last asked what they need
	needs  bits              // those that needed something then
	silent bits              // those of which that is not known
	after  pages             // where the next look at each goes on
	began  bool
	mail   [Most]map[store.ID]posted // letters that the last look at each has seen
	missed missed                    // tasks that the last looks have not found
	aside  [Most]atomic.Pointer[sending]
	looks  struct { // the last one after which finished tasks could be deleted
		began time.Time
		of    int // ledgers
	}

	doubts map[store.ID]inDoubt // letters of tasks that may be stored
}

// pages are the tasks above which the next look at each ledger begins; zero: at the start.
type pages [Most]store.ID

// expect remembers that a ledger needs tasks of others.
func (f *far) expect(no int, needed []postgres.Elsewhere) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil || len(f.of) > farMost {
		f.of = map[store.ID]bits{}
	}
	for _, e := range needed {
		f.of[e.ID] |= 1 << no
	}
	f.known.Store(true)
}

// wanted returns the ledgers that need each of some tasks, of those that any needs.
func (f *far) wanted(ids []store.ID) map[store.ID]bits {
	if !f.known.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var wanted map[store.ID]bits
	for _, id := range ids {
		if by := f.of[id]; by != 0 {
			if wanted == nil {
				wanted = map[store.ID]bits{}
			}
			wanted[id] = by
		}
	}
	return wanted
}

// told forgets tasks of which all that need them have heard how they ended.
func (f *far) told(ids []store.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.of, id)
	}
	f.known.Store(len(f.of) > 0)
}

// hear has each ledger hear of tasks of others that it is about to need.
func (s *Store) hear(ctx context.Context, all []*ledger, parts [][]postgres.Elsewhere) error {
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for no, part := range parts {
		if len(part) == 0 {
			continue
		}
		s.far.expect(no, part)
		done.Go(func() { errs[no] = hearAt(ctx, all[no], part) })
	}
	done.Wait()
	return errors.Join(errs...)
}

func hearAt(ctx context.Context, l *ledger, part []postgres.Elsewhere) error {
	_, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) (struct{}, error) {
		return struct{}{}, e.Hear(ctx, part)
	})
	l.s.turns.heat(l.no, err == nil)
	return err
}

// tell lets other ledgers know what has become of tasks that they need, as far as this process
// knows of that. What it cannot tell is left to the next admission.
func (s *Store) tell(ctx context.Context, all []*ledger, ids []store.ID) {
	wanted := s.far.wanted(ids)
	if len(wanted) == 0 {
		return
	}
	var known []postgres.Elsewhere
	for id := range wanted {
		known = append(known, postgres.Elsewhere{ID: id, State: store.Pending})
	}
	_, _ = s.findOut(ctx, all, known, func(id store.ID, no int) bool { return wanted[id].has(no) }, mail{})
}

// findOut asks what has become of tasks, and lets those ledgers hear of what is new that need
// them. Those in letters are on their way. It returns how many news there were.
func (s *Store) findOut(
	ctx context.Context, all []*ledger, known []postgres.Elsewhere, needs func(id store.ID, no int) bool,
	post mail,
) (news int, err error) {
	var ids []store.ID
	for _, e := range known {
		if !post.tasks[e.ID] {
			ids = append(ids, e.ID)
		}
	}
	var prepared map[string]bool
	if s.comesApart && len(ids) > 0 {
		prepared = s.prepared(ctx, all)
	}
	spots, err := s.whereAre(ctx, all, ids)
	gone := s.far.gone(ids, spots, prepared)
	parts := make([][]postgres.Elsewhere, len(all))
	var ended []store.ID
	for _, e := range known {
		at, found := spots[e.ID]
		if post.tasks[e.ID] || !found && (err != nil || post.unread || e.Announced || s.comesApart && !gone[e.ID]) {
			continue // a ledger that is away may have it, or a letter, or a transaction that has not committed
		}
		if !found && e.State.Finished() {
			continue // it ended as was heard, and was deleted since
		}
		if at.state == e.State || found && !at.state.Finished() && !e.State.Finished() && e.State != 0 {
			continue
		}
		if news++; at.state.Finished() || !found {
			ended = append(ended, e.ID)
		}
		for no := range all {
			if needs(e.ID, no) {
				parts[no] = append(parts[no], postgres.Elsewhere{ID: e.ID, State: at.state})
			}
		}
	}
	if failed := s.hearAll(ctx, all, parts); failed != nil {
		return news, failed
	}
	s.far.told(ended)
	return news, err
}

// hearAll is hear of what is needed already.
func (s *Store) hearAll(ctx context.Context, all []*ledger, parts [][]postgres.Elsewhere) (failed error) {
	for no, part := range parts {
		if len(part) > 0 {
			failed = errors.Join(failed, hearAt(ctx, all[no], part))
		}
	}
	return failed
}

// lookAcross asks all ledgers what they need of others, a page of each, delivers letters, and lets the ledgers
// hear what is new. It returns how much that was. Always is for when there may be news.
func (s *Store) lookAcross(ctx context.Context, all []*ledger, always bool) (news int, err error) {
	if len(all) == 1 {
		return 0, nil
	}
	after, due := s.far.due(always)
	if !due {
		return 0, nil
	}
	news, _, err = s.lookAfter(ctx, all, &after)
	s.far.goOn(after)
	return news, err
}

// lookAfter is lookAcross from some tasks on. Doubts are ledgers that may have tasks that are in letters.
func (s *Store) lookAfter(ctx context.Context, all []*ledger, after *pages) (news int, doubts bits, err error) {
	needs, errs := together(ctx, s, all, func(ctx context.Context, at []int,
		on []*postgres.Store) ([]postgres.Needs, error) {
		from := make([]store.ID, len(at))
		for i, no := range at {
			from[i] = after[no]
		}
		return postgres.NeedsOf(ctx, on, from, farPage, letters)
	})
	post, by := mail{tasks: map[store.ID]bool{}}, map[store.ID]bits{}
	var known []postgres.Elsewhere
	for no, l := range all {
		post.unread = post.unread || errs[no] != nil
		if of := needs[no].Of; errs[no] == nil {
			if after[no] = (store.ID{}); len(of) == farPage {
				after[no] = of[farPage-1].ID
			}
		}
		if needs[no].Mail {
			errs[no] = errors.Join(errs[no], s.forward(ctx, all, l, &post))
		}
		for _, e := range needs[no].Of {
			by[e.ID] |= 1 << no
			known = append(known, e)
		}
		s.far.looked(no, needs[no].Of, needs[no].Mail, errs[no])
	}
	news, failed := s.findOut(ctx, all, known, func(id store.ID, no int) bool { return by[id].has(no) }, post)
	return news, post.doubts, errors.Join(failed, errors.Join(errs...))
}

// due reports whether ledgers are to be asked what they need, and above which tasks.
func (f *far) due(always bool) (after pages, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !always && f.needs == 0 && !f.known.Load() && time.Since(f.asked) < farEvery {
		return after, false
	}
	f.asked = time.Now()
	return f.after, true
}

// goOn takes note of where the next look begins.
func (f *far) goOn(after pages) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = after
}

// looked takes note of what a ledger needed, and whether it has letters.
func (f *far) looked(no int, needed []postgres.Elsewhere, mail bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.began {
		f.began, f.silent = true, ^bits(0)
	}
	if err != nil {
		if mail {
			f.needs |= 1 << no // some may not have been read
		}
		f.silent |= f.needs & (1 << no)
		return
	}
	f.silent &^= 1 << no
	if f.needs &^= 1 << no; mail || len(needed) > 0 {
		f.needs |= 1 << no
	}
}

// forgettable reports whether finished tasks may be deleted: not while a ledger is away that
// may not have heard how they ended.
func (f *far) forgettable(ledgers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began && f.silent&(1<<ledgers-1) == 0
}

// What is kept for so long has ended long before a look that is so old, which reads all needs.
const (
	keptLong = time.Hour
	lookOld  = time.Minute
)

// shortest is how long that is kept at least which is deleted at all.
func shortest(keep store.Retention) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, one := range append(slices.Collect(maps.Values(keep.Queues)), keep) {
		for _, d := range []time.Duration{one.Completed, one.Cancelled, one.Discarded} {
			if d > 0 {
				least = min(least, d)
			}
		}
	}
	return least
}

// mayForget reports whether finished tasks may be deleted: each ledger has heard how those ended
// that it needs, all of them, and none is looked for that may have been stored.
func (s *Store) mayForget(ctx context.Context, all []*ledger, keep store.Retention) (bool, error) {
	if len(all) == 1 {
		return true, nil
	}
	began := time.Now()
	if shortest(keep) >= keptLong && s.far.lookedAll(began.Add(-lookOld), len(all)) {
		return true, nil
	}
	ready, whole, err := s.haveHeard(ctx, all)
	if ready && whole {
		s.far.keepLook(began, len(all))
	}
	return ready, err
}

// lookedAll reports whether a look that began after an instant has found that so many ledgers have heard of all that
// had ended by then.
func (f *far) lookedAll(since time.Time, ledgers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks.of == ledgers && f.looks.began.After(since)
}

// keepLook takes note of such a look.
func (f *far) keepLook(began time.Time, ledgers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks.began, f.looks.of = began, ledgers
}

// haveHeard is mayForget of all that has ended by now. whole reports whether every ledger has answered.
func (s *Store) haveHeard(ctx context.Context, all []*ledger) (ready, whole bool, err error) {
	var after pages
	for whole = true; ; {
		_, doubts, err := s.lookAfter(ctx, all, &after)
		whole = whole && err == nil
		switch {
		case err != nil && !errors.Is(err, store.ErrUnavailable):
			return false, false, err
		case doubts != 0 || err != nil && after != (pages{}):
			return false, false, nil
		case after == (pages{}):
			return s.far.forgettable(len(all)), whole, nil
		}
	}
}

// refresh lets ledgers hear anew what tasks need that are to be judged once more.
func (s *Store) refresh(ctx context.Context, all []*ledger, ids []store.ID) error {
	if len(all) == 1 {
		return nil
	}
	tasks, err := s.listNamed(ctx, store.Filter{IDs: slices.Clone(ids), Limit: store.MaxPage, Detail: true, NoArgs: true})
	if err != nil {
		return err
	}
	var children []store.ID
	var parents []store.ID
	for i := range tasks {
		if d := tasks[i].Detail; d != nil && len(d.Needs) > 0 && tasks[i].State.Finished() {
			children = append(children, tasks[i].ID)
			for _, n := range d.Needs {
				parents = append(parents, n.Task)
			}
		}
	}
	if len(children) == 0 {
		return nil
	}
	spots, err := s.whereAre(ctx, all, append(slices.Clone(children), parents...))
	if err != nil {
		return err
	}
	parts := make([][]postgres.Elsewhere, len(all))
	for i := range tasks {
		if tasks[i].Detail == nil {
			continue
		}
		at := spots[tasks[i].ID].no
		for _, n := range tasks[i].Detail.Needs {
			if parent, found := spots[n.Task]; found && parent.no != at {
				parts[at] = append(parts[at], postgres.Elsewhere{ID: n.Task, State: parent.state})
			}
		}
	}
	return s.hear(ctx, all, parts)
}
