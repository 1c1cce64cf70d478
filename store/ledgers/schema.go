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

// Divide sets the number of ledgers, from 1 to Most. Migrate creates those that are missing. The number can grow, but
// not shrink. Keys stay divided among the first ledgers. A plain queue of store/postgres becomes the first ledger,
// unchanged.
func (s *Store) Divide(ledgers int) error {
	if ledgers < 1 || ledgers > Most {
		return fmt.Errorf("ledgers: %d of them: want 1 to %d", ledgers, Most)
	}
	if all := s.all.Load(); all != nil && len(*all) > ledgers {
		return fmt.Errorf("ledgers: there are %d of them already, and never fewer again", len(*all))
	}
	s.divide.Store(int32(ledgers))
	return nil
}

// errUndivided means that the number of ledgers is not set.
var errUndivided = fmt.Errorf("%w: there are no ledgers: say how many to make, such as tusk migrate up --ledgers 8",
	store.ErrSchemaMissing)

// Migrate implements store.Migrator. It creates the ledgers that Divide asked for, spread over the servers, and then
// migrates all ledgers, home last. All servers have to answer.
func (s *Store) Migrate(ctx context.Context, version int64) (steps []store.Migration, err error) {
	before := s.divide.Load()
	defer func() { s.divide.Store(before) }()
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

// create creates the schemas of missing ledgers.
func (s *Store) create(ctx context.Context) error {
	if s.net != nil {
		if err := s.net.install(ctx); err != nil {
			return err
		}
	}
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	todo, err := seen.missing(int(s.divide.Load()))
	if err != nil {
		return err
	}
	s.divide.Store(max(s.divide.Load(), int32(max(seen.of, todo.of)))) // find now counts ledgers without tables
	if todo.of > 0 {
		err = s.makeSchemas(ctx, &seen, todo)
	}
	if err == nil {
		_, err = s.find(ctx)
	}
	return err
}

// makeSchemas creates the missing schemas of a step.
func (s *Store) makeSchemas(ctx context.Context, seen *looked, todo name) error {
	servers, err := s.primaries(ctx)
	if err != nil {
		return err
	}
	for no := todo.of - 1; no >= todo.no; no-- {
		if seen.has(no) {
			continue
		}
		at := servers[no*len(servers)/todo.of]
		text := "create schema if not exists " + name{no, todo.of, todo.keys}.in(s.o.Schema)
		if _, err := at.pool.Exec(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
	}
	return nil
}

// A queue grows in steps, such as ledgers 0 to 7 and then 8 to 15. The schemas of a step are created in descending
// order, and get tables only when all of them exist. So a step is complete if its lowest schema exists or any of them
// has tables. A schema that is missing then is on some other server and must not be created again.

// missing returns the lowest ledger of the step that has to be created to reach a number of ledgers, or the zero name.
func (l *looked) missing(of int) (todo name, err error) {
	last, whole := l.lastStep()
	switch {
	case whole && of <= l.of:
		return name{}, l.away(0)
	case l.err != nil:
		return name{}, fmt.Errorf("%w: not all servers answer: %w", store.ErrUnavailable, l.err)
	case l.of > 0 && of != l.of && (!whole || l.unmade(last)):
		return name{}, fmt.Errorf("some of the ledgers %d to %d are not made yet: first tusk migrate up --ledgers %d",
			last, l.of-1, l.of)
	case whole:
		todo = name{l.of, of, l.keys}
	case l.of > 0:
		todo = name{last, l.of, l.keys}
	default:
		todo = name{0, of, of}
	}
	for _, one := range l.asleep {
		if one.made && one.no >= todo.no {
			return name{}, fmt.Errorf("%s has ledger %d and is in recovery: promote it, or name the server that it follows",
				one.at.name, one.no)
		}
	}
	if todo.of == 0 {
		return name{}, errUndivided
	}
	for no := range todo.no {
		if err := l.away(no); err != nil {
			return name{}, err
		}
	}
	return todo, nil
}

// away is problem with an error for callers that did not name the ledger.
func (l *looked) away(no int) error {
	if problem := l.problem(no); problem != nil {
		return fmt.Errorf("%w: ledger %d: %w", store.ErrUnavailable, no, problem)
	}
	return nil
}

// lastStep returns the lowest number of the last step, and whether the step is complete.
func (l *looked) lastStep() (lowest int, whole bool) {
	for _, one := range l.every() {
		if one.of < l.of {
			lowest = max(lowest, one.of)
		}
	}
	whole = slices.ContainsFunc(l.every(), func(one schema) bool {
		return one.of == l.of && one.no >= lowest && (one.made || one.no == lowest)
	})
	return lowest, whole
}

// unmade reports whether a ledger has a schema without tables.
func (l *looked) unmade(no int) bool {
	return slices.ContainsFunc(l.every(), func(one schema) bool { return one.no == no && !one.made })
}

// ripen removes a new step from the result of a look until all its ledgers have tables. The lowest ledger gets them
// last. Those that have tables may have tasks, because the process that creates the ledgers, or one of an older
// version, may use them.
func (l *looked) ripen() {
	lowest, whole := l.lastStep()
	if lowest == 0 || whole && !l.unmade(lowest) {
		return
	}
	if slices.ContainsFunc(l.every(), func(one schema) bool { return one.no >= lowest && one.made }) {
		l.unripe = fmt.Sprintf("some of the ledgers %d to %d have no tables yet: tusk migrate up --ledgers %d",
			lowest, l.of-1, l.of)
	}
	for no := lowest; no < l.of; no++ {
		delete(l.on, no)
	}
	raw := func(one schema) bool { return one.no >= lowest }
	l.copies, l.fenced = slices.DeleteFunc(l.copies, raw), slices.DeleteFunc(l.fenced, raw)
	l.of = lowest
}

// has reports whether a ledger has a schema, open or fenced, on a server that answered.
func (l *looked) has(no int) bool {
	return slices.ContainsFunc(l.every(), func(one schema) bool { return one.no == no })
}

// primaries returns the servers that are not standbys.
func (s *Store) primaries(ctx context.Context) (all []*server, err error) {
	for _, at := range s.servers() {
		var standby bool
		if err := at.pool.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&standby); err != nil {
			return nil, fmt.Errorf("%s: %w", at.name, err)
		}
		if !standby {
			all = append(all, at)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: all servers are standbys", store.ErrReadOnly)
	}
	return all, nil
}

// Migrations implements store.Migrator. A step counts as applied once all ledgers that answer have it, including those
// that Migrate will create. So a process can start while a server is away. The error is store.ErrUnavailable if no
// ledger answers.
func (s *Store) Migrations(ctx context.Context) ([]store.Migration, error) {
	all, err := s.ledgers(ctx)
	if err != nil && !errors.Is(err, store.ErrSchemaMissing) {
		return nil, err
	}
	switch of := int(s.divide.Load()); {
	case of > len(all):
		return s.stepsOfNew(ctx)
	case len(all) == 0:
		return nil, errUndivided
	}
	return stepsOf(ctx, all)
}

// stepsOf is Migrations for existing ledgers.
func stepsOf(ctx context.Context, all []*ledger) ([]store.Migration, error) {
	parts, errs := each(all, func(_ int, l *ledger) ([]store.Migration, error) {
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Migration, error) {
			return e.Migrations(ctx)
		})
	})
	_, broken := split(errs)
	if broken != nil {
		return nil, broken
	}
	var steps []store.Migration
	for no, part := range parts {
		if errs[no] == nil && steps == nil {
			steps = part
		}
		for i := range min(len(steps), len(part)) {
			if part[i].AppliedAt.IsZero() {
				steps[i].AppliedAt = part[i].AppliedAt
			}
		}
	}
	if steps == nil {
		return nil, errors.Join(errs...)
	}
	return steps, nil
}

