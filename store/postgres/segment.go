package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

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
	for {
		width, made := int64(0), false
		err := s.query(ctx, "next_segment", func(raw [][]byte) error {
			width = int64Of(raw[0])
			return nil
		}, segmentHours)
		if err != nil || width == 0 {
			return err
		}
		err = s.lockLog(ctx, s.do("add_segment", term, width).into(func(raw [][]byte) error {
			made = len(raw[0]) > 0
			return nil
		}))
		if err != nil || !made {
			return unlessBusy(err) // the last segment has no end
		}
	}
}

func (s *Store) dropSegments(ctx context.Context, term int64) error {
	for {
		old, err := s.spentSegment(ctx)
		if err != nil || old == nil {
			return err
		}
		var dropped bool
		err = s.lockLog(ctx, s.do("drop_segment", term, old.parent, old.name).into(func(raw [][]byte) error {
			dropped = raw[0][0] != 0
			return nil
		}), s.do("forget_segment", old.name))
		if err != nil || !dropped {
			return unlessBusy(err)
		}
	}
}

const (
	quietWithin = 2 * time.Second        // how long awaitLog waits
	quietAfter  = 250 * time.Millisecond // how long the transactions that use the log may take to end
	leastWait   = 50 * time.Millisecond  // the shortest timeout for the lock
)

// lockLog sends steps that lock the log, in one transaction. It sends none if the log cannot be locked soon.
func (s *Store) lockLog(ctx context.Context, steps ...step) error {
	wait, err := s.awaitLog(ctx)
	if err != nil || wait == 0 {
		return err
	}
	within := s.do("lock_within", strconv.FormatInt(wait.Milliseconds(), 10)+"ms")
	return s.write(ctx, append([]step{s.do("no_jit"), within}, steps...))
}

// awaitLog waits, without a lock, for a moment at which the log can probably be locked soon: all transactions that use
// it end within quietAfter. It returns the lock timeout to set, because a newer transaction may stay open, and all
// others would queue up behind the lock that waits for it. It returns 0 if there is no such moment for a while.
func (s *Store) awaitLog(ctx context.Context) (wait time.Duration, err error) {
	for began := time.Now(); time.Since(began) < quietWithin; {
		looked := time.Now()
		users, err := s.logUsers(ctx, nil)
		for err == nil && len(users) > 0 && time.Since(looked) <= quietAfter {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
			users, err = s.logUsers(ctx, users)
		}
		if err != nil {
			return 0, err
		}
		if len(users) == 0 {
			return min(leastWait+2*time.Since(looked), quietAfter), nil
		}
	}
	return 0, nil
}

// logUsers returns the transactions that use the log, out of the given ones or, if these are nil, of all.
func (s *Store) logUsers(ctx context.Context, of []string) (users []string, err error) {
	err = s.query(ctx, "log_users", func(raw [][]byte) error {
		users = append(users, string(raw[0]))
		return nil
	}, of)
	return users, err
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
