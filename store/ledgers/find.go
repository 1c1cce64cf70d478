package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// lookAgain is how often a process looks for ledgers that were moved or added.
const lookAgain = 10 * time.Second

// schema is a ledger's schema on a server.
type schema struct {
	name
	text   string
	at     *server
	epoch  int64 // rises with each fence and opening; of two schemas of a ledger, the one with the lower epoch is a copy
	fenced bool
	made   bool // it has tables
	asleep bool // its server is in recovery
}

// looked is the result of a look at all servers.
type looked struct {
	of     int              // number of ledgers, or 0
	keys   int              // number of ledgers that keys are divided among
	on     map[int][]schema // open schemas with the highest known epoch, by number
	copies []schema         // other open schemas
	fenced []schema
	asleep []schema // on servers in recovery
	silent []string // servers that did not answer
	err    error    // their errors
	unripe string   // why ledgers that may have tasks are ignored (ripen)
}

// look asks all servers for ledgers. It fails if they belong to more than one queue.
func (s *Store) look(ctx context.Context) (l looked, err error) {
	servers := s.servers()
	found, errs := make([][]schema, len(servers)), make([]error, len(servers))
	var done sync.WaitGroup
	for i, at := range servers {
		done.Go(func() { found[i], errs[i] = s.ledgersOn(ctx, at) })
	}
	done.Wait()
	l.on = map[int][]schema{}
	divided := func(one schema) bool { return one.keys > 1 && !one.asleep }
	if slices.ContainsFunc(slices.Concat(found...), divided) { // a plain queue beside them is another queue
		for i := range found {
			found[i] = slices.DeleteFunc(found[i], func(one schema) bool { return one.of == 1 })
		}
	}
	for i, at := range servers {
		if errs[i] == nil {
			at.answered.Store(true)
		} else {
			l.silent, l.err = append(l.silent, at.name), errors.Join(l.err, fmt.Errorf("%s: %w", at.name, errs[i]))
		}
		for _, one := range found[i] {
			if one.asleep {
				l.asleep = append(l.asleep, one)
				continue
			}
			if l.keys != 0 && one.keys != l.keys {
				return l, fmt.Errorf("%s has the schema %s, another one divides keys among %d: "+
					"these schemas belong to different queues", at.name, one.text, l.keys)
			}
			l.of, l.keys = max(l.of, one.of), one.keys
			l.add(one)
		}
	}
	l.putAside(s.epochs())
	return l, nil
}

// every returns all schemas, except those on silent servers and on servers in recovery.
func (l *looked) every() []schema {
	all := slices.Concat(l.copies, l.fenced)
	for _, on := range l.on {
		all = append(all, on...)
	}
	return all
}

// putAside moves open schemas to the copies if a higher epoch of their ledger is known, from a fenced schema or from an
// earlier look.
func (l *looked) putAside(known map[int]int64) {
	for _, one := range l.fenced {
		known[one.no] = max(known[one.no], one.epoch)
	}
	for no, on := range l.on {
		if on[0].epoch < known[no] {
			l.copies = append(l.copies, on...)
			delete(l.on, no)
		}
	}
}

// epochs returns the highest epoch of each ledger that this process has seen.
func (s *Store) epochs() map[int]int64 {
	known := map[int]int64{}
	if all := s.all.Load(); all != nil {
		for _, l := range *all {
			known[l.no] = l.epoch.Load()
		}
	}
	return known
}

func (l *looked) add(one schema) {
	on := l.on[one.no]
	switch {
	case one.fenced:
		l.fenced = append(l.fenced, one)
	case len(on) == 0 || one.epoch == on[0].epoch:
		l.on[one.no] = append(on, one)
	case one.epoch > on[0].epoch:
		l.copies = append(l.copies, on...)
		l.on[one.no] = []schema{one}
	default:
		l.copies = append(l.copies, one)
	}
}

