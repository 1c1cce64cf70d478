package sqlite

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Extend implements store.Leaser. A beat writes only the worker's row, however many tasks the worker holds. Its notes
// are written in the same transaction. If that is not committed, each note is written by itself after the beat.
func (s *Store) Extend(ctx context.Context, b store.Beat) (stops []store.Stop, err error) {
	stops, err = s.beat(ctx, b)
	if len(b.Notes) == 0 || b.TTL <= 0 || !errors.Is(err, store.ErrNotCommitted) {
		return answer(stops, "extend", err)
	}
	notes := b.Notes
	b.Notes = nil
	if stops, err = s.beat(ctx, b); err != nil {
		return answer(stops, "extend", err)
	}
	errs := rules.NoteApart(ctx, notes, func(n *store.Note) error {
		return s.write(ctx, true, func(w *work) error { return w.note(n) })
	})
	return stops, wrap("extend", rules.Noted(notes, errs))
}

func (s *Store) beat(ctx context.Context, b store.Beat) (stops []store.Stop, err error) {
	c := &call{ctx: ctx, durable: len(b.Notes) > 0, size: 1, fn: func(w *work) error {
		stops, err = w.extend(b)
		return err
	}}
	err = s.submit(s.writer.beats, c)
	return stops, err
}

func (w *work) extend(b store.Beat) ([]store.Stop, error) {
	known, err := w.one("worker.dead", b.Worker.ID)
	if err != nil {
		return nil, err
	}
	is, last := rules.Unheard, int64(0)
	if known != nil {
		is, last = rules.Standing(known.int(0)), known.int(1)
	}
	if counts, err := rules.Beat(&b, is, last); err != nil || !counts {
		return nil, err
	}
	for i := range b.Notes {
		if err := w.note(&b.Notes[i]); err != nil {
			return nil, err
		}
	}
	if b.TTL <= 0 {
		_, err = w.run("worker.bury", int(rules.SignedOff), b.Worker.ID)
		return nil, err
	}
	queues, err := json.Marshal(b.Worker.Queues)
	if err != nil {
		return nil, err
	}
	kinds, err := json.Marshal(b.Worker.Kinds)
	if err != nil {
		return nil, err
	}
	if _, err := w.run("worker.beat", b.Worker.ID, b.Worker.Host, b.Worker.PID, string(queues), b.Worker.Concurrency,
		b.Worker.Version, string(kinds), w.now, after(w.now, b.TTL), b.Seq, bytesOf(b.Holds), b.Seen,
		b.Worker.Hung); err != nil {
		return nil, err
	}
	var stops []store.Stop
	err = w.all("stop.find", func(r row) error {
		stops = append(stops, store.Stop{ID: r.id(0), Lease: r.token(1)})
		return nil
	}, b.Worker.ID)
	return stops, err
}

// bytesOf concatenates tokens.
func bytesOf(tokens []store.Token) []byte {
	all := make([]byte, 0, len(tokens)*len(store.Token{}))
	for _, t := range tokens {
		all = append(all, t[:]...)
	}
	return all
}

// note stores what a running task has recorded, if its lease is open.
func (w *work) note(n *store.Note) error {
	leases, err := w.leasesOf(n.Lease)
	if err != nil {
		return err
	}
	for _, l := range leases {
		r, err := w.one("lease.holds", n.ID, l.lane, l.first, l.last)
		if err != nil {
			return err
		}
		if r != nil {
			return w.record(r.int(0), n)
		}
	}
	return nil
}

// record stores a note for its task.
func (w *work) record(num int64, n *store.Note) error {
	if n.Progress != nil {
		if _, err := w.run("note.progress", num, n.Progress.Percent, n.Progress.Message); err != nil {
			return err
		}
	}
	if n.Output != nil {
		if _, err := w.run("note.output", num, n.Output); err != nil {
			return err
		}
	}
	for _, line := range n.Logs {
		if _, err := w.run("log.add", num, micros(line.At), line.Attempt, line.Level, line.Text); err != nil {
			return err
		}
	}
	return nil
}
