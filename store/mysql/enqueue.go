package mysql

import (
	"context"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	err = s.write(ctx, func(w *work) error {
		results, err = w.enqueue(tasks)
		return err
	})
	if err != nil {
		return nil, wrap("enqueue", err)
	}
	return results, nil
}

// enqueue stores plain tasks directly, which needs neither locks nor the time. The rules decide about others.
func (w *work) enqueue(tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	plain, alone := true, true
	for i := range tasks {
		n := &tasks[i]
		alone = alone && n.Key == "" && len(n.Needs) == 0
		plain = plain && alone && n.RunAt.IsZero() && n.Delay <= 0 && n.ExpiresIn <= 0
	}
	if plain {
		return w.add(tasks), nil
	}
	// The rules will read nothing, so the time would not be read either.
	if alone {
		if _, err := w.clock(); err != nil {
			return nil, err
		}
	}
	err = w.decide(func(b *rules.Batch) error {
		results, err = b.Enqueue(tasks)
		return err
	})
	for _, r := range results {
		w.echoes = w.echoes || r.Result == store.Skipped || r.Result == store.Stale
	}
	return results, err
}

// add stores plain tasks, available or in line for their turn. If no time is known yet, they get the time of the
// statements.
func (w *work) add(tasks []store.NewTask) []store.Enqueued {
	results, rows := make([]store.Enqueued, len(tasks)), make([]*row, len(tasks))
	for i := range tasks {
		n := &tasks[i]
		results[i] = store.Enqueued{ID: n.ID, Result: store.Added}
		rows[i] = &row{Row: rules.Row{Task: store.Task{
			ID: n.ID, State: store.Available, Queue: n.Queue, Kind: n.Kind, Tenant: n.Tenant, Workflow: n.Workflow,
			Partition: n.Partition, Turn: n.Turn,
			Args: n.Args, Tags: n.Tags, Settings: n.Settings, Priority: n.Priority, ExpiresAt: n.ExpiresAt,
		}}}
		if n.Turn {
			rows[i].State = store.Pending
		}
		if w.now != 0 {
			rows[i].EnqueuedAt, rows[i].RunAt = instant(w.now), instant(w.now)
		}
	}
	w.settleDown(rows)
	for _, r := range rows {
		w.enter(r)
	}
	w.insert(rows)
	w.addLabels(rows...)
	return results
}

// lane is what the tasks of a place are listed by.
type lane struct {
	queue    string
	priority int16
	state    store.State
}

// settleDown gives the new tasks of a call their places. Tasks of one lane are adjacent, so that one row of
// tusk_ready can cover many. A task with a key gets a place of its own, because an enqueue with the same key locks
// its row.
func (w *work) settleDown(rows []*row) {
	var lanes ordered[lane]
	of := map[lane][]*row{}
	for _, r := range rows {
		at := lane{r.Queue, r.Priority, r.State}
		lanes.add(at)
		of[at] = append(of[at], r)
	}
	place, n := int64(0), int16(maxPlace)
	for _, at := range lanes.items {
		for _, r := range of[at] {
			if n == maxPlace || r.Key != "" {
				place, n = w.store.places.next(), 0
			}
			r.place, r.n = place, n
			if n++; r.Key != "" {
				n = maxPlace
			}
		}
	}
}

// insert stores new rows.
func (w *work) insert(all []*row) {
	instants := "?, ?"
	if w.now == 0 {
		instants = clock + ", " + clock
	}
	group := "(?, ?, ?, ?, ?, ?, ?, 0, 0, 0, " + instants + ", ?, 0, 0, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	in := inserts{work: w, name: "task.insert", group: group, most: 500}
	for _, r := range all {
		args := []any{r.place, r.n, r.ID[:], []byte(r.Queue), []byte(r.Kind), r.Priority, r.State}
		if w.now != 0 {
			args = append(args, r.EnqueuedAt.UnixMicro(), r.RunAt.UnixMicro())
		}
		args = append(args, microsOrNull(r.ExpiresAt), textOrNull(r.Tenant), textOrNull(r.Key), tagsOrNull(r.Tags),
			bytesOrNull(r.Settings), idOrNull(r.Workflow), textOrNull(r.Partition), r.Open, r.Needed, r.Awaits, r.turn(),
			bytesOrNull(r.Args))
		r.stored = r.fields()
		in.add(args...)
	}
	in.put()
}