// stepsOfNew lists the steps of a ledger that does not exist yet.
func (s *Store) stepsOfNew(ctx context.Context) ([]store.Migration, error) {
	of := int(s.divide.Load())
	e, err := postgres.New(ctx, s.servers()[0].pool, postgres.Options{Schema: name{of - 1, of, of}.in(s.o.Schema)})
	if err != nil {
		return nil, err
	}
	steps, err := e.Migrations(ctx)
	return steps, errors.Join(err, e.Close())
}

// split separates the errors of ledgers that are away from all others.
func split(errs []error) (away, broken error) {
	for _, err := range errs {
		if errors.Is(err, store.ErrUnavailable) {
			away = errors.Join(away, err)
		} else {
			broken = errors.Join(broken, err)
		}
	}
	return away, broken
}

// Check implements store.Checker. If a ledger is open on two servers or on none, and nothing worse is found, the error
// is store.ErrUnavailable, because processes can work without that ledger. Leftover copies are warnings.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	parts, errs := each(all, func(_ int, l *ledger) ([]string, error) {
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]string, error) { return e.Check(ctx) })
	})
	for _, l := range all {
		if problem := seen.problem(l.no); problem != nil {
			_, name := l.whereabouts()
			errs[l.no] = fmt.Errorf("ledger %s: %w: %w", name, store.ErrUnavailable, problem)
		}
	}
	away, broken := split(errs)
	if broken != nil {
		return nil, fmt.Errorf("check: %w", broken)
	}
	if away != nil {
		err = fmt.Errorf("check: %w", away)
	}
	warnings = slices.Concat(parts...)
	for _, c := range seen.old() {
		warnings = append(warnings, fmt.Sprintf("%s has an old copy of the ledger %s, which nobody uses: "+
			"tusk ledgers drop-copies", c.at.name, c.text))
	}
	for _, silent := range seen.silent {
		warnings = append(warnings, fmt.Sprintf("%s does not answer: if it has ledgers, they may be unknown, so needs "+
			"on tasks that are not found wait, and nothing is pruned", silent))
	}
	if err := s.notUnripe(); err != nil {
		warnings = append(warnings, err.Error())
	}
	slices.Sort(warnings)
	return slices.Compact(warnings), err
}
