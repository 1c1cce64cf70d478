package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// addDetails fills in the details of tasks. If a task already has details, they are its completion, the latest of
// its attempts.
func (s *Store) addDetails(ctx context.Context, tasks []store.Task, noStates bool) error {
	page := sync.OnceValue(func() map[store.ID]*store.Task { // most pages have no details to read
		byID := make(map[store.ID]*store.Task, len(tasks))
		for i := range tasks {
			byID[tasks[i].ID] = &tasks[i]
		}
		return byID
	})
	ids, completed := make(uuids, len(tasks)), make([]*store.Detail, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Detail == nil {
			t.Detail = &store.Detail{}
		} else {
			completed = append(completed, t.Detail)
		}
		ids[i] = t.ID
	}
	if len(ids) == 0 {
		return nil
	}
	first, last := ids[0], ids[0]
	for _, id := range ids {
		if bytes.Compare(id[:], first[:]) < 0 {
			first = id
		}
		if bytes.Compare(id[:], last[:]) > 0 {
			last = id
		}
	}
	row := func(raw [][]byte) error { return readDetail(page(), raw) }
	if err := s.query(ctx, "details", row, ids, first, last, noStates); err != nil {
		return err
	}
	for _, d := range completed {
		if last := d.Attempts[0]; len(d.Attempts) > 1 {
			d.Attempts = append(d.Attempts[1:], last)
		}
	}
	return nil
}

// completedBy returns the details of a completed task that its completion provides.
func completedBy(t *store.Task, worker store.ID) *store.Detail {
	var d struct { // one allocation for both
		store.Detail
		last [1]store.Attempt
	}
	d.last[0] = store.Attempt{Number: t.Attempt, Worker: worker, StartedAt: t.ClaimedAt, EndedAt: t.FinishedAt,
		Outcome: store.Completed}
	d.Attempts = d.last[:]
	return &d.Detail
}

// readDetail reads a row of the statement details into its task of the page. The first column says what the row
// holds.
func readDetail(page map[store.ID]*store.Task, raw [][]byte) error {
	d := page[idOf(raw[1])].Detail
	switch int32Of(raw[0]) {
	case 1:
		d.Attempts = append(d.Attempts, store.Attempt{
			Number: int(int32Of(raw[3])), Worker: idOf(raw[5]), StartedAt: timeOf(raw[6]), EndedAt: timeOf(raw[7]),
			Outcome: stateOf(raw[4]), Error: string(raw[8]), Trace: string(raw[9]), Fingerprint: string(raw[10]),
		})
	case 2:
		d.Output = bytesOf(raw[12])
		if raw[16] != nil {
			d.Changed = &store.LastChange{At: timeOf(raw[16]), How: store.How(raw[17])}
		}
		if raw[11] != nil {
			if err := json.Unmarshal(jsonb(raw[11]), &d.Progress); err != nil {
				return err
			}
		}
		if raw[13] != nil {
			if err := json.Unmarshal(jsonb(raw[13]), &d.Logs); err != nil {
				return err
			}
			d.Logs = rules.Lines(d.Logs)
		}
	case 3:
		n := store.NeedState{Need: store.Need{Task: idOf(raw[14]), OnFailure: store.OnFailure(stateOf(raw[15]))}}
		if parent := page[n.Task]; parent != nil {
			n.State = parent.State
		} else if raw[4] != nil {
			n.State = stateElsewhere(int16(stateOf(raw[4])))
		}
		d.Needs = append(d.Needs, n)
	case 4:
		d.CancelRequested = true
	}
	return nil
}

// jsonb strips the version from the binary form of a jsonb value.
func jsonb(raw []byte) []byte { return raw[1:] }
