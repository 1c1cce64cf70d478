package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var (
	_ store.Migrator = (*Store)(nil)
	_ store.Checker  = (*Store)(nil)
)

// Divide says into how many ledgers, from 1 to Most, Migrate divides databases that have
// none. Their number never changes afterwards: two for each server that there may be one
// day are enough.
func (s *Store) Divide(ledgers int) error {
	if ledgers < 1 || ledgers > Most {
		return fmt.Errorf("ledgers: %d of them: want 1 to %d", ledgers, Most)
	}
	if all := s.all.Load(); all != nil && len(*all) != ledgers {
		return fmt.Errorf("ledgers: there are %d of them already, and their number cannot change", len(*all))
	}
	s.divide.Store(int32(ledgers))
	return nil
}

// errUndivided says that nobody has said into how many ledgers to divide.
var errUndivided = fmt.Errorf("%w: there are no ledgers: say how many to make, such as tusk migrate up --ledgers 8",
	store.ErrSchemaMissing)

// Migrate implements store.Migrator. It brings all ledgers to a version, home last, and
// makes them where there are none: spread over the servers, all of which have to answer.
func (s *Store) Migrate(ctx context.Context, version int64) (steps []store.Migration, err error) {
	if err := s.create(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(all) {
		taken, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Migration, error) {
			return e.Migrate(ctx, version)
		})
		if len(taken) > len(steps) {
			steps = taken
		}
		if err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// create makes the schemas of ledgers that there are not. Home is made last: where it is,
// all were made, and one that is missing is on a server that was not named.
func (s *Store) create(ctx context.Context) error {
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	if len(seen.on[0]) > 0 {
		return nil
	}
	if seen.err != nil {
		return fmt.Errorf("%w: not all servers answer: %w", store.ErrUnavailable, seen.err)
	}
	of := int(s.divide.Load())
	switch {
	case of == 0:
		return errUndivided
	case seen.of != 0 && seen.of != of:
		return fmt.Errorf("there are ledgers of %d already", seen.of)
	}
	for no := of - 1; no >= 0; no-- {
		if len(seen.on[no]) > 0 {
			continue
		}
		at := s.servers[no*len(s.servers)/of]
		if _, err := at.pool.Exec(ctx, "create schema if not exists "+nameOf(s.o.Schema, no, of)); err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
	}
	_, err = s.find(ctx)
	return err
}

// Migrations implements store.Migrator. A step is applied when it is in all ledgers.
func (s *Store) Migrations(ctx context.Context) ([]store.Migration, error) {
	parts, err := fromAll(ctx, s, func(ctx context.Context, e *postgres.Store) ([]store.Migration, error) {
		return e.Migrations(ctx)
	})
	if err != nil {
		return nil, err
	}
	steps := parts[0]
	for _, part := range parts[1:] {
		for i := range min(len(steps), len(part)) {
			if part[i].AppliedAt.IsZero() {
				steps[i].AppliedAt = part[i].AppliedAt
			}
		}
	}
	return steps, nil
}

// Check implements store.Checker. It fails when a ledger is on two servers, or on none.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if problem := seen.problem(l.no); problem != nil {
			err = errors.Join(err, fmt.Errorf("check: ledger %s: %w", l.name, problem))
		}
	}
	if err != nil {
		return nil, err
	}
	parts, err := fromAll(ctx, s, func(ctx context.Context, e *postgres.Store) ([]string, error) {
		return e.Check(ctx)
	})
	warnings = slices.Concat(parts...)
	slices.Sort(warnings)
	return slices.Compact(warnings), err
}
