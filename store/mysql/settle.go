package mysql

import (
	"database/sql"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// finishOthers ends attempts whose tasks must be read first. It returns those whose lease is over.
func (w *work) finishOthers(ends []*end) (lost []store.ID, err error) {
	if len(ends) == 0 {
		return nil, nil
	}
	w.lent = map[store.ID]*attempt{}
	outcomes := make([]*store.Outcome, len(ends))
	for i, e := range ends {
		o := *e.Outcome
		// Finished tasks cost little here, and this end must be reported to followers.
		o.Forget = false
		outcomes[i] = &o
		e.stoppable = !o.State.Finished() || o.State == store.Cancelled
		w.lent[o.Task.ID] = e.attempt
		w.isAt(o.Task.ID, e.ref)
	}
	return lost, w.decide(func(b *rules.Batch) error {
		lost, err = b.Finish(outcomes)
		return err
	})
}

// stopped marks the tasks of attempts that must stop.
func (w *work) stopped(refs []ref) error {
	return inParts(spansOf(refs), maxSpans, func(part []span) error {
		text, args := among("stop.locked", part)
		return w.ask(func(rows *sql.Rows) error {
			var at ref
			var lap int32
			var reason []byte
			err := rows.Scan(&at.place, &at.n, &lap, &reason)
			if r := w.rows[at]; r != nil && r.lap == lap && r.State == store.Running {
				r.Stopping, r.StopReason = true, string(reason)
			}
			return err
		}, text, args...)
	})
}
