package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Looker = (*Store)(nil)

// Records implements store.Recorder.
func (s *Store) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	statement, args := "records", []any{f.Kind, f.After, cmp.Or(f.Limit, math.MaxInt32)}
	if f.Backward {
		statement, args[1] = "records_backward", f.Until()
	} else if len(f.Names) > 0 {
		// No record has a name that cannot be stored as text.
		names := slices.DeleteFunc(slices.Clone(f.Names), func(name string) bool {
			return strings.Contains(name, "\x00") || !utf8.ValidString(name)
		})
		statement, args = "records_named", append(args, names)
	}
	var records []store.Record
	err := s.query(ctx, statement, func(raw [][]byte) error {
		records = append(records, recordOf(raw))
		return nil
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	return records, nil
}

// Look implements store.Looker.
func (s *Store) Look(ctx context.Context, queues []string, kinds ...string) (seen store.Sight, err error) {
	a, old := askFor(&store.ClaimRequest{Queues: queues}), s.workers.old(queues)
	err = s.query(ctx, "look_at", func(raw [][]byte) error {
		a.see(&seen, raw)
		s.workers.take(old, raw[7])
		return nil
	}, kinds, a.queues, old, mostCounted)
	if err != nil {
		return store.Sight{}, fmt.Errorf("look: %w", err)
	}
	s.company(&seen, queues)
	return seen, nil
}

// LookAll is Look for several engines on one pool, with one connection and in one round trip. It reads the
// records of the kinds, the leader and the number of workers in the first engine.
func LookAll(ctx context.Context, all []*Store, queues []string, kinds ...string) ([]store.Sight, error) {
	sights, batch := make([]store.Sight, len(all)), pgx.Batch{}
	a := askFor(&store.ClaimRequest{Queues: queues})
	rest := all
	if len(kinds) > 0 {
		old := all[0].workers.old(queues)
		batch.Queue(all[0].sql["look_at"], kinds, a.queues, old, mostCounted).Query(func(rows pgx.Rows) error {
			return eachRow(rows, func(raw [][]byte) error {
				a.see(&sights[0], raw)
				all[0].workers.take(old, raw[7])
				return nil
			})
		})
		rest = all[1:]
	}
	if len(rest) > 0 {
		batch.Queue(ofEach(rest, "look_of", nil), a.queues).Query(func(rows pgx.Rows) error {
			return eachRow(rows, func(raw [][]byte) error {
				sights[len(all)-len(rest)+int(int32Of(raw[0]))].Queues = a.queuesOf(raw[1])
				return nil
			})
		})
	}
	if err := all[0].sendAll(ctx, &batch); err != nil {
		return nil, fmt.Errorf("look: %w", err)
	}
	all[0].company(&sights[0], queues)
	for i, s := range all {
		if i > 0 && s.Prompt() {
			sights[i].Workers = sights[0].Workers
			s.ring(sights[i].Queues...)
		}
	}
	return sights, nil
}

// see reads a row of look_at.
func (a *ask) see(seen *store.Sight, raw [][]byte) {
	if raw[0] != nil {
		seen.Records = append(seen.Records, recordOf(raw))
	}
	if raw[5] != nil {
		seen.Leader = idOf(raw[5])
	}
	seen.Queues, seen.Now = a.queuesOf(raw[6]), timeOf(raw[8])
}

// company adds the number of workers that claim from the queues to the result, and notifies these workers of
// tasks that were found: they poll rarely, and may have missed a notification.
func (s *Store) company(seen *store.Sight, queues []string) {
	if s.Prompt() && len(queues) > 0 {
		seen.Workers = s.fewestOf(queues)
		s.ring(seen.Queues...)
	}
}

func recordOf(raw [][]byte) store.Record {
	return store.Record{
		Kind: string(raw[0]), Name: string(raw[1]), Version: int64Of(raw[2]), Body: bytesOf(raw[3]),
		UpdatedAt: timeOf(raw[4]),
	}
}

// PutRecord implements store.Recorder.
func (s *Store) PutRecord(ctx context.Context, p store.PutRecord) (version int64, results []store.Enqueued, err error) {
	have := surveyOf(p.Tasks)
	err = s.withNames(ctx, have, func(tx pgx.Tx) (err error) {
		version, results, err = s.putRecord(ctx, tx, p, have)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("put record: %w", translate(err))
	}
	s.ringFor(have)
	s.settle(ctx, have.doubts)
	return version, results, nil
}

// UpdateRecords implements store.Recorder.
func (s *Store) UpdateRecords(
	ctx context.Context, term int64, puts []store.PutRecord,
) (updated []store.Updated, err error) {
	var tasks []store.NewTask
	for i := range puts {
		tasks = append(tasks, puts[i].Tasks...)
	}
	have := surveyOf(tasks)
	err = s.withNames(ctx, have, func(tx pgx.Tx) (err error) {
		updated, err = s.updateRecords(ctx, tx, term, puts)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("update records: %w", translate(err))
	}
	s.ringFor(have)
	s.settle(ctx, have.doubts)
	return updated, nil
}

// withNames stores the names of the lanes of tasks, and then calls do in a transaction of the engine's own.
func (s *Store) withNames(ctx context.Context, have *survey, do func(tx pgx.Tx) error) error {
	return s.repeat(ctx, func() error {
		err := s.stay(ctx)
		if err == nil {
			err = s.nameLanes(ctx, ownSession{s}, have, true)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
		}
		return s.ownTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return translate(do(tx)) })
	})
}

func (s *Store) updateRecords(
	ctx context.Context, tx pgx.Tx, term int64, puts []store.PutRecord,
) ([]store.Updated, error) {
	if term != 0 {
		if _, err := tx.Exec(ctx, s.sql["hold_lead"], term); err != nil {
			return nil, err
		}
	}
	kinds, names := make([]string, len(puts)), make([]string, len(puts))
	bodies, versions := make([][]byte, len(puts)), make([]int64, len(puts))
	for i := range puts {
		r := &puts[i].Record
		kinds[i], names[i], bodies[i], versions[i] = r.Kind, r.Name, r.Body, r.Version
	}
	rows, err := tx.Query(ctx, s.sql["update_records"], kinds, names, bodies, versions)
	if err != nil {
		return nil, err
	}
	updated := make([]store.Updated, len(puts))
	var at, version int64
	if _, err := pgx.ForEachRow(rows, []any{&at, &version}, func() error {
		updated[at-1].Version = version
		return nil
	}); err != nil {
		return nil, err
	}
	return updated, store.EnqueueUpdated(puts, updated, func(tasks []store.NewTask) ([]store.Enqueued, error) {
		return s.enqueue(ctx, driverSession{tx}, tasks, surveyOf(tasks))
	})
}

func (s *Store) putRecord(
	ctx context.Context, tx pgx.Tx, p store.PutRecord, have *survey,
) (version int64, results []store.Enqueued, err error) {
	if p.Term != 0 {
		if _, err := tx.Exec(ctx, s.sql["hold_lead"], p.Term); err != nil {
			return 0, nil, err
		}
	}
	name, args := s.recordWrite(p.Record)
	err = tx.QueryRow(ctx, s.sql[name], args...).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, store.ErrConflict
	}
	if err != nil || len(p.Tasks) == 0 {
		return version, nil, err
	}
	results, err = s.enqueue(ctx, driverSession{tx}, p.Tasks, have)
	return version, results, err
}

// recordWrite chooses the statement that writes a record. The statement writes, and
// returns a row, only if the record has the given version.
func (s *Store) recordWrite(r store.Record) (name string, args []any) {
	switch {
	case r.Body == nil && r.Version == 0:
		return "absent_record", []any{r.Kind, r.Name}
	case r.Body == nil:
		return "delete_record", []any{r.Kind, r.Name, r.Version}
	case r.Version == 0:
		return "insert_record", []any{r.Kind, r.Name, r.Body}
	default:
		return "update_record", []any{r.Kind, r.Name, r.Body, r.Version}
	}
}
