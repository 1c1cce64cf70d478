package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Restorer = (*Store)(nil)

// restoring is a task from an archive, as the function restore reads it.
type restoring struct {
	Place     int             `json:"place"`
	ID        store.ID        `json:"id"`
	State     int16           `json:"state"`
	Lane      int64           `json:"lane"`
	RunAt     time.Time       `json:"run_at"`
	Enqueued  time.Time       `json:"enqueued_at"`
	Attempt   int             `json:"attempt"`
	Crashes   int             `json:"crashes"`
	Kind      string          `json:"kind"`
	Expires   *time.Time      `json:"expires_at"`
	Claimed   *time.Time      `json:"claimed_at"`
	Tenant    *string         `json:"tenant"`
	Key       *string         `json:"key"`
	Tags      []string        `json:"tags"`
	Failure   *string         `json:"failure"`
	Reason    string          `json:"reason"`
	Workflow  *store.ID       `json:"workflow"`
	Turn      *bool           `json:"turn"`
	Partition *string         `json:"partition"`
	Progress  *store.Progress `json:"progress,omitempty"`
	Logs      []store.LogLine `json:"logs,omitempty"`
	ChangedAt *time.Time      `json:"changed_at"`
	Changed   *store.How      `json:"changed"`
	Attempts  []restoredTry   `json:"attempts"`
	Needs     []restoredNeed  `json:"needs"`
}

type restoredTry struct {
	N           int       `json:"n"`
	Number      int       `json:"number"`
	Worker      store.ID  `json:"worker"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	State       int16     `json:"state"`
	Error       string    `json:"error"`
	Trace       string    `json:"trace"`
	Fingerprint string    `json:"fingerprint"`
}

type restoredNeed struct {
	Place  int      `json:"place"`
	Parent store.ID `json:"parent"`
	Policy int16    `json:"policy"`
}

// Restore implements store.Restorer. It stores tasks among those that did not end by plain
// completion, with all of their attempts.
func (s *Store) Restore(
	ctx context.Context, note store.Record, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	return s.RestoreWith(ctx, store.PutRecord{Record: note}, tasks)
}

// RestoreWith is like Restore, with a record that enqueues tasks.
func (s *Store) RestoreWith(
	ctx context.Context, note store.PutRecord, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	have := surveyOf(note.Tasks)
	exist, err = s.putBack(ctx, tasks, have, func(tx pgx.Tx) (bool, error) {
		var err error
		version, _, err = s.putRecord(ctx, tx, note, have)
		return err == nil, err
	})
	return version, exist, err
}

// Redeliver restores tasks that another ledger sends in a letter, unless the letter was delivered before, within
// the last week.
func (s *Store) Redeliver(ctx context.Context, letter store.ID, tasks []store.Task) error {
	_, err := s.putBack(ctx, tasks, surveyOf(nil), func(tx pgx.Tx) (bool, error) {
		fresh, _, err := s.undelivered(ctx, tx, []store.NewTask{{ID: letter}})
		return len(fresh) > 0, err
	})
	return err
}

// putBack restores tasks in a transaction that calls first before. If first reports false, it restores nothing.
func (s *Store) putBack(
	ctx context.Context, tasks []store.Task, have *survey, first func(tx pgx.Tx) (bool, error),
) (exist []store.ID, err error) {
	rows, seen := make([]restoring, 0, len(tasks)), make(map[store.ID]bool, len(tasks))
	args, settings, outputs := make([][]byte, len(tasks)), make([][]byte, len(tasks)), make([][]byte, len(tasks))
	ids := make(uuids, len(tasks))
	var twice []store.ID // named before
	for i := range tasks {
		t := &tasks[i]
		if !t.State.Finished() {
			return nil, fmt.Errorf("restore: task %v is %v: only finished tasks can be restored", t.ID, t.State)
		}
		if ids[i] = t.ID; seen[t.ID] {
			twice = append(twice, t.ID)
			continue
		}
		seen[t.ID], rows = true, append(rows, restoringOf(t, i+1))
		have.lanes, have.queues = append(have.lanes, rows[len(rows)-1].Lane), append(have.queues, t.Queue)
		if args[i], settings[i] = t.Args, t.Settings; args[i] == nil {
			args[i] = []byte{}
		}
		if t.Detail != nil {
			outputs[i] = t.Detail.Output
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	err = s.withNames(ctx, have, func(tx pgx.Tx) error {
		exist = slices.Clone(twice)
		there := uuids{}
		if on, err := first(tx); err != nil || !on {
			return err
		}
		var batch pgx.Batch
		batch.Queue(s.sql["pin"])
		batch.Queue(s.sql["existing"], ids).Query(func(rows pgx.Rows) error {
			return eachRow(rows, func(raw [][]byte) error {
				there, exist = append(there, idOf(raw[0])), append(exist, idOf(raw[0]))
				return nil
			})
		})
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql["restore"], text, args, settings, outputs, there)
		var said *pgconn.PgError
		if errors.As(err, &said) && said.Code == "23505" && said.TableName == "dead" { // restored by another process
			err = fmt.Errorf("%w: %w", errRolledBack, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("restore: %w", translate(err))
	}
	return exist, nil
}

func restoringOf(t *store.Task, place int) restoring {
	r := restoring{Place: place, ID: t.ID, State: int16(t.State), Lane: laneOf(t.Queue, t.Priority), RunAt: t.RunAt,
		Enqueued: t.EnqueuedAt,
		Attempt:  t.Attempt, Crashes: t.Crashes, Kind: t.Kind, Expires: timeOrNull(t.ExpiresAt),
		Claimed: timeOrNull(t.ClaimedAt),
		Tenant:  orNull(t.Tenant), Key: orNull(t.Key), Tags: t.Tags, Reason: clean(t.Reason), Attempts: []restoredTry{},
		Needs: []restoredNeed{}}
	if !t.Workflow.IsZero() {
		r.Workflow = &t.Workflow
	}
	if t.Turn {
		r.Turn, r.Partition = &t.Turn, &t.Partition
	}
	if t.Detail == nil {
		return r
	}
	for i, a := range t.Detail.Attempts {
		try := restoredTry{i, a.Number, a.Worker, a.StartedAt, a.EndedAt, int16(a.Outcome), clean(a.Error), clean(a.Trace),
			clean(a.Fingerprint)}
		if try.Error != "" {
			r.Failure = orNull(try.Fingerprint)
		}
		r.Attempts = append(r.Attempts, try)
	}
	for i, n := range t.Detail.Needs {
		r.Needs = append(r.Needs, restoredNeed{i + 1, n.Task, int16(n.OnFailure)})
	}
	if c := t.Detail.Changed; c != nil {
		r.ChangedAt, r.Changed = &c.At, &c.How
	}
	if p := t.Detail.Progress; p != nil {
		r.Progress = &store.Progress{Percent: p.Percent, Message: clean(p.Message)}
	}
	for _, l := range t.Detail.Logs {
		l.Level, l.Text = clean(l.Level), clean(l.Text)
		r.Logs = append(r.Logs, l)
	}
	return r
}
