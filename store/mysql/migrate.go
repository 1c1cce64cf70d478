package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

var newest = migrate.Newest(migrations) // the version that this program needs

var schema = migrate.Schema{Files: migrations, Dialect: goose.DialectMySQL, Table: "tusk_migration",
	Seconds: "unix_timestamp(tstamp)"}

// checkSchema fails unless this program works with the schema. It also works with a newer schema, unless that says
// otherwise.
func (s *Store) checkSchema(ctx context.Context) error {
	at, err := s.version(ctx)
	if err != nil {
		return explain(err)
	}
	if err := s.fits(ctx, at); err != nil {
		return err
	}
	missing, err := s.missingProcedures(ctx)
	if err != nil {
		return explain(err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: the procedure %s, which belongs to this program, is missing, or may not be executed: "+
			"run tusk migrate up, and tusk db roles if programs log in by its roles", store.ErrSchemaOld, missing[0])
	}
	s.checked.Store(true)
	return nil
}

// fits fails unless the tables of a version are those that this program needs, or newer ones that it works with.
func (s *Store) fits(ctx context.Context, at int64) error {
	if at <= newest {
		return migrate.Fits(at, newest)
	}
	oldest := at
	err := s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&oldest) }, q("program.oldest"))
	if err != nil {
		return explain(err)
	}
	return migrate.Known(oldest, newest)
}

// version returns the schema's version, or 0 if there is none. It fails if there are foreign tables with our names.
func (s *Store) version(ctx context.Context) (at int64, err error) {
	on, err := s.conn(ctx) // a spare one if the pool has none
	if err != nil {
		return 0, err
	}
	defer on.Close()
	tables := map[string]bool{}
	rows, err := on.QueryContext(ctx,
		`select table_name, coalesce(engine, '')
		from information_schema.tables
		where table_schema = database() and table_type = 'BASE TABLE' and table_name like 'tusk|_%' escape '|'`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, engine string
		if err := rows.Scan(&name, &engine); err != nil {
			return 0, err
		}
		if engine != "InnoDB" && name != schema.Table { // goose uses the server's default engine for that one
			return 0, fmt.Errorf("%w: %s is stored in %s, which has no transactions: alter table %s engine = InnoDB",
				store.ErrUnsupported, name, engine, name)
		}
		tables[strings.ToLower(name)] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, err
	}
	if tables[schema.Table] {
		if at, err = schema.Version(ctx, on); err != nil {
			return 0, foreign(schema.Table, err)
		}
	}
	return at, s.checkTables(ctx, on, at, tables)
}

func foreign(table string, err error) error {
	if codeOf(err) == codeColumnMissing {
		return fmt.Errorf("%w: %s: %w", store.ErrSchemaForeign, table, err)
	}
	return err
}

// checkTables fails if there are tables with our names that none of our migrations can have created, or that lack
// columns of ours.
func (s *Store) checkTables(ctx context.Context, on *sql.Conn, at int64, tables map[string]bool) error {
	own, err := schema.Tables()
	if err != nil {
		return err
	}
	for _, table := range own {
		switch {
		case at == 0 && tables[table] && !tables[schema.Table]:
			return fmt.Errorf("%w: %s: rename it, or use another database", store.ErrSchemaForeign, table)
		case at == newest && !tables[table]:
			return fmt.Errorf("%w: %s is missing: restore the database from a backup", store.ErrSchemaForeign, table)
		}
	}
	if at != newest {
		return nil
	}
	rows, err := on.QueryContext(ctx, "select "+columns+" from tusk_task where place = 0")
	if err != nil {
		return foreign("tusk_task", err)
	}
	return rows.Close()
}

// Migrate implements store.Migrator. If several processes migrate at once, one does the work, and the others wait
// until it is done. The server commits after every step, and every step can be repeated, so a migration that was
// killed can simply be started again.
func (s *Store) Migrate(ctx context.Context, version int64) (steps []store.Migration, err error) {
	for got := false; !got && err == nil; {
		got, err = s.tryAlone(ctx, time.Second, func() error {
			steps, err = s.migrate(ctx, version)
			return err
		})
	}
	return steps, wrap("migrate", err)
}

