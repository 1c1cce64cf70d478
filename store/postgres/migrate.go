package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

var _ store.Migrator = (*Store)(nil)

// Migrate implements store.Migrator. It works on a connection of its own. If two
// processes migrate at once, each step is taken by only one of them.
func (s *Store) Migrate(ctx context.Context, version int64) ([]store.Migration, error) {
	steps, err := s.migrate(ctx, version)
	if err != nil {
		return steps, fmt.Errorf("migrate: %w", translate(err))
	}
	return steps, nil
}

func (s *Store) migrate(ctx context.Context, version int64) ([]store.Migration, error) {
	all, err := s.steps()
	if err != nil {
		return nil, err
	}
	newest := all[len(all)-1].Version
	to, err := migrate.Target(version, newest)
	if err != nil {
		return nil, err
	}
	var options []stdlib.OptionOpenDB
	config := s.pool.Config()
	if config.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	db := stdlib.OpenDB(*config.ConnConfig.Copy(), options...)
	defer db.Close()
	if err := s.createSchema(ctx, db); err != nil {
		return nil, err
	}
	provider, err := s.provider(db, all)
	if err != nil {
		return nil, err
	}
	at, err := provider.GetDBVersion(ctx)
	if err != nil {
		return nil, err
	}
	s.known.forget()
	if at > newest { // a program installs its functions only if it works with these tables
		err := migrate.Known(at, newest)
		if version < 0 {
			err = s.checkOldest(ctx, newest)
		}
		if err != nil {
			return nil, err
		}
		return s.withFunctions(ctx, db, newest, nil)
	}
	if to < at {
		return s.down(ctx, db, provider, all, to)
	}
	taken, err := s.up(ctx, provider, all, to)
	if err != nil || to < newest {
		return taken, err
	}
	return s.withFunctions(ctx, db, newest, taken)
}

// withFunctions installs the functions, and appends that to the steps that were taken.
func (s *Store) withFunctions(
	ctx context.Context, db *sql.DB, newest int64, taken []store.Migration,
) ([]store.Migration, error) {
	fresh, err := s.install(ctx, db, newest)
	if err == nil && fresh {
		taken = append(taken, s.ownStep(newest, time.Now().UTC()))
	}
	return taken, err
}

// down removes the functions that need newer tables, and then takes steps back.
func (s *Store) down(
	ctx context.Context, db *sql.DB, provider *goose.Provider, all []store.Migration, to int64,
) (taken []store.Migration, err error) {
	own, err := s.uninstall(ctx, db, to)
	if err != nil {
		return nil, err
	}
	if own {
		taken = append(taken, s.ownStep(all[len(all)-1].Version, time.Time{}))
	}
	results, err := taking(ctx, len(all), func() ([]*goose.MigrationResult, error) { return provider.DownTo(ctx, to) })
	return append(taken, migrate.Taken(all, results)...), err
}

func (s *Store) up(
	ctx context.Context, provider *goose.Provider, all []store.Migration, to int64,
) ([]store.Migration, error) {
	results, err := taking(ctx, len(all), func() ([]*goose.MigrationResult, error) { return provider.UpTo(ctx, to) })
	return migrate.Taken(all, results), err
}

// taking takes steps. It continues after a deadlock with workers, which is possible because
// steps lock several tables, after a lock timeout, and after a step that another process has
// taken.
func taking(
	ctx context.Context, steps int, take func() ([]*goose.MigrationResult, error),
) (results []*goose.MigrationResult, err error) {
	for range 10 + steps {
		err = patiently(ctx, func() error {
			part, err := take()
			var failed *goose.PartialError
			if errors.As(err, &failed) {
				part = failed.Applied
			}
			results = append(results, part...)
			return err
		})
		if !isDeadlock(err) && !errors.Is(err, errTaken) {
			break
		}
	}
	return results, err
}

