package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Archiver = (*Store)(nil)

// dueCursor says where a page begins: after a list of finished tasks.
type dueCursor struct {
	Queue []byte      `json:"queue"`
	State store.State `json:"state"`
	At    int64       `json:"at"`
	Seq   int64       `json:"seq"`
}

// dueList is a list of finished tasks as a receipt stores it.
type dueList struct {
	At    int64  `json:"at"`
	Seq   int64  `json:"seq"`
	Spans []byte `json:"spans"`
}

// dueReceipt names tasks of one queue and outcome.
type dueReceipt struct {
	Queue []byte      `json:"queue"`
	State store.State `json:"state"`
	Lists []dueList   `json:"lists"`
}

// Due implements store.Archiver. A page consists of whole lists of one queue and outcome, as finishes have stored them.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (due store.Due, err error) {
	var after dueCursor
	if from != "" {
		if err := json.Unmarshal([]byte(from), &after); err != nil {
			return due, fmt.Errorf("due: the cursor %q is none", from)
		}
	}
	err = s.view(ctx, func(w *work) error {
		due = store.Due{}
		if _, err := w.clock(); err != nil {
			return err
		}
		var classes []counted
		if err := w.classes(func(of counted) { classes = append(classes, of) }); err != nil {
			return err
		}
		for _, of := range classes {
			kept := keep.Of(of.queue, of.state)
			if kept <= 0 || compareClass(of, after) < 0 {
				continue
			}
			p := &duePage{work: w, of: of, until: w.now - kept.Microseconds()}
			if compareClass(of, after) == 0 {
				p.after = after
			}
			if err := p.fill(min(limit, store.MaxPage)); err != nil {
				return err
			}
			if len(p.rows) == 0 {
				continue
			}
			due, err = p.answer()
			return err
		}
		return nil
	})
	return due, wrap("due", err)
}

// compareClass compares a class with the class of a cursor, in the order in which Due walks them.
func compareClass(of counted, after dueCursor) int {
	if c := bytes.Compare([]byte(of.queue), after.Queue); c != 0 {
		return c
	}
	return int(of.state) - int(after.State)
}

// duePage is one page of Due.
type duePage struct {
	*work
	of    counted
	after dueCursor // the last list that was read
	until int64
	lists []dueList
	rows  []*row
}

// fill collects lists until they have limit tasks. It goes past lists whose tasks have all come back or are gone. The
// receipt names those lists without tasks, so that Release deletes them.
func (p *duePage) fill(limit int) error {
	for look := limit; len(p.rows) == 0; look = min(4*look, store.MaxPage) {
		lists, found, err := p.next(look)
		if err != nil || len(lists) == 0 {
			return err
		}
		for _, l := range lists {
			var still []*row
			for _, at := range p.refsIn(&l) {
				if r := found[ref{at.place, at.n, 0}]; r != nil && p.of.ended(r, at.lap) {
					still = append(still, r)
				}
			}
			if len(p.rows) > 0 && len(p.rows)+len(still) > limit {
				break
			}
			if p.rows = append(p.rows, still...); len(p.rows) == 0 {
				l.Spans = nil
			}
			p.lists = append(p.lists, l)
			p.after = dueCursor{[]byte(p.of.queue), p.of.state, l.At, l.Seq}
		}
	}
	return nil
}

// next reads the lists after those of the page, until they have about limit tasks, and these tasks.
func (p *duePage) next(limit int) (lists []dueList, found map[ref]*row, err error) {
	err = p.ask(func(rows *sql.Rows) error {
		var l dueList
		err := rows.Scan(&l.At, &l.Seq, &l.Spans)
		lists = append(lists, l)
		return err
	}, q("due.lists"), []byte(p.of.queue), p.of.state, p.until, p.after.At, p.after.At, p.after.Seq, limit)
	if err != nil {
		return nil, nil, err
	}
	var refs []ref
	for i := range lists {
		own := p.refsIn(&lists[i])
		if i > 0 && len(refs)+len(own) > limit {
			lists = lists[:i]
			break
		}
		refs = append(refs, own...)
	}
	found, err = p.read("task.read", spansOf(refs))
	return lists, found, err
}

// refsIn returns the tasks of a list.
func (w *work) refsIn(l *dueList) []ref {
	return refsOf(w.store.spansIn(l.Spans, fmt.Sprint("tusk_finished, seq ", l.Seq)))
}

// ended reports whether a task still has the end that a list of its class records.
func (of counted) ended(r *row, lap int32) bool {
	return r.State == of.state && r.Queue == of.queue && r.lap == lap
}

// answer returns the page with the history of its tasks.
func (p *duePage) answer() (due store.Due, err error) {
	l := &listing{work: p.work, f: &store.Filter{Detail: true, Limit: len(p.rows)}, rows: p.rows}
	l.newest()
	if due.Tasks, err = l.tasks(); err != nil {
		return due, err
	}
	if due.Receipt, err = json.Marshal(dueReceipt{[]byte(p.of.queue), p.of.state, p.lists}); err != nil {
		return due, err
	}
	next, err := json.Marshal(p.after)
	due.Next = string(next)
	return due, err
}

// Release implements store.Archiver.
func (s *Store) Release(ctx context.Context, receipt []byte) (back []store.ID, err error) {
	var noted dueReceipt
	if err := json.Unmarshal(receipt, &noted); err != nil {
		return nil, fmt.Errorf("release: the receipt is damaged: %w", err)
	}
	var p *pruning
	err = s.hurry(ctx, hastyTries, func(w *work) error {
		p = &pruning{work: w, of: counted{string(noted.Queue), noted.State}}
		if err := p.note(noted.Lists); err != nil {
			return err
		}
		_, err := p.delete()
		return err
	})
	if err == nil {
		err = heldError(p.held)
	}
	if err != nil {
		return nil, wrap("release", err)
	}
	return p.back, nil
}

// note chooses the tasks in the lists of a receipt.
func (p *pruning) note(lists []dueList) error {
	if _, err := p.clock(); err != nil {
		return err
	}
	for _, noted := range lists {
		l := &finishedList{at: noted.At, seq: noted.Seq, chosen: p.refsIn(&noted)}
		p.refs = append(p.refs, l.chosen...)
		p.lists = append(p.lists, l)
	}
	return nil
}