// errOneConnection says that a pool has no second connection to work on next to the one that is held.
var errOneConnection = fmt.Errorf("%w: migrations hold one connection and work on another, and the pool may have one "+
	"alone: allow two with SetMaxOpenConns, or give the engine spare ones (mysql.Options.Spare)", store.ErrUnsupported)

// tryAlone runs fn while no other process migrates this database. It reports whether it ran fn: after the wait another
// process may still be migrating.
func (s *Store) tryAlone(ctx context.Context, wait time.Duration, fn func() error) (did bool, err error) {
	if s.spare == nil && s.db.Stats().MaxOpenConnections == 1 {
		return false, errOneConnection
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "select get_lock(concat('tusk:migrate:', left(sha2(database(), 256), 16)), ?)",
		int(wait.Seconds())).Scan(&got); err != nil || got.Int64 != 1 {
		return false, err
	}
	err = fn()
	_, end := conn.ExecContext(context.WithoutCancel(ctx),
		"do release_lock(concat('tusk:migrate:', left(sha2(database(), 256), 16)))")
	if end != nil {
		abandon(ctx, conn, end)
	}
	return true, errors.Join(err, end)
}

// programs is the first version with procedures listed by program.
const programs = 3

func (s *Store) migrate(ctx context.Context, version int64) (taken []store.Migration, err error) {
	to, err := migrate.Target(version, newest)
	if err != nil {
		return nil, err
	}
	at, err := s.version(ctx)
	if err != nil {
		return nil, err
	}
	s.checked.Store(false)
	// Only a program that works with these tables installs its procedures.
	if at > newest {
		err := migrate.Known(at, newest)
		if version < 0 {
			err = s.fits(ctx, at)
		}
		if err != nil {
			return nil, err
		}
		return s.withProcedures(ctx, nil)
	}
	if to < at && at >= programs {
		own, err := s.dropPrograms(ctx, to)
		if own {
			taken = append(taken, s.ownStep(time.Time{}))
		}
		if err != nil {
			return taken, err
		}
	}
	var steps []store.Migration
	err = s.apart(ctx, func(db *sql.DB) error {
		steps, err = schema.Take(ctx, db, at, to)
		return err
	})
	if taken = append(taken, steps...); err != nil || to < newest {
		return taken, err
	}
	return s.withProcedures(ctx, taken)
}

// apart lends fn a connection of the pool as a pool of its own, and closes the connection afterwards, because a step
// that fails leaves its settings in the session.
func (s *Store) apart(ctx context.Context, fn func(db *sql.DB) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var failed error
	err = conn.Raw(func(c any) error {
		own := c.(driver.Conn)
		db := sql.OpenDB(only{own})
		db.SetMaxOpenConns(1)
		failed = errors.Join(fn(db), db.Close())
		return driver.ErrBadConn // so that the pool drops it
	})
	if !errors.Is(err, driver.ErrBadConn) {
		failed = errors.Join(failed, err)
	}
	return failed
}

// only is a connector with one connection.
type only struct{ driver.Conn }

func (o only) Connect(context.Context) (driver.Conn, error) { return o.Conn, nil }

func (o only) Driver() driver.Driver { return nil }

// withProcedures installs the procedures after the given steps, and what else workers need.
func (s *Store) withProcedures(ctx context.Context, taken []store.Migration) ([]store.Migration, error) {
	fresh, err := s.install(ctx)
	if err != nil {
		return taken, err
	}
	if fresh {
		taken = append(taken, s.ownStep(time.Now().UTC()))
	}
	_, err = s.dropPrograms(ctx, math.MaxInt64)
	return taken, errors.Join(err, s.makeDays(ctx))
}

// Migrations implements store.Migrator.
func (s *Store) Migrations(ctx context.Context) (steps []store.Migration, err error) {
	at, err := s.version(ctx)
	if err == nil {
		steps, err = schema.List(ctx, s.db, at)
	}
	var installed time.Time
	if err == nil && at >= programs {
		installed, err = s.installed(ctx)
	}
	if err != nil {
		return nil, wrap("migrations", err)
	}
	return append(steps, s.ownStep(installed)), nil
}
