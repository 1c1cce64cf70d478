package postgres

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// putting is a task that moves from one place to another, as put_tasks reads it.
type putting struct {
	ID       store.ID   `json:"id"`
	Was      int16      `json:"was"`
	Place    int        `json:"place"`
	State    int16      `json:"state"` // 0 if it is deleted
	Lane     int64      `json:"lane"`
	RunAt    time.Time  `json:"run_at"`
	Attempt  int        `json:"attempt"`
	Crashes  int        `json:"crashes"`
	Reason   string     `json:"reason"`
	Finished *time.Time `json:"finished_at,omitempty"`
	Line     *time.Time `json:"line,omitempty"`
}

// apply writes what the rules have decided, with one statement for each kind of row, and commits.
// It handles edits and cancelled chains, in which no task is new and no attempt has ended.
func (w *work) apply(b *rules.Batch) error {
	var batch pgx.Batch
	changes := b.Changes()
	if err := w.putTasks(&batch, changes, b.Now); err != nil {
		return err
	}
	w.noteChanges(&batch, changes, b.Now)
	w.stopTasks(&batch, changes)
	w.writeKeys(&batch, b)
	w.writeNeeds(&batch, b)
	w.forget(&batch, changes)
	batch.Queue("commit")
	return w.send(&batch)
}

// putTasks moves tasks to their new places, and gives back their turns.
func (w *work) putTasks(batch *pgx.Batch, changes []rules.Change, now time.Time) error {
	var puts []putting
	var turns, available uuids
	from, to := lanesOf{}, lanesOf{}
	for _, c := range changes {
		if c.Before.HasTurn && (c.After == nil || !c.After.HasTurn) {
			turns = append(turns, c.Before.ID)
		}
		if c.After != nil && c.After.Place == 0 {
			continue // only needs have changed, which have tables of their own
		}
		if c.Before.State == store.Available {
			available = append(available, c.Before.ID)
			from.add(c.Before)
		}
		p := putting{ID: c.Before.ID, Was: int16(c.Before.State)}
		if r := c.After; r != nil {
			p.State, p.Place, p.Lane, p.RunAt = int16(r.State), r.Place, laneOfRow(r), r.RunAt
			p.Attempt, p.Crashes, p.Reason, p.Finished = r.Attempt, r.Crashes, r.Reason, timeOrNull(r.FinishedAt)
			if r.InLine() {
				p.Line = &now
			}
			if r.State == store.Available && r.RunAt.After(now) {
				p.RunAt = now // a task enqueued while this call waited for locks would seem to be due later
			}
			if r.Queue != c.Before.Queue || r.Priority != c.Before.Priority {
				to.add(r)
			}
		}
		puts = append(puts, p)
	}
	if len(puts) == 0 {
		return nil
	}
	slices.SortStableFunc(puts, func(a, b putting) int { return cmp.Compare(a.Place, b.Place) })
	list, err := json.Marshal(puts)
	if err != nil {
		return err
	}
	if len(to.lanes) > 0 {
		w.queue(batch, "name_lanes", to.lanes, to.queues)
	}
	if len(from.lanes) > 0 {
		w.queue(batch, "unpack", available, from.lanes)
	}
	w.queue(batch, "put_tasks", list, from.lanes).QueryRow(func(row pgx.Row) error {
		var left uuids
		err := row.Scan(&left)
		for _, id := range left {
			w.left[id] = true
		}
		return err
	})
	if len(turns) > 0 {
		w.queue(batch, "give_back_turns", turns)
	}
	return nil
}

// lanesOf is a set of lanes, with their queues.
type lanesOf struct {
	lanes  []int64
	queues []string
}

func laneOfRow(r *rules.Row) int64 { return hashOfAny(r.Queue)<<16 + int64(r.Priority) - math.MinInt16 }

func (l *lanesOf) add(r *rules.Row) {
	if lane := laneOfRow(r); !slices.Contains(l.lanes, lane) {
		l.lanes, l.queues = append(l.lanes, lane), append(l.queues, r.Queue)
	}
}

// noteChanges records that waiting tasks were changed, and how.
func (w *work) noteChanges(batch *pgx.Batch, changes []rules.Change, now time.Time) {
	var ids uuids
	var how []string
	for _, c := range changes {
		if r := c.After; r != nil && r.Changed != nil {
			ids, how = append(ids, r.ID), append(how, string(r.Changed.How))
		}
	}
	if len(ids) > 0 {
		w.queue(batch, "note_changes", ids, how, now)
	}
}

