package ledgers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/postgres"
)

// Place describes where a ledger or a copy of it is.
type Place struct {
	No     int
	Schema string
	Server string
	State  string // open, fenced, copy (old and unused) or away
	Why    string // why it cannot be used, if so
	Epoch  int64  // rises with each fence and each opening
	Bytes  int64  // size on disk; only of open ledgers
	Tasks  int64  // unfinished tasks; only of open ledgers
}

// Places lists the ledgers and their copies, by number.
func (s *Store) Places(ctx context.Context) ([]Place, error) {
	seen, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	var all []Place
	for no := range seen.of {
		for _, one := range seen.on[no] {
			p := one.place("open")
			if problem := seen.problem(no); problem != nil {
				p.Why = problem.Error()
			}
			s.weigh(ctx, one, &p)
			all = append(all, p)
		}
		if len(seen.on[no]) == 0 {
			all = append(all, Place{No: no, State: "away", Why: seen.problem(no).Error(),
				Schema: name{no, seen.of, seen.keys}.in(s.o.Schema)})
		}
	}
	for _, one := range seen.fenced {
		all = append(all, one.place("fenced"))
	}
	for _, one := range seen.copies {
		all = append(all, one.place("copy"))
	}
	slices.SortStableFunc(all, func(a, b Place) int { return a.No - b.No })
	return all, nil
}

func (one schema) place(state string) Place {
	return Place{No: one.no, Schema: one.text, Server: one.at.name, State: state, Epoch: one.epoch}
}

// weigh sets the size of a ledger and the number of its tasks.
func (s *Store) weigh(ctx context.Context, one schema, p *Place) {
	_ = one.at.pool.QueryRow(ctx, `
		select coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0)::bigint
		from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relkind = 'r'`, one.text).Scan(&p.Bytes)
	engine, err := postgres.New(ctx, one.at.pool, postgres.Options{Schema: one.text})
	if err != nil {
		return
	}
	defer engine.Close()
	counts, err := engine.Count(ctx)
	if err != nil && p.Why == "" {
		p.Why = err.Error()
	}
	for _, c := range counts {
		p.Tasks += c.Tasks
	}
}

// firstTables are locked first, in the order in which claims and most other transactions use them. A transaction that
// waits for the first table holds no lock on the others.
var firstTables = []string{"worker", "lease", "lane", "lane_position", "log"}

// Fence makes ledgers unusable until they are opened, on the same or on another server. For each, it waits up to 30 s
// until no transaction uses it; the error names those that do. When Fence returns, every acknowledged write is in the
// server's log, and no more follow. If a ledger cannot be fenced, Fence opens the others again.
func (s *Store) Fence(ctx context.Context, numbers ...int) error {
	seen, err := s.find(ctx)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	var todo, fenced []schema
	for _, no := range numbers {
		if seen.err == nil && len(seen.closed(no)) == 1 {
			continue // an earlier call was cut off
		}
		err := cmp.Or(seen.number(no), seen.problem(no))
		if err == nil {
			err = seen.on[no][0].hasTables()
		}
		if err != nil {
			return fmt.Errorf("fence: ledger %d: %w", no, err)
		}
		todo = append(todo, seen.on[no][0])
	}
	for _, one := range todo {
		one, err := s.fenceOne(ctx, one)
		if err != nil {
			return errors.Join(fmt.Errorf("fence: ledger %d: %w", one.no, err), s.unfence(ctx, fenced))
		}
		fenced = append(fenced, one)
	}
	return nil
}

// OnStep sets a function that Fence and Move call before each step that may take long, with a text such as "ledger 2:
// waiting for transactions to end". Set it before they are called.
func (s *Store) OnStep(do func(step string)) { s.onStep = do }

func (s *Store) step(format string, args ...any) {
	if s.onStep != nil {
		s.onStep(fmt.Sprintf(format, args...))
	}
}

func (s *Store) fenceOne(ctx context.Context, one schema) (fenced schema, err error) {
	s.step("ledger %d: waiting for transactions to end", one.no)
	return one.fence(ctx)
}

// unfence opens ledgers that this call has fenced, and tries each. No other server has to answer: if another command
// has opened a ledger elsewhere, it has changed the epoch of the fenced schema, and unfence leaves that alone.
func (s *Store) unfence(ctx context.Context, fenced []schema) (failed error) {
	ctx = context.WithoutCancel(ctx)
	for _, one := range fenced {
		s.step("ledger %d: opening it again on %s", one.no, one.at.name)
		failed = errors.Join(failed, one.unfence(ctx))
	}
	within, cancel := context.WithTimeout(ctx, backWithin)
	defer cancel()
	_, err := s.find(within)
	return errors.Join(failed, err)
}

