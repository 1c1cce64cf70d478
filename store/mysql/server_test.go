package mysql_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

func TestTheSchemaGoesUpAndDown(t *testing.T) {
	ctx := t.Context()
	s := open(t, mysqltest.Database(t))
	if _, err := s.Count(ctx); !errors.Is(err, store.ErrSchemaMissing) {
		t.Fatal(err)
	}
	if _, err := s.Check(ctx); !errors.Is(err, store.ErrSchemaMissing) {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for range 3 { // at once
		g.Go(func() {
			if _, err := s.Migrate(ctx, -1); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	steps, err := s.Migrations(ctx)
	if err != nil || len(steps) == 0 || slices.ContainsFunc(steps, func(m store.Migration) bool {
		return m.AppliedAt.IsZero() || m.SQL == ""
	}) {
		t.Fatal(steps, err)
	}
	if _, err := s.Count(ctx); err != nil {
		t.Fatal(err)
	}
	if down, err := s.Migrate(ctx, 0); err != nil || len(down) != len(steps) {
		t.Fatal(down, err)
	}
	if _, err := s.Count(ctx); !errors.Is(err, store.ErrSchemaMissing) {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from information_schema.tables where table_schema = database() "+
		"and table_name <> 'tusk_migration'"); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if n := number(t, s, "select count(*) from information_schema.routines where routine_schema = database()"); n != 0 {
		t.Errorf("%d procedures are left", n)
	}
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
}

func TestADumpWithoutProceduresIsMadeWhole(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s := open(t, dsn)
	for _, name := range []string{"tusk_claim", "tusk_finish", "tusk_grant", "tusk_watch"} {
		exec(t, s, "drop procedure "+s.Procedure(name))
	}
	if _, err := s.Count(t.Context()); !errors.Is(err, store.ErrSchemaOld) {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, "select count(*) from information_schema.routines where routine_schema = database()"); n != 5 {
		t.Errorf("%d procedures, want 5", n)
	}
}

func TestTablesThatAreNotOursAreLeftAlone(t *testing.T) {
	s := open(t, mysqltest.Database(t))
	exec(t, s, "create table tusk_task (id int)")
	if _, err := s.Migrate(t.Context(), -1); !errors.Is(err, store.ErrSchemaForeign) {
		t.Error(err)
	}
	if n := number(t, s, "select count(*) from information_schema.tables where table_schema = database()"); n != 1 {
		t.Errorf("%d tables", n)
	}
}

func TestATableWithoutTransactionsIsRefused(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	exec(t, open(t, dsn), "alter table tusk_record engine = MyISAM")
	if _, err := open(t, dsn).Count(t.Context()); !errors.Is(err, store.ErrUnsupported) ||
		!strings.Contains(err.Error(), "alter table tusk_record engine = InnoDB") {
		t.Error(err)
	}
}

func TestAServerWithoutInnoDBIsRefused(t *testing.T) {
	dsn := mysqltest.Start(t, "--skip-innodb", "--default-storage-engine=Aria").Database(t)
	_, err := mysql.Open(t.Context(), dsn)
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "InnoDB is switched off") {
		t.Error(err)
	}
	_, err = mysql.New(t.Context(), plain(t, dsn), mysql.Options{})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "InnoDB is switched off") {
		t.Errorf("the user's pool: %v", err)
	}
}

func TestAServerWithAnotherDefaultEngineIsTaken(t *testing.T) {
	dsn := mysqltest.Start(t, "--default-storage-engine=Aria").Database(t)
	migrate(t, dsn)
	if _, err := open(t, dsn).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatWeakensDurabilityIsSaid(t *testing.T) {
	server := mysqltest.Start(t, "--innodb-flush-log-at-trx-commit=2", "--log-bin=binlog", "--sync-binlog=0")
	dsn := server.Database(t)
	migrate(t, dsn)
	warnings, err := open(t, dsn).Check(t.Context())
	if err != nil || len(warnings) != 2 || !strings.HasPrefix(warnings[0], "innodb_flush_log_at_trx_commit is 2") ||
		!strings.HasPrefix(warnings[1], "sync_binlog is 0") {
		t.Error(warnings, err)
	}
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, dsn := range []string{
		"mysql://u:topsecret@h", "mysql://u:topsecret@h/", "mysql://u:topsecret@h/a/b", "postgres://u:topsecret@h/db",
		"mysql://u:topsecret@h/db?timeout=soon", "mysql://u:topsecret%zz@h/db", "mysql://u:topsecret@h:port/db",
	} {
		_, err := mysql.Open(t.Context(), dsn)
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}
