package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// forgetAfter is how long a dead worker is remembered, so that a worker that was only suspended is told when it wakes
// up.
const forgetAfter = 24 * time.Hour

// Prune implements store.Keeper. It walks the lists that finishes have written, by queue and outcome, the oldest
// first, so that it never reads a task that is kept. Days without anything to keep are dropped as a whole; see
// days.go.
func (s *Store) Prune(ctx context.Context, term int64, keep store.Retention, limit int) (deleted int, err error) {
	var classes []counted
	failed := s.foldAll(ctx, term)
	err = s.write(ctx, func(w *work) error {
		classes = nil
		if err := w.leads(term); err != nil {
			return err
		}
		if keep.Stats > 0 {
			w.do(q("stat.prune"), (keep.Stats + time.Minute).Microseconds())
			w.do(q("error.prune"), keep.Stats.Microseconds())
		}
		w.do(q("prune.workers"), forgetAfter.Microseconds())
		return w.classes(func(of counted) { classes = append(classes, of) })
	})
	if err != nil {
		return 0, wrap("prune", err)
	}
	if err := s.dropDays(ctx, term, keep); err != nil {
		return 0, wrap("prune", err)
	}
	for _, of := range classes {
		kept := keep.Of(of.queue, of.state)
		if kept <= 0 {
			continue
		}
		if kept >= day {
			kept += slack
		}
		for deleted < limit {
			n, more, err := s.pruneClass(ctx, term, of, kept, limit-deleted)
			deleted += n
			if held(err) {
				break // the rest of the class is left to the next call
			}
			failed = errors.Join(failed, err)
			if err != nil || !more {
				break
			}
		}
		if errors.Is(failed, store.ErrNotLeader) || errors.Is(failed, store.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return deleted, wrap("prune", failed)
}

// classes walks the queues and outcomes that have finished tasks.
func (w *work) classes(each func(of counted)) error {
	var queue []byte
	var state store.State
	found := false
	next := func(text string, args ...any) error {
		found = false
		return w.ask(func(rows *sql.Rows) error { found = true; return rows.Scan(&queue, &state) }, text, args...)
	}
	for queue = []byte{}; ; {
		if err := next(q("prune.next queue"), slices.Clone(queue)); err != nil || !found {
			return err
		}
		for found {
			each(counted{string(queue), state})
			if err := next(q("prune.class"), slices.Clone(queue), state); err != nil {
				return err
			}
		}
	}
}

// pruneClass deletes some of the tasks of a queue and outcome that are past their retention, except those that an open
// transaction holds. It reports whether there may be more.
func (s *Store) pruneClass(
	ctx context.Context, term int64, of counted, kept time.Duration, limit int,
) (deleted int, more bool, err error) {
	err = s.hurry(ctx, hastyTries, func(w *work) error {
		deleted, more = 0, false
		if err := w.leads(term); err != nil {
			return err
		}
		going, err := w.going(q("days.check"))
		if err != nil {
			return err
		}
		p := &pruning{work: w, of: of, until: w.now - kept.Microseconds(), dropped: going.from}
		if err := p.collect(limit); err != nil {
			return err
		}
		any := len(p.lists) > 0
		deleted, err = p.delete()
		more = any && (deleted > 0 || p.kept == 0)
		return err
	})
	return deleted, more, err
}

// finishedList is a row of tusk_finished.
type finishedList struct {
	at, seq     int64
	whole, rest []span
	chosen      []ref
}

// pruning deletes tasks of one class.
type pruning struct {
	*work
	of    counted
	until int64
	lists []*finishedList
	refs  []ref

	dropped int64 // days below this place are gone
	gone    int   // tasks that were dropped with them
	kept    int   // tasks that are held
	held    []store.ID
	back    []store.ID // tasks that were retried since their list was written
}

// maxPruned is the maximum number of tasks that one transaction deletes.
const maxPruned = 1000

// collect chooses up to limit tasks from the oldest lists.
func (p *pruning) collect(limit int) error {
	limit = min(limit, maxPruned)
	err := p.ask(func(rows *sql.Rows) error {
		l := &finishedList{}
		var spans []byte
		err := rows.Scan(&l.at, &l.seq, &spans)
		if err == nil {
			l.whole = p.store.spansIn(spans, fmt.Sprint("tusk_finished, seq ", l.seq))
		}
		p.lists = append(p.lists, l)
		return err
	}, q("prune.lists"), []byte(p.of.queue), p.of.state, p.until, min(limit, 100))
	if err != nil {
		return err
	}
	for i, l := range p.lists {
		refs := refsOf(l.whole)
		refs = p.existing(refs, limit)
		n := min(len(refs), limit-len(p.refs)-p.gone)
		p.refs = append(p.refs, refs[:n]...)
		l.chosen, l.rest = refs[:n], spansOf(refs[n:])
		if len(p.refs)+p.gone >= limit {
			p.lists = p.lists[:i+1]
			break
		}
	}
	return nil
}

// existing removes the tasks that were dropped with their day, and counts them.
func (p *pruning) existing(refs []ref, limit int) []ref {
	return slices.DeleteFunc(refs, func(r ref) bool {
		if r.place >= p.dropped || len(p.refs)+p.gone >= limit {
			return false
		}
		p.gone++
		return true
	})
}

// delete deletes the chosen tasks that still match their list, and returns how many it deleted.
func (p *pruning) delete() (int, error) {
	if len(p.lists) == 0 {
		return 0, nil
	}
	laps := map[ref]int32{}
	at := make([]ref, len(p.refs))
	for i, r := range p.refs {
		at[i] = r.anyLap()
		laps[at[i]] = r.lap
	}
	expired := func(r *row) bool { return p.of.ended(r, laps[r.anyLap()]) }
	found, err := p.read("task.read without args", spansOf(at))
	if err != nil {
		return 0, err
	}
	rows, err := p.lockFree(found, expired)
	if err != nil {
		return 0, err
	}
	p.keepHeld(found, rows)
	var gone []store.ID
	for _, r := range rows {
		if expired(r) {
			gone = append(gone, r.ID)
		} else {
			p.back = append(p.back, r.ID)
		}
	}
	if err := p.decide(func(b *rules.Batch) error { return b.Delete(gone) }); err != nil {
		return 0, err
	}
	for _, l := range p.lists {
		key := []any{[]byte(p.of.queue), p.of.state, l.at, l.seq}
		if len(l.rest) > 0 {
			p.do(q("prune.shorten"), append([]any{encodeSpans(l.rest)}, key...)...)
		} else {
			p.do(q("prune.list"), key...)
		}
	}
	return len(gone) + p.gone, nil
}

// lockFree locks those of the tasks that are not locked. Of the tasks to delete, it skips those whose key is locked.
func (p *pruning) lockFree(found map[ref]*row, expired func(*row) bool) (rows []*row, err error) {
	p.passes = true
	defer func() { p.passes = false }()
	var names []rules.KeyName
	for _, r := range found {
		if expired(r) {
			names = append(names, nameOf(&r.Task))
		}
	}
	if err := p.lockExisting(sortedKeys(names)); err != nil {
		return nil, err
	}
	var free []ref
	for at, r := range found {
		if of := nameOf(&r.Task); of.Key == "" || !expired(r) || p.keys[of] != nil {
			free = append(free, at)
		}
	}
	rows, err = p.lockTasks(free)
	for _, r := range rows {
		p.know(r)
	}
	return rows, err
}

// keepHeld keeps those tasks in their lists that were found but could not be locked.
func (p *pruning) keepHeld(found map[ref]*row, locked []*row) {
	free := map[ref]bool{}
	for _, r := range locked {
		free[r.anyLap()] = true
	}
	for _, l := range p.lists {
		for _, r := range l.chosen {
			if at := r.anyLap(); found[at] != nil && !free[at] {
				p.held = append(p.held, found[at].ID)
				l.rest = append(l.rest, span{r.place, r.n, r.n, r.lap})
				p.kept++
			}
		}
	}
}
