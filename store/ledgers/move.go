package ledgers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Moved is the result of a move.
type Moved struct {
	Numbers []int
	To      string
	How     string        // promoted, copied, or opened if nothing else was left to do
	Stood   time.Duration // longest time that a ledger was unusable
	Note    string        // what to do by hand, if anything
}

const (
	replayWithin = 30 * time.Second // for a standby to replay what was written before a fence
	cutWithin    = 10 * time.Second // for a standby to stop replicating
	replayAgain  = 5 * time.Millisecond
	mostDriven   = 50_000_000 // maximum number of transaction ids that a copy uses up
)

// backWithin is the limit for each step that undoes a fence or a promotion. Tests reduce it.
var backWithin = time.Minute

// Move moves ledgers to another server of the URL. If that is a standby of the server that has all of them, it is
// promoted and nothing is copied: the ledgers are unusable for a second or two, whatever their size. Ledgers that stay
// on the old server remain usable, and their copies on the new server are fenced with a lower epoch, so nobody uses
// them. To any other server, Move copies ledgers with pg_dump, one after the other. Leases stay valid in both cases.
// After an interruption, the same call continues the move.
func (s *Store) Move(ctx context.Context, to string, numbers ...int) (m Moved, err error) {
	seen, err := s.look(ctx)
	if err == nil {
		err = seen.err
	}
	if err != nil {
		return m, fmt.Errorf("move: all servers have to answer: %w", err)
	}
	i := slices.IndexFunc(s.servers(), func(at *server) bool { return at.is(to) })
	if i < 0 {
		return m, fmt.Errorf("move: the URL has no server %s: add it there", to)
	}
	target := s.servers()[i]
	var todo []schema
	for _, no := range numbers {
		one, err := seen.toMove(no, target)
		if err != nil {
			return m, fmt.Errorf("move: ledger %d: %w", no, err)
		}
		if one.at != target || one.fenced {
			todo = append(todo, one)
		}
	}
	if len(todo) == 0 {
		return m, fmt.Errorf("move: what is to move is on %s already", target.name)
	}
	m = Moved{Numbers: numbers, To: target.name}
	var standby bool
	if err := target.pool.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&standby); err != nil {
		return m, fmt.Errorf("move: %s: %w", target.name, err)
	}
	if standby {
		err = s.promote(ctx, &seen, todo, target, &m)
	} else {
		err = s.copyAll(ctx, &seen, todo, target, &m)
	}
	if err == nil {
		err = s.net.reach(ctx)
	}
	if err != nil {
		return m, fmt.Errorf("move: %w", err)
	}
	return m, nil
}

// toMove returns the schema of a ledger that should move to a server. After an interrupted move, it is fenced, maybe
// already on the target. If it is open on the target, nothing is left to do.
func (l *looked) toMove(no int, target *server) (one schema, err error) {
	if err := l.number(no); err != nil {
		return one, err
	}
	if on := l.on[no]; len(on) == 1 {
		return on[0], on[0].hasTables()
	}
	closed := l.closed(no)
	if i := slices.IndexFunc(closed, func(one schema) bool { return one.at == target }); i >= 0 {
		return closed[i], nil
	}
	if len(closed) == 1 {
		return closed[0], nil
	}
	return one, l.problem(no)
}

// hasFences reports whether a standby has replayed the fences of ledgers, and so everything that was written before
// them.
func (l *looked) hasFences(all []schema, target *server) bool {
	return !slices.ContainsFunc(all, func(one schema) bool {
		return !one.fenced || !slices.ContainsFunc(l.asleep, func(copied schema) bool {
			return copied.at == target && copied.fenced && copied.name == one.name && copied.epoch == one.epoch
		})
	})
}

