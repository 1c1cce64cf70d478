package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store"
)

const (
	keepPositions = 1000   // newest positions of a lane that tidying keeps
	idleXids      = 100000 // transactions after which an idle lane is advanced
	segmentHours  = 12     // hours of the log that a segment should hold
	lanesAtOnce   = 200    // lanes that each round of maintenance checks for idleness
)

var _ store.Maintainer = (*Store)(nil)

// Maintain implements store.Maintainer. It tidies lanes, folds statistics, creates segments
// ahead of time, and drops spent segments and functions that no program calls any longer.
func (s *Store) Maintain(ctx context.Context, term int64) error {
	if err := s.maintain(ctx, term); err != nil {
		return fmt.Errorf("maintain: %w", translate(err))
	}
	return nil
}

// maintain takes every step, even if another one has failed.
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
		{"empty lines", s.emptyLines},
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

func (s *Store) addSegments(ctx context.Context, term int64) error {
	for made := "the first"; made != ""; {
		if err := s.scan(ctx, "add_segment", []any{&made}, term, segmentHours); err != nil {
			return unlessBusy(err) // the last segment has no end
		}
	}
	return nil
}

func (s *Store) dropSegments(ctx context.Context, term int64) error {
	for {
		old, err := s.spentSegment(ctx)
		if err != nil || old == nil {
			return err
		}
		var dropped bool
		err = s.write(ctx, []step{s.do("no_jit"),
			s.do("drop_segment", term, old.parent, old.name).into(func(raw [][]byte) error {
				dropped = raw[0][0] != 0
				return nil
			}), s.do("forget_segment", old.name)})
		if err != nil || !dropped {
			return unlessBusy(err)
		}
	}
}

// segment is a table of the log.
type segment struct {
	parent, name   string
	hi             string // the last transaction that it covers
	queues, others []int64
	empty          bool // it was only the parent of other tables, which were dropped
}

// spentSegment returns a table of the log that is no longer needed, or nil.
func (s *Store) spentSegment(ctx context.Context) (*segment, error) {
	var loose, all []*segment
	err := s.read(ctx, []step{
		s.do("no_jit"),
		s.do("loose_segment").into(func(raw [][]byte) error {
			loose = append(loose, &segment{parent: string(raw[0]), name: string(raw[1])})
			return nil
		}),
		s.do("old_segments").into(func(raw [][]byte) error {
			all = append(all, &segment{string(raw[0]), string(raw[1]), string(raw[2]), int64sOf(raw[3]), int64sOf(raw[4]),
				raw[5][0] != 0})
			return nil
		}),
	})
	if err != nil {
		return nil, err
	}
	if len(loose) > 0 {
		return loose[0], nil
	}
	kept := false // a segment is kept, and so are all later ones that are single tables
	for _, one := range all {
		spent := one.empty
		if !spent && !(kept && one.parent == "log") {
			err := s.read(ctx, []step{s.do("no_jit"), s.do("is_spent", one.hi, one.queues, one.others).into(
				func(raw [][]byte) error {
					spent = raw[0][0] != 0
					return nil
				})})
			if err != nil {
				return nil, err
			}
		}
		if spent {
			return one, nil
		}
		kept = kept || one.parent == "log"
	}
	return nil, nil
}

// unlessBusy returns nil for the error of a statement that gave up waiting for others, because
// the next round comes soon.
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
