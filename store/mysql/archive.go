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

// dueLists is how many lists one page reads.
const dueLists = 1000

// dueList is a list of finished tasks as a receipt stores it: with those that still had this end.
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

// Due implements store.Archiver. A page consists of whole lists of one queue and outcome, as finishes have stored
// them. Due deletes the lists that it skips on the way to a page, or to the end, because their tasks have all been
// retried or deleted, and no later page would delete them.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (due store.Due, err error) {
	var after dueCursor
	var passed [][]byte // receipts of lists without tasks
	if from != "" {
		if err := json.Unmarshal([]byte(from), &after); err != nil {
			return due, fmt.Errorf("due: the cursor %q is none", from)
		}
	}
	err = s.view(ctx, func(w *work) error {
		due, passed = store.Due{}, nil
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
			end, err := p.fill(min(limit, store.MaxPage))
			if err != nil {
				return err
			}
			receipt, err := p.receipt()
			if err != nil {
				return err
			}
			if len(p.rows) > 0 {
				due.Receipt = receipt
			} else if len(p.lists) > 0 {
				passed = append(passed, receipt)
			}
			if end && len(p.rows) == 0 {
				continue
			}
			return p.answer(&due)
		}
		return nil
	})
	for _, receipt := range passed {
		if err == nil {
			_, err = s.Release(ctx, receipt)
		}
	}
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

// fill collects lists until they have limit tasks. It skips lists whose tasks have all been retried or deleted, but
// reads no more than s.dueLists lists. The receipt names the skipped lists without tasks, so that Release deletes
// them with the rest of the page. It reports whether the class has no more lists.
func (p *duePage) fill(limit int) (end bool, err error) {
	looked := 0
	for look := limit; len(p.rows) == 0 && looked < p.store.dueLists; look = min(4*look, store.MaxPage) {
		lists, found, err := p.next(min(look, p.store.dueLists-looked))
		if err != nil || len(lists) == 0 {
			return true, err
		}
		looked += len(lists)
		for _, l := range lists {
			var still []ref
			for _, at := range p.refsIn(&l) {
				if r := found[at.anyLap()]; r != nil && p.of.ended(r, at.lap) {
					still = append(still, at)
				}
			}
			if len(p.rows) > 0 && len(p.rows)+len(still) > limit {
				break
			}
			for _, at := range still {
				p.rows = append(p.rows, found[at.anyLap()])
			}
			l.Spans = encodeSpans(spansOf(still))
			p.lists = append(p.lists, l)
			p.after = dueCursor{[]byte(p.of.queue), p.of.state, l.At, l.Seq}
		}
	}
	return false, p.readArgs()
}

// readArgs reads the tasks of the page again, with their args, in the same snapshot.
func (p *duePage) readArgs() error {
	refs := make([]ref, len(p.rows))
	for i, r := range p.rows {
		refs[i] = r.anyLap()
	}
	found, err := p.read("task.read", spansOf(refs))
	if err != nil {
		return err
	}
	for i, at := range refs {
		p.rows[i] = found[at]
	}
	return nil
}

// next reads the lists after those of the page, until they have about limit tasks, and these tasks without
// their args.
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
	found, err = p.read("task.read without args", spansOf(refs))
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

// receipt names the tasks of the page, and the lists that it went past.
func (p *duePage) receipt() ([]byte, error) {
	return json.Marshal(dueReceipt{[]byte(p.of.queue), p.of.state, p.lists})
}

// answer adds the tasks of the page with their history. A page without tasks says where the next one begins.
func (p *duePage) answer(due *store.Due) error {
	next, err := json.Marshal(p.after)
	if due.Next = string(next); err != nil || len(p.rows) == 0 {
		return err
	}
	l := &listing{work: p.work, f: &store.Filter{Detail: true, Limit: len(p.rows)}, rows: p.rows}
	l.newest()
	due.Tasks, err = l.tasks()
	return err
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
