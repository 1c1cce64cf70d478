package tend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// SuspectKind is the kind of the records in which workers list the tasks that they have begun and whose last worker
// died. Each record holds a list of receipts, under the worker's id.
const SuspectKind = "suspects"

// Receipt names an attempt.
func Receipt(id store.ID, lease store.Token) string { return id.String() + "." + lease.String() }

// suspectAge is the minimum time that a record outlives its worker, so that no record is deleted before its tasks are
// rescued.
const suspectAge = 5 * time.Minute

// begun returns which of the rescued attempts had begun. It checks only tasks for which this matters: those that have
// lost a worker before.
func (l *Leader) begun(ctx context.Context, tasks []store.Task) (map[string]bool, error) {
	if !slices.ContainsFunc(tasks, func(t store.Task) bool { return t.Crashes > 0 }) {
		return nil, nil
	}
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: SuspectKind})
	if err != nil {
		return nil, err
	}
	begun := map[string]bool{}
	for _, r := range records {
		var receipts []string
		if err := json.Unmarshal(r.Body, &receipts); err != nil {
			l.o.Log.Error("rescue: suspects cannot be read", "worker", r.Name, "error", err)
		}
		for _, receipt := range receipts {
			begun[receipt] = true
		}
	}
	return begun, nil
}

// forgetSuspects deletes the records of workers that ended long ago.
func (l *Leader) forgetSuspects(ctx context.Context, term int64) error {
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: SuspectKind})
	if err != nil || len(records) == 0 {
		return err
	}
	living, err := l.store.Workers(ctx)
	if err != nil {
		return err
	}
	for _, r := range records {
		lives := slices.ContainsFunc(living, func(w store.Worker) bool { return w.ID.String() == r.Name })
		if lives || l.now().Sub(r.UpdatedAt) < suspectAge {
			continue
		}
		r.Body = nil
		_, _, err := l.store.PutRecord(ctx, store.PutRecord{Record: r, Term: term})
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}