// promote moves ledgers to a standby of their server. If an earlier call was cut off and the standby no longer follows,
// it has everything already.
func (s *Store) promote(ctx context.Context, seen *looked, todo []schema, target *server, m *Moved) error {
	source := todo[0].at
	numbers := make([]int, len(todo))
	for i, one := range todo {
		if numbers[i] = one.no; one.at != source {
			return fmt.Errorf("%s is a standby: it cannot be one of %s and of %s", target.name, source.name, one.at.name)
		}
	}
	err := standsBy(ctx, source, target)
	arrived := seen.hasFences(todo, target)
	if err == nil && !arrived {
		err = hasAll(ctx, source, target, 5*time.Second)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	var fenced []schema
	rejoin := func(context.Context) error { return nil }
	// The promotion has failed: let the standby follow again if possible, and open the ledgers where they were.
	back := func(err error) error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), backWithin)
		defer cancel()
		return errors.Join(err, rejoin(within), s.unfence(ctx, fenced))
	}
	for _, one := range todo {
		if one.fenced {
			continue
		}
		one, err := s.fenceOne(ctx, one)
		if err != nil {
			return back(fmt.Errorf("ledger %d: %w", one.no, err))
		}
		fenced = append(fenced, one)
	}
	if !arrived {
		s.step("waiting until %s has replayed all writes", target.name)
		if err := hasAll(ctx, source, target, replayWithin); err != nil {
			return back(err)
		}
	}
	undo, err := undoCut(ctx, target)
	if err != nil {
		return back(err)
	}
	rejoin = func(ctx context.Context) error {
		err := target.reconfigure(ctx, undo)
		if err != nil {
			err = fmt.Errorf("%s follows %s no more: run there %s; select pg_reload_conf(): %w",
				target.name, source.name, hidden(undo), err)
		}
		return err
	}
	if err := cutOff(ctx, target); err != nil {
		return back(err)
	}
	// The standby receives nothing from here on. The higher epoch marks the ledgers that stay as newer than its copies.
	for no := range seen.of {
		if on := seen.on[no]; len(on) == 1 && on[0].at == source && !slices.Contains(numbers, no) {
			if err := on[0].mark(ctx, seen.nextEpoch(no)); err != nil {
				return back(err)
			}
		}
	}
	s.step("promoting %s", target.name)
	var up bool
	err = target.pool.QueryRow(ctx, "select pg_promote()").Scan(&up)
	if err == nil && !up {
		err = errors.New("pg_promote() waited for a minute: see the server's log")
	}
	if err != nil {
		// It may still be promoted later. If it followed until then, it would have the ledgers open as well.
		rejoin = func(context.Context) error { return nil }
		return back(fmt.Errorf("%s was not promoted in time, and follows %s no more, because it may be promoted "+
			"later: restart it, which ends that, and if it is a standby still, run there %s; select pg_reload_conf(): %w",
			target.name, source.name, hidden(undo), err))
	}
	there, err := s.ledgersOn(ctx, target) // ledgers may have been added during the move
	if err == nil {
		err = fenceCopies(ctx, slices.DeleteFunc(there, func(one schema) bool {
			return one.fenced || one.keys != seen.keys || slices.Contains(numbers, one.no)
		}))
	}
	if err != nil {
		m.Note = fmt.Sprintf("%s may have open copies of ledgers: tusk ledgers drop-copies: %v", target.name, err)
	}
	err = s.Open(ctx, target.name, numbers...)
	m.How, m.Stood = "promoted", time.Since(began)
	return err
}

// fenceCopies fences copies of ledgers on a promoted standby that have not moved there. Nobody uses them, so it need
// not wait for transactions. Without the fence, a process that starts after the old server is lost would use them.
func fenceCopies(ctx context.Context, copies []schema) (failed error) {
	for _, one := range copies {
		err := one.change(ctx, func(tx pgx.Tx) error { return one.rename(ctx, tx, one.text+fencedEnd, one.epoch) })
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", one.text, err))
		}
	}
	return failed
}

// standsBy fails unless target is a standby of source, and source can do without it.
func standsBy(ctx context.Context, source, target *server) error {
	var from, to int64
	err := source.pool.QueryRow(ctx, "select system_identifier from pg_control_system()").Scan(&from)
	if err == nil {
		err = target.pool.QueryRow(ctx, "select system_identifier from pg_control_system()").Scan(&to)
	}
	if err == nil && from != to {
		err = fmt.Errorf("%s is a standby, but not one of %s", target.name, source.name)
	}
	if err == nil {
		err = spares(ctx, source, target)
	}
	return err
}

// spares fails if a server's commits would wait forever without a standby.
func spares(ctx context.Context, source, target *server) error {
	const self = `
		select coalesce((select substring(conninfo from '(?:^| )application_name=(\S+)') from pg_stat_wal_receiver),
		  nullif(current_setting('cluster_name', true), ''), 'walreceiver')`
	const enough = `
		select s.names = '' or s.waits_for <= (
		    select count(*) - coalesce(bool_or(r.application_name = $1), false)::int
		    from pg_stat_replication r where r.sync_state <> 'async'),
		  exists (select from pg_stat_replication r where r.sync_state is null)
		from (
		  select n.names, coalesce(substring(n.names from '^\s*(?:\w+\s+)?(\d+)\s*\(')::int, 1) as waits_for
		  from (select current_setting('synchronous_standby_names') as names) n) s`
	var name string
	var is, unreadable bool
	err := target.pool.QueryRow(ctx, self).Scan(&name)
	if err == nil {
		err = source.pool.QueryRow(ctx, enough, name).Scan(&is, &unreadable)
	}
	switch {
	case err != nil || is:
	case unreadable:
		err = fmt.Errorf("%s has synchronous_standby_names, and its role may not read which standbys are synchronous: "+
			"grant it pg_monitor", source.name)
	default:
		err = fmt.Errorf("the commits of %s wait for the standby %s: connect another one that is in its "+
			"synchronous_standby_names, or take this one out", source.name, target.name)
	}
	return err
}

