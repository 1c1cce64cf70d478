package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

const (
	keepPositions = 1000   // newest positions of a lane that tidying leaves
	idleXids      = 100000 // after so many transactions an idle lane is moved on
	segmentHours  = 12     // what a segment aims to hold
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

func (s *Store) maintain(ctx context.Context, term int64) error {
	if _, err := s.pool.Exec(ctx, s.sql["tidy"], term, keepPositions, idleXids); err != nil {
		return err
	}
	if err := s.foldStats(ctx, term); err != nil {
		return err
	}
	if err := s.catalogue(ctx, term); err != nil {
		return err
	}
	for {
		made, err := s.text(ctx, "add_segment", term, segmentHours)
		if isBusy(err) {
			break // the next round comes soon, and the last segment has no end
		}
		if err != nil {
			return err
		}
		if made == "" {
			break
		}
	}
	for {
		dropped, err := s.dropSegment(ctx, term)
		if err != nil && !isBusy(err) {
			return err
		}
		if !dropped {
			return nil
		}
	}
}

// dropSegment drops one spent segment, or a part of one. Detaching it concurrently
// locks nobody out; when that is interrupted, the next call goes on from there.
func (s *Store) dropSegment(ctx context.Context, term int64) (bool, error) {
	if _, err := s.pool.Exec(ctx, s.sql["hold_lead"], term); err != nil {
		return false, err
	}
	var parent, name, stage string
	if err := s.pool.QueryRow(ctx, s.sql["spent_segment"]).Scan(&parent, &name, &stage); err != nil || name == "" {
		return false, err
	}
	table := pgx.Identifier{s.schema, name}.Sanitize()
	steps := []string{"set statement_timeout = '5s'"}
	if stage != "" {
		steps = append(steps, "alter table "+pgx.Identifier{s.schema, parent}.Sanitize()+" detach partition "+table+" "+stage)
	}
	steps = append(steps, "drop table if exists "+table, s.sql["forget_segment"], "reset statement_timeout")
	return true, s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		for _, text := range steps { // a statement of its own each: a concurrent detach allows no transaction
			var args []any
			if text == s.sql["forget_segment"] {
				args = []any{name}
			}
			if _, err := c.Exec(ctx, text, args...); err != nil {
				return errors.Join(err, c.Conn().Close(ctx)) // its settings are not anybody else's
			}
		}
		return nil
	})
}

func (s *Store) text(ctx context.Context, name string, args ...any) (text string, err error) {
	err = s.pool.QueryRow(ctx, s.sql[name], args...).Scan(&text)
	return text, err
}

// isBusy reports whether a statement gave up waiting for others.
func isBusy(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == "55P03" || said.Code == "57014")
}