const (
	lockTries = 5                // tries of a step, each of which waits for 5 s
	lockPause = time.Second      // between tries, so that transactions that wait behind it can proceed
	lockWork  = 15 * time.Second // a step that took longer built indexes while others waited, and is not retried
)

// patiently calls do again if it gave up waiting for a lock that another transaction holds.
func patiently(ctx context.Context, do func() error) error {
	for tries := 1; ; tries++ {
		begun := time.Now()
		err := do()
		switch {
		case !isHeld(err):
			return err
		case tries == lockTries || time.Since(begun) > lockWork:
			return fmt.Errorf("others hold a lock that it needs (%d tries): "+
				"end the transactions that stay open (see pg_stat_activity), then repeat it: %w", tries, err)
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return err
		}
	}
}

// errTaken says that another process has taken a step in the meantime.
var errTaken = errors.New("another process has taken this step")

// lock makes all other processes that migrate wait until the transaction has ended. It is not a
// lock of the session, which would stay behind a pooler.
func (s *Store) lock(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "select pg_catalog.pg_advisory_xact_lock($1)", hashOf("migrate "+s.schema))
	return err
}

func (s *Store) createSchema(ctx context.Context, db *sql.DB) error {
	return s.inTurn(ctx, db, func(tx *sql.Tx) error {
		var key bool
		if err := tx.QueryRowContext(ctx, s.sql["is_key_word"], s.schema).Scan(&key); err != nil {
			return err
		}
		if key {
			return fmt.Errorf("schema name %q is a key word of SQL: choose another, such as %[1]s_tasks", s.schema)
		}
		_, err := tx.ExecContext(ctx, "create schema if not exists "+s.schema)
		return err
	})
}

// Migrations implements store.Migrator. The program's functions come last.
func (s *Store) Migrations(ctx context.Context) ([]store.Migration, error) {
	all, err := s.steps()
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	rows, _ := s.pool.Query(ctx, "select version_id, max(tstamp) from "+s.schema+
		".migration where is_applied group by version_id") // ForEachRow returns its error
	var version int64
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		if one := migrate.Find(all, version); one != nil {
			one.AppliedAt = at.UTC()
		}
		return nil
	})
	if unlessMissing(err) != nil {
		return nil, fmt.Errorf("migrations: %w", translate(err))
	}
	installed, err := s.installed(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return append(all, s.ownStep(all[len(all)-1].Version, installed)), nil
}

// steps reads the migrations and inserts the names of the schemas.
func (s *Store) steps() ([]store.Migration, error) {
	all, err := migrate.Read(migrations)
	for i := range all {
		all[i].SQL = s.inSchema(all[i].SQL)
	}
	return all, err
}

// provider creates goose's runner. The migrations are functions, because the names of the
// schemas are inserted first.
func (s *Store) provider(db *sql.DB, all []store.Migration) (*goose.Provider, error) {
	var list []*goose.Migration
	for _, m := range all {
		up, down, _ := strings.Cut(m.SQL, "-- down\n")
		list = append(list, goose.NewGoMigration(m.Version, &goose.GoFunc{RunTx: s.step(m.Version, false, up)},
			&goose.GoFunc{RunTx: s.step(m.Version, true, down)}))
	}
	versions, err := database.NewStore(database.DialectPostgres, s.schema+".migration")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, nil, goose.WithStore(versions), goose.WithGoMigrations(list...),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

// step returns a function that runs a script, unless another process has done so since
// the version was read. Unqualified names in the script are those of PostgreSQL, whatever
// the search_path of the session is.
func (s *Store) step(version int64, applied bool, text string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if err := s.lock(ctx, tx); err != nil {
			return err
		}
		var is bool
		err := tx.QueryRowContext(ctx, "select exists (select from "+s.schema+
			".migration where version_id = $1 and is_applied)", version).Scan(&is)
		if err != nil {
			return err
		}
		if is != applied {
			return errTaken
		}
		_, err = tx.ExecContext(ctx, "set local search_path = pg_catalog, pg_temp; "+text)
		return err
	}
}
