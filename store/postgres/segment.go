package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
)

const (
	keepPositions = 1000   // newest positions of a lane that tidying leaves
	idleXids      = 100000 // after so many transactions an idle lane is moved on
	segmentHours  = 12     // what a segment aims to hold
	lanesAtOnce   = 200    // lanes that each maintenance looks at, whether they are idle
)

var _ store.Maintainer = (*Store)(nil)

// Maintain implements store.Maintainer: lanes are tidied, statistics folded, segments
// made ahead, and spent ones dropped, as are functions that no program calls any more.
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
		{"forget lanes", s.forgetLanes},
		{"fold statistics", s.foldStats},
		{"write the catalogue", s.catalogue},
		{"add segments", s.addSegments},
		{"drop segments", s.dropSegments},
		{"drop functions", s.dropPrograms},
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
	return s.exec(ctx, "tidy", term, keepPositions, idleXids)
}

// forgetLanes forgets lanes that have had no task for long, some of all each time.
func (s *Store) forgetLanes(ctx context.Context, term int64) error {
	var last int64
	err := s.scan(ctx, "forget_lanes", []any{&last}, term, s.laneHand.Load(), lanesAtOnce, s.idleLane.Microseconds())
	if err == nil {
		s.laneHand.Store(last)
	}
	return err
}

func (s *Store) addSegments(ctx context.Context, term int64) error {
	for made := "the first"; made != ""; {
		if err := s.scan(ctx, "add_segment", []any{&made}, term, segmentHours); err != nil {
			return unlessBusy(err) // the last segment has no end
		}
	}
	return nil
}

func (s *Store) dropSegments(ctx context.Context, term int64) error {
	for dropped := true; dropped; {
		if err := s.scan(ctx, "drop_segment", []any{&dropped}, term); err != nil {
			return unlessBusy(err)
		}
	}
	return nil
}

// unlessBusy drops the error of a statement that gave up waiting for others: the next
// round comes soon.
func unlessBusy(err error) error {
	if isBusy(err) {
		return nil
	}
	return err
}

// isBusy reports whether a statement gave up waiting for others.
func isBusy(err error) bool {
	var said *pgconn.PgError
	return isHeld(err) || errors.As(err, &said) && said.Code == "57014"
}
