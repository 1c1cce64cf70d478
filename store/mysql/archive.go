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
			if err := p.read(min(limit, store.MaxPage)); err != nil {
				return err
			}
			if len(p.lists) == 0 {
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
	after dueCursor
	until int64
	lists []dueList
	rows  []*row
	last  dueCursor
}

// read collects lists until they have limit tasks.
func (p *duePage) read(limit int) error {
	var lists []dueList
	err := p.ask(func(rows *sql.Rows) error {
		var l dueList
		err := rows.Scan(&l.At, &l.Seq, &l.Spans)
		lists = append(lists, l)
		return err
	}, q("due.lists"), []byte(p.of.queue), p.of.state, p.until, p.after.At, p.after.At, p.after.Seq, limit)
	if err != nil {
		return err
	}
	var refs []ref
	for _, l := range lists {
		own := refsOf(p.work.store.spansIn(l.Spans, fmt.Sprint("tusk_finished, seq ", l.Seq)))
		if len(refs) > 0 && len(refs)+len(own) > limit {
			break
		}
		refs = append(refs, own...)
		p.lists = append(p.lists, l)
		p.last = dueCursor{[]byte(p.of.queue), p.of.state, l.At, l.Seq}
	}
	found, err := p.work.read("task.read", spansOf(refs))
	for _, at := range refs {
		if r := found[ref{at.place, at.n, 0}]; r != nil && p.of.ended(r, at.lap) {
			p.rows = append(p.rows, r)
		}
	}
	return err
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
	next, err := json.Marshal(p.last)
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
		l := &finishedList{at: noted.At, seq: noted.Seq}
		l.chosen = refsOf(p.store.spansIn(noted.Spans, fmt.Sprint("tusk_finished, seq ", l.seq)))
		p.refs = append(p.refs, l.chosen...)
		p.lists = append(p.lists, l)
	}
	return nil
}