func (one schema) unfence(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, backWithin)
	defer cancel()
	err := one.open(within, one.epoch+1, nil)
	if err != nil && !errors.Is(err, errChanged) {
		err = fmt.Errorf("ledger %d stays fenced on %s: tusk ledgers open %d --on %s: %w", one.no, one.at.name, one.no,
			one.at.name, err)
	}
	return err
}

// hasTables fails for a ledger that has no tables, because the command that makes it is at work or was cut off.
func (one schema) hasTables() error {
	if !one.made {
		return fmt.Errorf("%s on %s has no tables yet: first repeat the tusk ledgers give-up or tusk migrate up that was "+
			"to make them", one.text, one.at.name)
	}
	return nil
}

// number fails if there is no ledger with that number.
func (l *looked) number(no int) error {
	if no < 0 || no >= l.of {
		return fmt.Errorf("there are ledgers 0 to %d", l.of-1)
	}
	return nil
}

// fence fences a schema and returns the result. Its epoch is higher than that of any open schema of the ledger.
func (one schema) fence(ctx context.Context) (fenced schema, err error) {
	fenced = one
	fenced.text, fenced.fenced, fenced.epoch = one.text+fencedEnd, true, one.epoch+1
	err = patiently(ctx, func(wait time.Duration) error {
		return one.change(ctx, func(tx pgx.Tx) error {
			if err := one.lock(ctx, tx, wait); err != nil {
				return inUse(err)
			}
			return one.rename(ctx, tx, fenced.text, fenced.epoch)
		})
	})
	return fenced, one.withUsers(ctx, err)
}

