package mysql

import (
	"database/sql"
	"encoding/json"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// details reads what only Detail shows. It returns nil unless the filter asks for details.
func (l *listing) details() (map[ref]*store.Detail, error) {
	if !l.f.Detail || len(l.rows) == 0 {
		return nil, nil
	}
	at, found, refs := map[ref]*store.Detail{}, map[ref]*row{}, []ref(nil)
	for _, r := range l.rows {
		at[r.ref] = &store.Detail{}
		found[r.anyLap()] = r
		refs = append(refs, r.anyLap())
	}
	of := func(r ref) (*row, *store.Detail) {
		t := found[r.anyLap()]
		return t, at[t.ref]
	}
	err := inParts(spansOf(refs), maxSpans, func(part []span) error {
		text, args := among("attempt.read", part)
		l.buf = append(l.buf, stmt{text, args, func(rows *sql.Rows) error { return readAttempt(rows, of) }})
		text, args = among("note.read", part)
		l.buf = append(l.buf, stmt{text, args, func(rows *sql.Rows) error { return readNote(rows, of) }})
		text, args = among("stop.read", part)
		return l.ask(func(rows *sql.Rows) error {
			var r ref
			err := rows.Scan(&r.place, &r.n, &r.lap)
			if d := at[r]; d != nil {
				d.CancelRequested = true
			}
			return err
		}, text, args...)
	})
	if err != nil {
		return nil, err
	}
	if err := l.needStates(at, refs); err != nil {
		return nil, err
	}
	for _, r := range l.rows {
		d := at[r.ref]
		d.Logs = rules.Lines(d.Logs)
		d.CancelRequested = d.CancelRequested && r.running()
		if own, any := r.attempt(); any {
			d.Attempts = append(d.Attempts, own)
		}
		last := len(d.Attempts) - 1
		kept := d.Attempts[:0]
		for i, a := range d.Attempts {
			if a.Error != "" || i == last {
				kept = append(kept, a)
			}
		}
		d.Attempts = kept
	}
	return at, nil
}

// needStates reads the needs of tasks, and the states of the needed tasks.
func (l *listing) needStates(at map[ref]*store.Detail, refs []ref) error {
	needs := map[ref][]rules.OpenNeed{}
	var all []store.ID
	err := l.needsOf(refs, func(at ref, n rules.OpenNeed) {
		needs[at] = append(needs[at], n)
		all = append(all, n.Task)
	})
	if err != nil || len(needs) == 0 {
		return err
	}
	var states map[store.ID]store.State
	if !l.f.NoStates {
		states, err = l.statesOf(all)
	}
	for _, r := range l.rows {
		for _, n := range needs[r.anyLap()] {
			at[r.ref].Needs = append(at[r.ref].Needs, store.NeedState{Need: n.Need, State: states[n.Task]})
		}
	}
	return err
}

// attempt returns the attempt that the task's own row fully describes.
func (r *row) attempt() (a store.Attempt, any bool) {
	if r.State != store.Completed || r.Worker.IsZero() {
		return a, false
	}
	return store.Attempt{Number: r.Attempt, Worker: r.Worker, StartedAt: r.ClaimedAt, EndedAt: r.FinishedAt,
		Outcome: store.Completed}, true
}

func readAttempt(rows *sql.Rows, of func(ref) (*row, *store.Detail)) error {
	var r ref
	var a store.Attempt
	var started, ended int64
	var worker, text, trace, fingerprint []byte
	if err := rows.Scan(&r.place, &r.n, &r.lap, &a.Number, &worker, &started, &ended, &a.Outcome, &text, &trace,
		&fingerprint); err != nil {
		return err
	}
	copy(a.Worker[:], worker)
	a.StartedAt, a.EndedAt = instant(started), instant(ended)
	a.Error, a.Trace, a.Fingerprint = string(text), string(trace), string(fingerprint)
	_, d := of(r)
	d.Attempts = append(d.Attempts, a)
	return nil
}

// readNote reads a note. A damaged note does not hide other notes or tasks.
func readNote(rows *sql.Rows, of func(ref) (*row, *store.Detail)) error {
	var r ref
	var body []byte
	var n noteJSON
	if err := rows.Scan(&r.place, &r.n, &body); err != nil {
		return err
	}
	t, d := of(r)
	if err := json.Unmarshal(body, &n); err != nil {
		t.Damage = "a note cannot be read: " + err.Error()
		return nil
	}
	if n.Progress != nil {
		d.Progress = n.Progress
	}
	if n.Output != nil {
		d.Output = n.Output
	}
	if n.Changed != nil {
		d.Changed = n.Changed
	}
	d.Logs = append(d.Logs, n.Logs...)
	return nil
}
