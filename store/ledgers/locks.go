package ledgers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Commands wait for each lock between firstLock and longestLock. While one waits, other transactions that need the
// table queue up behind it, and may hold locks that it needs next. So it tries often and waits briefly. After
// deadlock_timeout, a second by default, the server cancels an autovacuum that blocks the lock.
const (
	firstLock   = 50 * time.Millisecond
	longestLock = 2 * time.Second
)

// lockedWithin is the limit for all tries. Tests reduce it.
var lockedWithin = 30 * time.Second

// errInUse means that transactions hold locks on the tables of a schema.
var errInUse = errors.New("open transactions use its tables: end them, or try again")

// patiently repeats a change of schemas while others hold a lock that it needs. wait is the limit for each lock on a
// table.
func patiently(ctx context.Context, do func(wait time.Duration) error) error {
	end, wait := time.Now().Add(lockedWithin), firstLock
	for {
		err := do(wait)
		if !isLocked(err) || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
		select { // let other transactions continue
		case <-ctx.Done():
		case <-time.After(wait / 4):
		}
		wait = min(2*wait, longestLock)
	}
}

// isLocked reports whether a statement has waited too long for a lock, or was part of a deadlock.
func isLocked(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == "55P03" || said.Code == "40P01")
}

// inUse marks the error of a statement that needs locks on the tables of a schema.
func inUse(err error) error {
	if isLocked(err) {
		return fmt.Errorf("%w: %w", errInUse, err)
	}
	return err
}

// withUsers adds to an error that wraps errInUse who uses the tables.
func (one schema) withUsers(ctx context.Context, err error) error {
	if !errors.Is(err, errInUse) {
		return err
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWithin)
	defer cancel()
	var users string
	failed := one.at.pool.QueryRow(within, `
		select coalesce(string_agg(u.text, ', '), '')
		from (
		  select case when a.pid is null then 'a prepared transaction' else
		    format('process %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.backend_type))
		    || coalesce(' since ' || date_trunc('second', a.xact_start), '') end as text
		  from pg_catalog.pg_locks k
		  join pg_catalog.pg_class c on c.oid = k.relation and c.relkind in ('r', 'p')
		  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		  left join pg_catalog.pg_stat_activity a on a.pid = k.pid
		  where n.nspname = $1 and k.granted and k.pid is distinct from pg_catalog.pg_backend_pid()
		    and k.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
		  group by a.pid, a.application_name, a.backend_type, a.xact_start
		  order by a.xact_start
		  limit 3) u`, one.text).Scan(&users)
	if failed != nil || users == "" {
		return err
	}
	return fmt.Errorf("%s on %s is used by %s: %w", one.text, one.at.name, users, err)
}