// lock locks all tables, which waits for transactions that have written. wait is the limit for each lock.
func (one schema) lock(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d", wait.Milliseconds())); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		select c.relname::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relkind in ('r', 'p') and not c.relispartition
		order by pg_catalog.array_position($2::text[], c.relname::text), c.relname`, one.text, firstTables)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for i, table := range tables {
		tables[i] = pgx.Identifier{one.text, table}.Sanitize()
	}
	if len(tables) > 0 {
		_, err = tx.Exec(ctx, "lock table "+strings.Join(tables, ", ")+" in access exclusive mode")
	}
	return err
}

// Open makes fenced ledgers usable again on a server. server is its host, its host and port, or its name as returned by
// Places; if it is empty, the ledgers must be fenced on only one server. All servers have to answer, and the ledgers
// must not be open on any other. If a ledger is fenced on several servers, the other schemas become old copies.
func (s *Store) Open(ctx context.Context, server string, numbers ...int) error {
	seen, err := s.look(ctx)
	if err == nil {
		err = seen.err
	}
	if err != nil {
		return fmt.Errorf("open: all servers have to answer: %w", err)
	}
	for _, no := range numbers {
		if on := seen.on[no]; len(on) == 1 && (server == "" || on[0].at.is(server)) {
			continue // an earlier call was cut off
		}
		one, err := seen.fencedOne(no, server)
		if err == nil {
			others := slices.DeleteFunc(seen.closed(no), func(other schema) bool { return other.at == one.at })
			err = one.open(ctx, seen.nextEpoch(no), others)
		}
		if err != nil {
			return fmt.Errorf("open: ledger %d: %w", no, err)
		}
	}
	_, err = s.find(ctx)
	return err
}

// closed returns the fenced schemas of a ledger that is not open anywhere. If there are several, they have the same
// content, because only one fence has that epoch: a standby was promoted, or a move was cut off after it had copied the
// ledger.
func (l *looked) closed(no int) []schema {
	if len(l.on[no]) > 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(l.fenced), func(one schema) bool {
		return one.no != no || one.epoch+1 < l.nextEpoch(no)
	})
}

// fencedOne returns the fenced schema of a ledger that should be opened.
func (l *looked) fencedOne(no int, server string) (schema, error) {
	if on := l.on[no]; len(on) > 0 {
		return schema{}, fmt.Errorf("it is open on %s", on[0].at.name)
	}
	found := slices.DeleteFunc(l.closed(no), func(one schema) bool { return server != "" && !one.at.is(server) })
	switch len(found) {
	case 0:
		return schema{}, errors.New("it is not fenced there, or what is fenced there is an old copy, or the server is a " +
			"standby still: promote it")
	case 1:
		return found[0], nil
	}
	return schema{}, fmt.Errorf("it is fenced on %s and on %s: say on which one to open it",
		found[0].at.name, found[1].at.name)
}

// nextEpoch returns an epoch that is higher than every known one of a ledger.
func (l *looked) nextEpoch(no int) (epoch int64) {
	for _, one := range l.every() {
		if one.no == no {
			epoch = max(epoch, one.epoch)
		}
	}
	return epoch + 1
}

// is reports whether text names the server.
func (at *server) is(text string) bool {
	host := at.pool.Config().ConnConfig
	return text == at.name || text == host.Host || text == fmt.Sprintf("%s:%d", host.Host, host.Port)
}

// settleIn prepares a ledger to run on its current server. Transaction ids define the order of tasks and what is in
// flight. Behind a fence nothing is in flight, so a ledger can run on any server whose counter is ahead of all its
// positions.
func (one schema) settleIn(ctx context.Context, tx pgx.Tx) error {
	in := func(text string) string { return strings.ReplaceAll(text, "{}", one.text) }
	var ahead bool
	err := tx.QueryRow(ctx, in(`
		select exists (select from {}.log t where t.xid >= s.lo)
		  or exists (select from {}.lane_position p where pg_snapshot_xmax(p.done) > s.lo or pg_snapshot_xmax(p.win) > s.lo)
		  or exists (select from {}.lane_tally a where pg_snapshot_xmax(a.seen) > s.lo)
		  or exists (select from {}.stat_end e where e.upto > s.lo)
		  or exists (select from {}.catalogue_end e where e.upto > s.lo)
		from (select pg_snapshot_xmin(pg_current_snapshot()) as lo) s`)).Scan(&ahead)
	if err != nil {
		return err
	}
	if ahead {
		return errors.New("its positions are ahead of this server's transactions, or one has been open since before " +
			"the fence: tusk ledgers move drives the counter up first")
	}
	_, err = tx.Exec(ctx, in(`
		update {}.server s set system_identifier = c.system_identifier
		from pg_control_system() c where s.system_identifier <> c.system_identifier`))
	return err
}

// DropCopies drops old copies, fenced or not, of ledgers that are open elsewhere, and returns them. If dry is set, it
// only returns them. All servers have to answer.
func (s *Store) DropCopies(ctx context.Context, dry bool) (dropped []Place, err error) {
	seen, err := s.look(ctx)
	if err == nil {
		err = seen.err
	}
	if err != nil {
		return nil, fmt.Errorf("drop copies: all servers have to answer: %w", err)
	}
	for _, one := range seen.old() {
		dropped = append(dropped, one.place(map[bool]string{true: "fenced", false: "copy"}[one.fenced]))
		if dry {
			continue
		}
		if err := one.withUsers(ctx, one.drop(ctx)); err != nil {
			return dropped, fmt.Errorf("drop copies: %s: %w", one.text, err)
		}
	}
	return dropped, nil
}

// old returns the copies, fenced or not, of ledgers that are open elsewhere. A fenced schema with the epoch of the open
// one is a copy, too: a fence of the ledger itself would have raised the epoch.
func (l *looked) old() []schema {
	return slices.DeleteFunc(slices.Concat(l.copies, l.fenced), func(one schema) bool {
		on := l.on[one.no]
		return len(on) != 1 || on[0].epoch < one.epoch
	})
}

// programs returns the schemas of a ledger's functions. Some may no longer exist.
func (one schema) programs(ctx context.Context, c interface {
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
}) ([]string, error) {
	rows, err := c.Query(ctx, "select name from "+one.text+".program")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (one schema) drop(ctx context.Context) error {
	return one.change(ctx, func(tx pgx.Tx) error {
		var is bool
		err := tx.QueryRow(ctx, "select pg_catalog.to_regclass($1) is not null", one.text+".program").Scan(&is)
		var names []string
		if err == nil && is {
			names, err = one.programs(ctx, tx)
		}
		if err != nil {
			return err
		}
		for _, text := range append(names, one.text) {
			if _, err := tx.Exec(ctx, "drop schema if exists "+pgx.Identifier{text}.Sanitize()+" cascade"); err != nil {
				return inUse(err)
			}
		}
		return nil
	})
}