// stopTasks records running tasks that must stop. Their workers are told with their next beat.
func (w *work) stopTasks(batch *pgx.Batch, changes []rules.Change) {
	var ids, tokens uuids
	var reasons []string
	for _, c := range changes {
		if r := c.After; r != nil && r.Stopping && (!c.Before.Stopping || c.Before.StopReason != r.StopReason) {
			ids, tokens, reasons = append(ids, r.ID), append(tokens, r.Lease), append(reasons, r.StopReason)
		}
	}
	if len(ids) > 0 {
		w.queue(batch, "add_stops", ids, tokens, reasons)
	}
}

func (w *work) writeKeys(batch *pgx.Batch, b *rules.Batch) {
	all, _ := b.Keys()
	if len(all) == 0 {
		return
	}
	var fresh, known, gone keyColumns
	for _, k := range all {
		switch {
		case !w.keys[k.KeyName]:
			fresh.add(k)
		case k.Tasks > 0:
			known.add(k)
		}
		if k.Tasks <= 0 {
			gone.add(k)
		}
	}
	if len(fresh.queues) > 0 {
		w.queue(batch, "new_keys", fresh.args()...)
	}
	if len(known.queues) > 0 {
		w.queue(batch, "write_keys", known.args()...)
	}
	if len(gone.queues) > 0 {
		w.queue(batch, "drop_keys", gone.queues, gone.keys)
	}
}

// keyColumns are keys in columns.
type keyColumns struct {
	queues, tasks            []int64
	keys                     []string
	holders, awaiting, ended uuidsOrNull
	sources                  []*time.Time
}

func (c *keyColumns) add(k rules.Key) {
	c.queues, c.keys = append(c.queues, hashOfAny(k.Queue)), append(c.keys, tenantKey(k.Tenant, k.Key))
	c.holders, c.awaiting = append(c.holders, uuidOrNull(k.Holder)), append(c.awaiting, uuidOrNull(k.Awaiting))
	c.ended, c.sources = append(c.ended, uuidOrNull(k.Ended)), append(c.sources, timeOrNull(k.Source))
	c.tasks = append(c.tasks, k.Tasks)
}

func (c *keyColumns) args() []any {
	return []any{c.queues, c.keys, c.holders, c.awaiting, c.ended, c.sources, c.tasks}
}

// writeNeeds writes the new needs of tasks, and which needs are met.
func (w *work) writeNeeds(batch *pgx.Batch, b *rules.Batch) {
	var children, of, parents uuids
	var policies []int16
	var open []bool
	for _, n := range b.Needs {
		children = append(children, n.Child)
		for _, need := range n.Needs {
			of, parents = append(of, n.Child), append(parents, need.Task)
			policies, open = append(policies, int16(need.OnFailure)), append(open, need.Open)
		}
	}
	if len(children) > 0 {
		w.queue(batch, "drop_needs", children)
		w.queue(batch, "drop_open_needs", children)
		w.queue(batch, "put_needs", of, parents, policies)
		w.queue(batch, "count_beside")
		w.queue(batch, "put_open_needs", of, parents, policies, open)
		w.queue(batch, "put_doubts", of, parents, open)
	}
	var met, by uuids
	for _, m := range b.Met {
		met, by = append(met, m.Child), append(by, m.Parent)
	}
	if len(met) > 0 {
		w.queue(batch, "meet_needs", met, by)
	}
}

// forget deletes what is stored in addition to tasks that have ended or are deleted. It records a
// doubt about tasks that need them and could not be informed. That comes last, so that whoever
// settles the doubt sees that the task has ended.
func (w *work) forget(batch *pgx.Batch, changes []rules.Change) {
	var ended, waited, deleted uuids
	var states []int16
	for _, c := range changes {
		if c.After != nil && (!c.After.State.Finished() || c.Before.State.Finished()) {
			continue
		}
		state := store.State(0)
		if c.After != nil {
			state = c.After.State
		} else {
			deleted = append(deleted, c.Before.ID)
		}
		if c.Before.Needs {
			waited = append(waited, c.Before.ID)
		}
		ended, states = append(ended, c.Before.ID), append(states, int16(state))
	}
	if len(deleted) > 0 {
		w.queue(batch, "forget_tasks", deleted)
	}
	if len(waited) > 0 {
		w.queue(batch, "drop_open_needs", waited)
		w.queue(batch, "lock_doubts", waited)
		w.queue(batch, "drop_doubts", waited)
	}
	if len(ended) > 0 {
		w.queue(batch, "doubt_children", ended, states)
	}
}

type uuidsOrNull = pgtype.FlatArray[pgtype.UUID]

func uuidOrNull(id store.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }
