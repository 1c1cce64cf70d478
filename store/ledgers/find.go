package ledgers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// nameOf is the name of a ledger's schema. It says how many there are, so that a look at
// any server tells which ones are missing.
func nameOf(base string, no, of int) string { return fmt.Sprintf("%s_%d_of_%d", base, no, of) }

var ledgerName = regexp.MustCompile(`^(.*)_(0|[1-9][0-9]?)_of_([1-9][0-9]?)$`)

// looked is what a look at all servers found.
type looked struct {
	of     int               // how many ledgers there are; 0: none was found
	on     map[int][]*server // the servers of each
	silent []string          // servers that did not answer
	err    error             // why they did not
}

// look asks all servers for ledgers. It fails when those found are not of one queue.
func (s *Store) look(ctx context.Context) (l looked, err error) {
	names, errs := make([][]string, len(s.servers)), make([]error, len(s.servers))
	var done sync.WaitGroup
	for i, at := range s.servers {
		done.Go(func() { names[i], errs[i] = s.ledgersOn(ctx, at) })
	}
	done.Wait()
	l.on = map[int][]*server{}
	for i, at := range s.servers {
		if errs[i] != nil {
			l.silent, l.err = append(l.silent, at.name), errors.Join(l.err, fmt.Errorf("%s: %w", at.name, errs[i]))
		}
		for _, name := range names[i] {
			parts := ledgerName.FindStringSubmatch(name)
			no, _ := strconv.Atoi(parts[2])
			of, _ := strconv.Atoi(parts[3])
			if l.of != 0 && of != l.of {
				return l, fmt.Errorf("%s has the schema %s, another server has ledgers of %d: "+
					"these servers belong to different queues", at.name, name, l.of)
			}
			l.of = of
			l.on[no] = append(l.on[no], at)
		}
	}
	return l, nil
}

// ledgersOn lists the schemas on a server that are ledgers of this queue. A standby has
// none.
func (s *Store) ledgersOn(ctx context.Context, at *server) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	rows, err := at.pool.Query(ctx,
		"select nspname::text from pg_catalog.pg_namespace where nspname ~ $1 and not pg_catalog.pg_is_in_recovery()",
		"^"+s.o.Schema+"_[0-9]+_of_[0-9]+$")
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var names []string
	for _, name := range all {
		if ledgerName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// problem says why a ledger cannot be used, from what a look at all servers found; nil: it
// is on one server. Of a ledger on two nobody could tell which one is right.
func (l *looked) problem(no int) error {
	on := l.on[no]
	switch {
	case len(on) > 1:
		return fmt.Errorf("it is on %s and on %s: rename the schema where it is a copy", on[0].name, on[1].name)
	case len(on) == 0 && len(l.silent) > 0:
		return fmt.Errorf("it is on no server that answers; these do not: %s", strings.Join(l.silent, ", "))
	case len(on) == 0:
		return errors.New("it is on none of the servers: name its server, too")
	}
	return nil
}

// find looks for the ledgers and notes where they are. The error is store.ErrSchemaMissing
// when there are none.
func (s *Store) find(ctx context.Context) (*looked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, err := s.look(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(seen.silent) == len(s.servers):
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, seen.err)
	case seen.of == 0 && seen.err != nil:
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, seen.err)
	case seen.of == 0:
		return nil, store.ErrSchemaMissing
	}
	all := s.all.Load()
	if all == nil {
		all = new([]*ledger)
		for i := range seen.of {
			*all = append(*all, newLedger(s, i, nameOf(s.o.Schema, i, seen.of)))
		}
		s.turns.start(seen.of)
		defer s.all.Store(all)
	} else if len(*all) != seen.of {
		return nil, fmt.Errorf("there were %d ledgers, now there are %d: these servers belong to another queue",
			len(*all), seen.of)
	}
	for _, l := range *all {
		if err := s.place(l, &seen); err != nil {
			return nil, err
		}
	}
	return &seen, nil
}

// place tells a ledger where it is, unless it knows.
func (s *Store) place(l *ledger, seen *looked) error {
	switch on := seen.on[l.no]; {
	case slices.Contains(on, l.at):
		return nil
	case len(on) == 1:
		engine, err := postgres.New(on[0].pool, postgres.Options{Schema: l.name, Quiet: s.o.Quiet})
		if err != nil {
			return err
		}
		l.found(on[0], engine)
	case l.at == nil:
		l.lost(seen.problem(l.no))
	}
	return nil
}
