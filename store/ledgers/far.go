package ledgers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A task may need a task in another ledger. Before the first is stored, its ledger is told about the needed one. When
// the needed task ends, the process that ended it tells the ledgers that need it, if it knows them. Otherwise the
// leader finds out before it admits: it asks each ledger what it needs, and looks up those tasks. So a need is met at
// the next admission at the latest.

const (
	farEvery = 500 * time.Millisecond // interval of looks while no ledger needs anything
	farMost  = 1 << 16                // limit of remembered tasks
)

// farPage is how many needed tasks a ledger lists per call. Tests reduce it.
var farPage = 1000

// far is what this process knows about needs across ledgers.
type far struct {
	mu     sync.Mutex
	of     map[store.ID]bits // the ledgers that need a task of another ledger
	known  atomic.Bool       // of is not empty
	asked  time.Time         // time of the last look
	needs  bits              // ledgers that needed something then
	silent bits              // ledgers whose needs are not known
	after  pages             // where the next look continues
	began  bool
	mail   [Most]map[store.ID]posted // letters seen by the last look at each ledger
	tried  pages                     // letters after which the next look starts to deliver
	missed missed                    // tasks not found by the last looks
	aside  [Most]atomic.Pointer[sending]
	looks  struct { // the last look after which finished tasks could be deleted
		began time.Time
		of    int // number of ledgers then
	}

	doubts map[store.ID]inDoubt // letters whose tasks may be stored already
}

// pages are the positions at which the next look at each ledger continues. Zero is the start.
type pages [Most]store.ID

// expect records that a ledger needs tasks of others.
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

// wanted returns the ledgers that need each of the tasks. It leaves out tasks that no ledger needs.
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

// told removes tasks whose ends are known to all ledgers that need them.
func (f *far) told(ids []store.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.of, id)
	}
	f.known.Store(len(f.of) > 0)
}

// hear tells each ledger about the tasks in other ledgers that it is about to need.
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

// tell tells ledgers the states of the tasks that they need, as far as this process knows of the need. The leader does
// the rest before the next admission.
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

// findOut looks up the states of tasks and tells the ledgers that need them about changes. It skips tasks in letters,
// which are in transit. It returns the number of changes.
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
			continue // it may be in a ledger that is away, in a letter, or in an uncommitted transaction
		}
		if !found && e.State == store.Completed {
			continue // its end is known; it was deleted later
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

// hearAll is hear for tasks that the ledgers already need. It asks one ledger after the other.
func (s *Store) hearAll(ctx context.Context, all []*ledger, parts [][]postgres.Elsewhere) (failed error) {
	for no, part := range parts {
		if len(part) > 0 {
			failed = errors.Join(failed, hearAt(ctx, all[no], part))
		}
	}
	return failed
}

// lookAcross asks all ledgers for a page of the tasks that they need in others, delivers letters, and tells the ledgers
// about changes. It returns the number of changed states. If always is set, it looks even if no look is due.
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

// lookAfter is lookAcross from given positions, which it advances. doubts are ledgers that may have stored tasks of
// letters.
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

// due reports whether a look is due, and where it starts.
func (f *far) due(always bool) (after pages, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !always && f.needs == 0 && !f.known.Load() && time.Since(f.asked) < farEvery {
		return after, false
	}
	f.asked = time.Now()
	return f.after, true
}

// goOn records where the next look starts.
func (f *far) goOn(after pages) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = after
}

// looked records what a ledger needs and whether it has letters.
func (f *far) looked(no int, needed []postgres.Elsewhere, mail bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.began {
		f.began, f.silent = true, ^bits(0)
	}
	if err != nil {
		if mail {
			f.needs |= 1 << no // letters may be unread
		}
		f.silent |= f.needs & (1 << no)
		return
	}
	f.silent &^= 1 << no
	if f.needs &^= 1 << no; mail || len(needed) > 0 {
		f.needs |= 1 << no
	}
}

// refresh tells ledgers the states of the tasks that finished tasks need, before these are retried.
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
