package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Extend implements store.Leaser. The beat is written first and separately, so that it does not wait for a long
// transaction that holds one of the worker's tasks.
func (s *Store) Extend(ctx context.Context, b store.Beat) (stops []store.Stop, err error) {
	watched := int64(0)
	if b.TTL > 0 {
		watched = s.attendant.watch(ctx, b.Worker.ID)
	}
	left := false
	err = s.write(ctx, func(w *work) error {
		left, err = w.beat(&b, watched)
		return err
	})
	if err != nil {
		if errors.Is(err, store.ErrWorkerDead) {
			s.leases.leave(b.Worker.ID)
			s.attendant.locks.Leave(b.Worker.ID)
		}
		return nil, wrap("extend", err)
	}
	if b.TTL <= 0 {
		s.leases.leave(b.Worker.ID)
		s.attendant.locks.Leave(b.Worker.ID)
	}
	if left || b.TTL <= 0 {
		return nil, nil
	}
	noted := s.note(ctx, b.Notes)
	if stops, err = s.stops(ctx, b.Worker.ID); err == nil {
		err = noted
	}
	return stops, wrap("extend", err)
}

// note stores the notes of a beat that counts: together or, if that is not committed, each separately.
func (s *Store) note(ctx context.Context, notes []store.Note) error {
	write := func(notes []store.Note) error {
		return s.write(ctx, func(w *work) error { return w.note(notes) })
	}
	if len(notes) == 0 {
		return nil
	}
	together := write(notes)
	if together == nil {
		return nil
	}
	return rules.Noted(notes, rules.NoteApart(ctx, notes, func(n *store.Note) error {
		if !errors.Is(together, store.ErrNotCommitted) || len(notes) == 1 {
			return together
		}
		return write([]store.Note{*n})
	}))
}

// beat writes a worker's beat. It reports whether the beat signs off a worker that is unknown or has signed off before,
// which changes nothing.
func (w *work) beat(b *store.Beat, watched int64) (left bool, err error) {
	is := rules.Unheard
	var started, last int64
	w.buf = append(w.buf, stmt{q("clock"), nil, func(rows *sql.Rows) error { return rows.Scan(&w.now) }})
	err = w.ask(func(rows *sql.Rows) error { return rows.Scan(&is, &started, &last) }, q("worker.lock"), b.Worker.ID[:])
	if err != nil {
		return false, err
	}
	w.store.places.learn(w.now)
	if counts, err := rules.Beat(b, is, last); err != nil || !counts {
		return err == nil, err
	}
	if b.TTL <= 0 {
		w.do(q("worker.leave"), b.Worker.ID[:])
		return false, w.note(b.Notes)
	}
	queues, err := json.Marshal(b.Worker.Queues)
	if err != nil {
		return false, err
	}
	kinds, err := json.Marshal(b.Worker.Kinds)
	if err != nil {
		return false, err
	}
	labels := []any{[]byte(b.Worker.Host), b.Worker.PID, queues, b.Worker.Concurrency, []byte(b.Worker.Version), kinds}
	every := b.Every
	if every <= 0 {
		every = b.TTL / 3
	}
	late, expires := w.now+every.Microseconds()*3/2, w.now+b.TTL.Microseconds()
	if is == rules.Unheard {
		w.do(q("worker.insert"), append(append([]any{b.Worker.ID[:]}, labels...), w.now, w.now, late, expires, watched, b.Seq,
			bytesOf(b.Holds), b.Worker.Hung, w.store.program.mark)...)
		return false, nil
	}
	w.do(q("worker.beat"), slices.Concat([]any{b.Seq, b.Seen, b.Seen}, labels,
		[]any{w.now, late, expires, watched, b.Seq, bytesOf(b.Holds), b.Worker.Hung, w.store.program.mark,
			b.Worker.ID[:]})...)
	return false, nil
}

// bytesOf concatenates tokens.
func bytesOf(tokens []store.Token) []byte {
	all := make([]byte, 0, len(tokens)*len(store.Token{}))
	for _, t := range tokens {
		all = append(all, t[:]...)
	}
	return all
}

// tokensOf is the inverse of bytesOf.
func tokensOf(all []byte) map[store.Token]bool {
	tokens := map[store.Token]bool{}
	for n := len(store.Token{}); len(all) >= n; all = all[n:] {
		tokens[store.Token(all)] = true
	}
	return tokens
}

// note stores notes on running tasks. Each statement checks itself whether the lease is open, and locks nothing.
func (w *work) note(notes []store.Note) error {
	asked := make([]leased, len(notes))
	for i := range notes {
		asked[i] = leased{notes[i].ID, notes[i].Lease}
	}
	found, err := w.resolve(asked)
	if err != nil {
		return err
	}
	for i := range notes {
		if f := found[i]; f != nil {
			w.do(q("note.add"), w.next(), encodeNote(noteOf(&notes[i])), f.place, f.n, f.lap)
		}
	}
	return nil
}

// noteJSON is a note as it is stored. The last change of a task has a row of its own, which the next change overwrites.
type noteJSON struct {
	Progress *store.Progress `json:"progress,omitempty"`
	Output   []byte          `json:"output,omitempty"`
	Logs     []store.LogLine `json:"logs,omitempty"`

	Changed *store.LastChange `json:"changed,omitempty"`
}

func noteOf(n *store.Note) noteJSON {
	return noteJSON{Progress: n.Progress, Output: n.Output, Logs: n.Logs}
}

func encodeNote(n noteJSON) []byte {
	body, err := json.Marshal(n)
	if err != nil {
		panic(err) // texts, numbers and instants can always be encoded
	}
	return body
}

// next returns a number that grows within this process and almost never repeats in another.
func (w *work) next() int64 { return w.store.places.next() }

// stops returns the attempts of a worker that must stop.
func (s *Store) stops(ctx context.Context, worker store.ID) (stops []store.Stop, err error) {
	wanted := map[ref]store.ID{}
	err = s.query(ctx, func(rows *sql.Rows) error {
		var r ref
		var id []byte
		err := rows.Scan(&r.place, &r.n, &r.lap, &id)
		if err == nil {
			wanted[r] = store.ID(id)
		}
		return err
	}, q("stop.all"))
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	err = s.query(ctx, func(rows *sql.Rows) error {
		l, err := s.lease(rows)
		if err != nil {
			return err
		}
		for r, id := range wanted {
			if l.has(r) {
				stops = append(stops, store.Stop{ID: id, Lease: l.token})
			}
		}
		return nil
	}, q("lease.of worker"), worker[:])
	return stops, err
}