// hasAll waits until a standby has replayed everything that a server has written so far.
func hasAll(ctx context.Context, source, target *server, within time.Duration) error {
	var upto string
	err := pgx.BeginFunc(ctx, source.pool, func(tx pgx.Tx) error {
		// The log since the last commit may stay in memory, unsent, until the next commit.
		if _, err := tx.Exec(ctx, "set local synchronous_commit = local"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "select pg_current_xact_id()::text").Scan(&upto)
	})
	if err == nil {
		err = source.pool.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text").Scan(&upto)
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(within); ; {
		var has bool
		const ask = "select coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)"
		err := target.pool.QueryRow(ctx, ask, upto).Scan(&has)
		if err != nil || has {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not follow %s closely enough, or not at all: see its primary_conninfo and its log",
				target.name, source.name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(replayAgain):
		}
	}
}

// undoCut returns the statement that undoes cutOff, so that the standby follows again.
func undoCut(ctx context.Context, target *server) (string, error) {
	var conninfo string
	var altered bool // by alter system, as pg_basebackup -R does
	err := target.pool.QueryRow(ctx, `
		select setting, coalesce(sourcefile, '') like '%postgresql.auto.conf' from pg_settings
		where name = 'primary_conninfo'`).Scan(&conninfo, &altered)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: primary_conninfo cannot be read, which needs pg_read_all_settings: %w",
			target.name, err)
	case altered:
		return "alter system set primary_conninfo = '" + strings.ReplaceAll(conninfo, "'", "''") + "'", nil
	}
	return "alter system reset primary_conninfo", nil
}

// Passwords in a connection string that is quoted in a statement, and in a URL.
var (
	wordInText = regexp.MustCompile(`(?i)(password\s*=\s*)(?:''(?:\\''|\\.|[^'\\])*''|(?:\\.|''|[^\s'\\])+)`)
	wordInURL  = regexp.MustCompile(`(://[^:/@\s]*:)\S*@`)
)

// hidden returns a statement with its password removed.
func hidden(statement string) string {
	return wordInURL.ReplaceAllString(wordInText.ReplaceAllString(statement, "${1}…"), "${1}…@")
}

// reconfigure changes a setting of the server.
func (at *server) reconfigure(ctx context.Context, alter string) error {
	_, err := at.pool.Exec(ctx, alter, pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		_, err = at.pool.Exec(ctx, "select pg_reload_conf()")
	}
	return err
}

// cutOff stops the replication of a standby.
func cutOff(ctx context.Context, target *server) error {
	if err := target.reconfigure(ctx, "alter system set primary_conninfo = ''"); err != nil {
		return err
	}
	for end := time.Now().Add(cutWithin); ; time.Sleep(replayAgain) {
		var following bool
		const ask = "select exists (select from pg_stat_wal_receiver)"
		if err := target.pool.QueryRow(ctx, ask).Scan(&following); err != nil || !following {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s cannot be cut off: alter system set primary_conninfo = '' has no effect, maybe because "+
				"the setting is given on its command line", target.name)
		}
	}
}

// driveUp uses up transaction ids of the target until its counter is ahead of the source's.
func driveUp(ctx context.Context, source, target *server) error {
	const next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
	var upto int64
	if err := source.pool.QueryRow(ctx, next).Scan(&upto); err != nil {
		return err
	}
	c, err := target.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	var at int64
	if err := c.QueryRow(ctx, next).Scan(&at); err != nil {
		return err
	}
	if upto-at > mostDriven {
		return fmt.Errorf("%s is %d transactions behind %s: move to a standby of that instead",
			target.name, upto-at, source.name)
	}
	_, err = c.Exec(ctx, fmt.Sprintf(`
		do $$ begin
		  set synchronous_commit = off;
		  while pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= %d loop
		    for i in 1 .. 100 loop
		      perform pg_current_xact_id();
		      commit;
		    end loop;
		  end loop;
		  reset synchronous_commit;
		end $$`, upto), pgx.QueryExecModeSimpleProtocol)
	return err
}
