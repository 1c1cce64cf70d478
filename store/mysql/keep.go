package mysql

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// leader is the holder of the term, and how long it lasts.
type leader struct {
	id      store.ID
	term    int64
	expires int64
	renewed int64
}

func (l *leader) read(rows *sql.Rows) error {
	var id []byte
	err := rows.Scan(&id, &l.term, &l.expires, &l.renewed)
	copy(l.id[:], id)
	return err
}

// clockSlack is how many microseconds later than now a stored time may be although the clock was not set back, because
// now is read before rows are.
const clockSlack = 1_000_000

// Lead implements store.Keeper.
func (s *Store) Lead(ctx context.Context, c store.Candidate) (answer store.Leadership, err error) {
	err = s.write(ctx, func(w *work) error {
		answer, err = w.lead(c)
		return err
	})
	return answer, wrap("lead", err)
}

func (w *work) lead(c store.Candidate) (store.Leadership, error) {
	var l leader
	w.buf = append(w.buf, stmt{q("leader.lock"), nil, func(rows *sql.Rows) error { return l.read(rows) }})
	if _, err := w.fresh(); err != nil {
		return store.Leadership{}, err
	}
	w.store.places.learn(w.now)
	answer := store.Leadership{Now: instant(w.now)}
	mine := l.id == c.ID
	switch {
	case c.TTL <= 0 && mine:
		w.do(q("leader.write"), nil, l.term, 0, 0)
		return answer, nil
	case c.TTL <= 0:
		return answer, nil
	case mine:
	case l.id.IsZero() || w.now >= l.expires:
		l.id, l.term = c.ID, l.term+1
	case l.renewed > w.now+clockSlack: // the clock was set back: the term begins now
		w.do(q("leader.write"), l.id[:], l.term, w.now+l.expires-l.renewed, w.now)
		return answer, nil
	default:
		return answer, nil
	}
	w.do(q("leader.write"), l.id[:], l.term, w.now+c.TTL.Microseconds(), w.now)
	answer.Term = l.term
	return answer, nil
}

// fresh reads the time again, because a statement that waited for a lock reports the time when it began to wait.
func (w *work) fresh() (now int64, err error) {
	w.now = 0
	return w.clock()
}

// leads fails unless term is the current term. The leader's row stays locked against a change of leader until the
// commit.
func (w *work) leads(term int64) error {
	var l leader
	w.buf = append(w.buf, stmt{q("leader.check"), nil, func(rows *sql.Rows) error { return l.read(rows) }})
	if _, err := w.fresh(); err != nil {
		return err
	}
	if !l.leads(term, w.now) {
		return store.ErrNotLeader
	}
	return nil
}

// maxAdmitted is how many tasks one transaction makes available at most.
const maxAdmitted = 1000

// Admit implements store.Keeper.
func (s *Store) Admit(ctx context.Context, term int64, limit int) (done store.Admitted, err error) {
	ahead, err := s.peek(ctx, term)
	if err != nil {
		return store.Admitted{Next: -1}, wrap("admit", err)
	}
	if !ahead.doomed && ahead.next() != 0 {
		return store.Admitted{Next: ahead.next()}, nil
	}
	if done.Cancelled, err = s.cancelDoomed(ctx, term, limit); err != nil {
		return store.Admitted{Next: -1}, wrap("admit", err)
	}
	after := waitingAt{runAt: math.MinInt64}
	for {
		var part store.Admitted
		var due []waitingAt
		size := min(limit-done.Count, maxAdmitted)
		err := s.hurry(ctx, hastyTries, func(w *work) error {
			part, due, err = w.admit(term, after, size)
			return err
		})
		if err != nil {
			done.Next = -1
			return done, wrap("admit", err)
		}
		done.Count += part.Count
		done.Next = part.Next
		for _, queue := range part.Queues {
			if !slices.Contains(done.Queues, queue) {
				done.Queues = append(done.Queues, queue)
			}
		}
		if len(due) < size || done.Count >= limit || done.Count > 0 && size < maxAdmitted/10 {
			return done, nil // the next round goes on, by larger pages
		}
		after = due[len(due)-1] // what is left up to there is held
	}
}

// admit reads up to limit tasks that are due, after a given one. It makes them available, or makes them wait for their
// turn, but skips tasks that another transaction is changing.
func (w *work) admit(term int64, after waitingAt, limit int) (done store.Admitted, due []waitingAt, err error) {
	done.Next = -1
	if err := w.leads(term); err != nil {
		return done, nil, err
	}
	var refs []ref
	err = w.ask(func(rows *sql.Rows) error {
		var at waitingAt
		err := rows.Scan(&at.runAt, &at.place, &at.n)
		due, refs = append(due, at), append(refs, ref{at.place, at.n, 0})
		return err
	}, q("admit.due"), after.runAt, w.now, after.runAt, after.place, after.place, after.n, limit)
	if err != nil {
		return done, nil, err
	}
	rows, err := w.lockDue(refs)
	if err != nil {
		return done, nil, err
	}
	ids := make([]store.ID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	err = w.decide(func(b *rules.Batch) error {
		admitted, err := b.Admit(ids)
		for _, r := range admitted {
			done.Count++
			if !slices.Contains(done.Queues, r.Queue) {
				done.Queues = append(done.Queues, r.Queue)
			}
		}
		return err
	})
	if err != nil {
		return done, nil, err
	}
	return done, due, w.ask(func(rows *sql.Rows) error {
		var next int64
		err := rows.Scan(&next)
		done.Next = max(time.Duration(next-w.now)*time.Microsecond, 0)
		return err
	}, q("admit.next"))
}

// lockDue locks waiting tasks and returns them, those that are due first at the front.
func (w *work) lockDue(due []ref) (rows []*row, err error) {
	err = inParts(apart(due), maxSpans, func(part []span) error {
		text, args := among("admit.lock", part, w.now)
		return w.ask(func(found *sql.Rows) error {
			r, err := readLocked(found)
			rows = append(rows, r)
			return err
		}, strings.Replace(text, ":due", "?", 1), args...)
	})
	for _, r := range rows {
		w.know(r)
	}
	slices.SortFunc(rows, func(a, b *row) int {
		if c := a.RunAt.Compare(b.RunAt); c != 0 {
			return c
		}
		return byPlace(a.ref, b.ref)
	})
	return rows, err
}