// ledgersOn lists the schemas on a server that are ledgers of this queue. Those on a standby are asleep. The schema of
// a plain queue counts once it has tables.
func (s *Store) ledgersOn(ctx context.Context, at *server) (all []schema, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	rows, err := at.pool.Query(ctx, `
		select n.nspname::text, coalesce(d.description, ''), t.made, pg_catalog.pg_is_in_recovery()
		from pg_catalog.pg_namespace n
		cross join lateral (select exists (
		  select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'log') as made) t
		left join pg_catalog.pg_description d on d.objoid = n.oid
		  and d.classoid = 'pg_catalog.pg_namespace'::pg_catalog.regclass and d.objsubid = 0
		where pg_catalog.starts_with(n.nspname::text, $1 || '_') or n.nspname = $1 and t.made`, s.o.Schema)
	if err != nil {
		return nil, err
	}
	var text, comment string
	var made, asleep bool
	_, err = pgx.ForEachRow(rows, []any{&text, &comment, &made, &asleep}, func() error {
		one := schema{text: text, at: at, made: made, asleep: asleep}
		bare, fenced := strings.CutSuffix(text, fencedEnd)
		is := false
		if one.name, is = parseName(s.o.Schema, bare); is {
			one.fenced, one.epoch = fenced, epochOf(comment)
			all = append(all, one)
		}
		return nil
	})
	return all, err
}

// problem returns why a ledger cannot be used, after a look at all servers, or nil if it is open on exactly one server.
// If it is open on two, it is unknown which one is right.
func (l *looked) problem(no int) error {
	on := l.on[no]
	if len(on) == 1 {
		return nil
	}
	among := func(all []schema) (server string, is bool) {
		i := slices.IndexFunc(all, func(one schema) bool { return one.no == no })
		if i < 0 {
			return "", false
		}
		return all[i].at.name, true
	}
	old, isOld := among(l.copies)
	asleep, isAsleep := among(l.asleep)
	closed := l.closed(no)
	switch silent := strings.Join(l.silent, ", "); {
	case len(on) > 1:
		return fmt.Errorf("it is on %s and on %s: rename the schema where it is a copy", on[0].at.name, on[1].at.name)
	case len(closed) > 0 && silent != "":
		return fmt.Errorf("it is fenced on %s, and may be open on a server that does not answer: %s",
			closed[0].at.name, silent)
	case len(closed) > 1:
		return fmt.Errorf("it is fenced on %s and on %s: repeat the move that was cut off, or open it on one of them: "+
			"tusk ledgers open %d --on", closed[0].at.name, closed[1].at.name, no)
	case len(closed) > 0:
		return fmt.Errorf("it is fenced on %s: tusk ledgers open %d, or repeat the move that was cut off; if it is open "+
			"elsewhere, add its server to the URL", closed[0].at.name, no)
	case isOld:
		return fmt.Errorf("only an old copy answers, on %s: name the server that has the newer one, and start it; if that "+
			"is lost, restart all processes to use the copy", old)
	case silent != "":
		return fmt.Errorf("it is on no server that answers; these do not: %s", silent)
	case isAsleep:
		return fmt.Errorf("%s, which has it, is in recovery: promote it, or name the server that it follows", asleep)
	}
	return errors.New("it is on none of the servers: name its server, too")
}

// find looks for the ledgers and records their locations. It ignores new ledgers without tables, unless this process
// creates them. The error is store.ErrSchemaMissing if there are no ledgers.
func (s *Store) find(ctx context.Context) (*looked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findNow(ctx)
}

// findNow is find for callers that hold s.mu.
func (s *Store) findNow(ctx context.Context) (*looked, error) {
	number := s.begun.Add(1)
	seen, err := s.look(ctx)
	if int(s.divide.Load()) < seen.of { // another process creates the new ledgers
		seen.ripen()
	}
	if err == nil && ctx.Err() == nil {
		s.unseen.Store(&unseen{seen.silent, seen.unripe})
	}
	switch {
	case err != nil:
		return nil, err
	case len(seen.silent) == len(s.servers()):
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, seen.err)
	case seen.of == 0 && seen.err != nil:
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, seen.err)
	case seen.of == 0:
		return nil, store.ErrSchemaMissing
	}
	var all []*ledger
	if known := s.all.Load(); known != nil {
		all = slices.Clone(*known)
		if s.keys() != seen.keys {
			return nil, fmt.Errorf("keys were divided among %d ledgers, now they are among %d: "+
				"these servers belong to another queue", s.keys(), seen.keys)
		}
	}
	s.divided.Store(int32(seen.keys))
	for no := len(all); no < seen.of; no++ {
		all = append(all, newLedger(s, no, name{no, seen.of, seen.keys}.in(s.o.Schema)))
		s.turns.hot[no].Store(true)
	}
	defer s.all.Store(&all)
	for _, l := range all {
		l.epoch.Store(max(l.epoch.Load(), seen.nextEpoch(l.no)-1))
		if err := s.place(ctx, l, &seen); err != nil {
			return nil, err
		}
	}
	if ctx.Err() == nil {
		s.ended = number
	}
	return &seen, nil
}

