package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Historian = (*Store)(nil)

// Follow implements store.Historian. Every transaction writes a row of tusk_delta that says which tasks it ended.
// While there are followers, the leader copies these ends into tusk_end when it adds up the rows, in their order, and
// numbers them there. It does so in one transaction at a time, which sees only what is committed. So an end is
// reported a few seconds late, and ends from just before Follow was called are reported, too.
func (s *Store) Follow(ctx context.Context, on bool) (cursor string, err error) {
	var last int64
	err = s.write(ctx, func(w *work) error {
		last, _, err = w.followed()
		w.do(q("follow.write"), last, on)
		if !on {
			w.do(q("end.forget"), last)
		}
		return err
	})
	return strconv.FormatInt(last, 10), wrap("follow", err)
}

// followed locks the row about followers. It returns the number of the last end, and whether there are followers.
func (w *work) followed() (last int64, on bool, err error) {
	err = w.ask(func(rows *sql.Rows) error { return rows.Scan(&last, &on) }, q("follow.lock"))
	return last, on, err
}

// toldEnds is a row of tusk_end: ends of one queue and state at about the same time.
type toldEnds struct {
	last    int64 // the number of the last end
	count   int
	queue   string
	state   store.State
	at      int64
	rescued bool
	spans   []span
}

// instants is the period, in microseconds, in which ends are reported with the same time, that of the last.
const instants = 100_000

// maxTold is how many ends a row of tusk_end has before another row begins.
const maxTold = 500

// tell adds the ends of a delta, to the latest row if that is alike.
func (d *delta) tell(at int64, e endedJSON, rescued bool) error {
	spans, err := decodeSpans(e.Tasks)
	t := toldEnds{queue: e.Queue, state: e.State, at: at, rescued: rescued, spans: spans}
	for _, s := range spans {
		t.count += int(s.last-s.first) + 1
	}
	if n := len(d.told); n > 0 {
		l := &d.told[n-1]
		if l.queue == t.queue && l.state == t.state && l.rescued == rescued && l.count < maxTold &&
			l.at/instants == at/instants {
			l.at, l.count, l.spans = max(l.at, at), l.count+t.count, append(l.spans, spans...)
			return err
		}
	}
	d.told = append(d.told, t)
	return err
}

// tellEnds copies ends and rescues for followers.
func (w *work) tellEnds(all []toldEnds) error {
	last, on, err := w.followed()
	if err != nil || !on || len(all) == 0 {
		return err
	}
	for _, t := range all {
		last += int64(t.count)
		w.do(q("end.insert"), last, t.count, []byte(t.queue), t.state, t.at, t.rescued, encodeSpans(t.spans))
	}
	w.do(q("follow.write"), last, true)
	w.do(q("end.forget"), last-store.MostEnds)
	return nil
}

// Ended implements store.Historian.
func (s *Store) Ended(ctx context.Context, cursor string, limit int) (told store.Ends, err error) {
	from, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return told, fmt.Errorf("ended: the cursor %q is none", cursor)
	}
	var at int64
	err = s.view(ctx, func(w *work) error {
		at, told = from, store.Ends{}
		for {
			page, err := w.endsAfter(at, limit)
			if err != nil || len(page) == 0 {
				return err
			}
			if at == from {
				told.Missed = max(page[0].last-int64(page[0].count)-at, 0)
			}
			for i := range page {
				if err := w.findEnds(&page[i], &told.Ends); err != nil {
					return err
				}
			}
			if at = page[len(page)-1].last; len(told.Ends) > 0 {
				return nil
			}
		}
	})
	told.Cursor = strconv.FormatInt(at, 10)
	return told, wrap("ended", err)
}

// endsAfter reads rows of tusk_end.
func (w *work) endsAfter(at int64, limit int) (page []toldEnds, err error) {
	err = w.ask(func(rows *sql.Rows) error {
		var t toldEnds
		var queue, spans []byte
		err := rows.Scan(&t.last, &t.count, &queue, &t.state, &t.at, &t.rescued, &spans)
		if err == nil {
			t.queue = string(queue)
			t.spans = w.store.spansIn(spans, fmt.Sprint("tusk_end, seq ", t.last))
		}
		page = append(page, t)
		return err
	}, q("end.list"), at, limit)
	return page, err
}

// findEnds adds the ends of a row whose tasks still exist.
func (w *work) findEnds(t *toldEnds, into *[]store.End) error {
	return inParts(t.spans, maxSpans, func(part []span) error {
		text, args := among("end.tasks", part)
		return w.ask(func(rows *sql.Rows) error {
			var id []byte
			if err := rows.Scan(&id); err != nil {
				return err
			}
			*into = append(*into, store.End{Task: store.ID(id), Queue: t.queue, State: t.state, At: instant(t.at),
				Rescued: t.rescued})
			return nil
		}, text, args...)
	})
}

// Forget implements store.Historian.
func (s *Store) Forget(ctx context.Context, cursor string) error {
	at, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return fmt.Errorf("forget: the cursor %q is none", cursor)
	}
	return wrap("forget", s.write(ctx, func(w *work) error {
		w.do(q("end.forget"), at)
		return nil
	}))
}
