package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
)

const (
	keepPositions = 1000   // newest positions of a lane that tidying leaves
	idleXids      = 100000 // after so many transactions an idle lane is moved on
	segmentHours  = 12     // what a segment aims to hold

	pauseOfLog = 2 * time.Second // for which maintenance waits for those who use the log
)

var _ store.Maintainer = (*Store)(nil)

// Maintain implements store.Maintainer: lanes are tidied, statistics folded, segments
// made ahead, and spent ones dropped.
func (s *Store) Maintain(ctx context.Context, term int64) error {
	if err := s.maintain(ctx, term); err != nil {
		return fmt.Errorf("maintain: %w", translate(err))
	}
	return nil
}

// maintain takes every step, though another has failed.
func (s *Store) maintain(ctx context.Context, term int64) (failed error) {
	for _, step := range []struct {
		name string
		do   func(context.Context, int64) error
	}{
		{"name lanes", s.nameLost},
		{"tidy", s.tidy},
		{"fold statistics", s.foldStats},
		{"write the catalogue", s.catalogue},
		{"add segments", s.addSegments},
		{"drop segments", s.dropSegments},
	} {
		if err := step.do(ctx, term); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", step.name, translate(err)))
		}
		if ctx.Err() != nil || errors.Is(failed, store.ErrNotLeader) || errors.Is(failed, store.ErrUnavailable) {
			break
		}
	}
	return failed
}

func (s *Store) tidy(ctx context.Context, term int64) error {
	_, err := s.pool.Exec(ctx, s.sql["tidy"], term, keepPositions, idleXids)
	return err
}

func (s *Store) addSegments(ctx context.Context, term int64) error {
	for {
		if made, err := s.text(ctx, "add_segment", term, segmentHours); err != nil || made == "" {
			return unlessBusy(err) // the last segment has no end
		}
	}
}

func (s *Store) dropSegments(ctx context.Context, term int64) error {
	for {
		if dropped, err := s.dropSegment(ctx, term); err != nil || !dropped {
			return unlessBusy(err)
		}
	}
}

// dropTime bounds each step in which a segment is dropped: somebody's long transaction
// may hold it up, and the next round goes on from there.
const dropTime = 5 * time.Second

var errBusy = errors.New("transactions that use the log go on for long")

// dropSegment drops one spent segment, or a part of one. Detaching it concurrently
// locks nobody out; when that is interrupted, the next call goes on from there.
//
// Nothing here sets anything of a session, which behind a pooler is everybody's.
func (s *Store) dropSegment(ctx context.Context, term int64) (dropped bool, err error) {
	if _, err := s.pool.Exec(ctx, s.sql["hold_lead"], term); err != nil {
		return false, err
	}
	var parent, name, stage string
	if err := s.pool.QueryRow(ctx, s.sql["spent_segment"]).Scan(&parent, &name, &stage); err != nil || name == "" {
		return false, err
	}
	table := pgx.Identifier{s.schema, name}.Sanitize()
	if stage != "" {
		if err := s.detach(ctx, pgx.Identifier{s.schema, parent}.Sanitize(), table, stage); err != nil {
			return false, err
		}
	}
	return true, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, text := range []string{"set local lock_timeout = '5s'", "drop table if exists " + table} {
			if _, err := tx.Exec(ctx, text); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, s.sql["forget_segment"], name)
		return err
	})
}

// detach takes a table out of the log. It begins only when nobody has used the log for
// long, and gives up soon: a concurrent detach allows no transaction, and so no timeout
// of its own.
func (s *Store) detach(ctx context.Context, parent, table, stage string) error {
	var pause *int
	if err := s.pool.QueryRow(ctx, s.sql["pause_of_log"], pauseOfLog.Milliseconds()).Scan(&pause); err != nil {
		return err
	}
	if pause == nil {
		return errBusy
	}
	within, cancel := context.WithTimeout(ctx, dropTime)
	defer cancel()
	_, err := s.pool.Exec(within, "alter table "+parent+" detach partition "+table+" "+stage)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return errBusy
	}
	return err
}

func (s *Store) text(ctx context.Context, name string, args ...any) (text string, err error) {
	err = s.pool.QueryRow(ctx, s.sql[name], args...).Scan(&text)
	return text, err
}

// unlessBusy drops the error of a statement that gave up waiting for others: the next
// round comes soon.
func unlessBusy(err error) error {
	if errors.Is(err, errBusy) || isBusy(err) {
		return nil
	}
	return err
}

// isBusy reports whether a statement gave up waiting for others.
func isBusy(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == "55P03" || said.Code == "57014")
}