// place sets the location of a ledger, unless it is known already.
func (s *Store) place(ctx context.Context, l *ledger, seen *looked) error {
	on := seen.on[l.no]
	at, _ := l.whereabouts()
	switch here := func(one schema) bool { return one.at == at }; {
	case slices.ContainsFunc(on, here):
		return nil
	case len(on) == 1:
		engine, err := postgres.New(ctx, on[0].at.pool, postgres.Options{Schema: on[0].text, Quiet: s.o.Quiet,
			Attendant: on[0].at.attendant})
		if err != nil {
			return err
		}
		l.found(on[0].at, on[0].text, engine)
	case at == nil:
		l.lost(seen.problem(l.no))
	}
	return nil
}

// errUnseen means that there may be ledgers that this process does not know.
var errUnseen = fmt.Errorf("%w: there may be ledgers that were not asked", store.ErrUnavailable)

// unseen is what the last look may have missed.
type unseen struct {
	silent []string // servers that did not answer
	unripe string   // as in looked
}

// notUnseen fails if the last look may have missed ledgers that have tasks. The number of ledgers is known only from
// the names of their schemas, so a server that did not answer may have ledgers that this process does not know.
func (s *Store) notUnseen() error {
	if last := s.unseen.Load(); last != nil && len(last.silent) > 0 {
		return fmt.Errorf("%w: these servers do not answer: %s", errUnseen, strings.Join(last.silent, ", "))
	}
	return s.notUnripe()
}

// notUnripe fails if the last look ignored new ledgers that may have tasks.
func (s *Store) notUnripe() error {
	if last := s.unseen.Load(); last != nil && last.unripe != "" {
		return fmt.Errorf("%w: %s", errUnseen, last.unripe)
	}
	return nil
}

// notUnmet fails if there may be ledgers that have never been asked: a server has never answered a look, or new ledgers
// are ignored. Sums over all ledgers may be too small then.
func (s *Store) notUnmet() error {
	for _, at := range s.servers() {
		if !at.answered.Load() {
			return fmt.Errorf("%w: %s has not answered yet", errUnseen, at.name)
		}
	}
	return s.notUnripe()
}

// complete fails unless all is the complete list of ledgers now. A task that no ledger in it has is gone only if
// complete, called after the search, returns nil. Concurrent callers share one look.
func (s *Store) complete(ctx context.Context, all []*ledger) error {
	if err := s.notUnseen(); err != nil {
		return err
	}
	asked := s.begun.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notUnseen(); err != nil { // a look meanwhile may have missed some
		return err
	}
	if s.ended <= asked { // no later look has succeeded
		if _, err := s.findNow(ctx); err != nil {
			return err
		}
		if err := errors.Join(ctx.Err(), s.notUnseen()); err != nil {
			return err
		}
	}
	if len(*s.all.Load()) > len(all) {
		return fmt.Errorf("%w: some were just added", errUnseen)
	}
	return nil
}

// keys returns the number of ledgers that keys are divided among.
func (s *Store) keys() int { return int(s.divided.Load()) }

// watch looks for ledgers at intervals.
func (s *Store) watch() {
	for {
		select {
		case <-s.life.Done():
			return
		case <-time.After(lookAgain):
			if s.net != nil {
				_ = s.net.meet(s.life, s)
			}
			_, _ = s.find(s.life) // Check reports errors
		}
	}
}
