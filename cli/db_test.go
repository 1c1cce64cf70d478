package cli

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestARestoredDatabaseIsRefusedUntilItIsRebased(t *testing.T) {
	sh := newShell(t)
	dsn := pgtest.DSN(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+dsn)
	sh.must("migrate", "up")
	sh.must("db", "check")
	sh.must("db", "rebase", "--yes") // there is nothing to do
	id := sh.enqueue("echo", `{}`)
	c, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	restore := func() {
		t.Helper()
		if _, err := c.Exec(context.Background(), "update tusk.server set system_identifier = 1"); err != nil {
			t.Fatal(err)
		}
	}
	owns := func() (owns bool) {
		t.Helper()
		err := c.QueryRow(context.Background(),
			"select exists (select from tusk.record where kind = 'archive' and name = 'owner')").Scan(&owns)
		if err != nil {
			t.Fatal(err)
		}
		return owns
	}
	_, err = c.Exec(context.Background(), `insert into tusk.record (kind, name, body) values ('archive', 'owner', '"x"')`)
	if err != nil {
		t.Fatal(err)
	}
	restore()
	sh.must("db", "rebase", "--yes", "--keep-archive")
	restore()
	for _, command := range [][]string{{"serve", "--addr", "127.0.0.1:0"}, {"work"},
		{"dev", "--addr", "127.0.0.1:0", "--db", dsn}, {"db", "check"}, {"enqueue", "echo", "{}"}} {
		sh.fails(exitUsage, "database_moved", []string{"tusk db rebase", "--dry-run"}, command...)
	}
	sh.fails(exitUsage, "confirmation_required", []string{"1 task", "--yes"}, "db", "rebase")
	if got := sh.json("db", "rebase", "--dry-run")[0]; got["tasks"] != 1.0 || got["dry_run"] != true {
		t.Errorf("%v", got)
	}
	sh.fails(exitUsage, "database_moved", nil, "db", "check")
	if !owns() {
		t.Error("a rebase with --keep-archive, or a dry run, takes the archive from the database")
	}
	if got := sh.json("db", "rebase", "--yes")[0]; got["tasks"] != 1.0 || got["dry_run"] != false {
		t.Errorf("%v", got)
	}
	if owns() {
		t.Error("a copy owns the archive of the original")
	}
	sh.fails(exitUsage, "confirmation_required", []string{"--yes"}, "db", "rebase", "--keep-archive")
	sh.must("db", "rebase", "--keep-archive", "--dry-run")
	if owns() {
		t.Error("a dry run gives the database the archive")
	}
	sh.must("db", "rebase", "--yes", "--keep-archive") // also if the first one was interrupted
	sh.must("db", "rebase", "--yes", "--keep-archive")
	if !owns() {
		t.Error("a repeated rebase with --keep-archive did not give the database the archive")
	}
	sh.must("db", "check")
	sh.must("work", "--until-empty")
	if got := sh.json("tasks", "show", id)[0]["state"]; got != "completed" {
		t.Error(got)
	}
}

func TestADatabaseThatBreaksAPromiseIsNamed(t *testing.T) {
	sh := newShell(t)
	dsn := pgtest.DSN(t, "synchronous_commit=off")
	sh.must("migrate", "up", "--db", dsn)
	if got := sh.json("db", "check", "--db", dsn); len(got) != 1 || got[0]["warning"] == "" {
		t.Errorf("%v", got)
	}
	dsn = pgtest.DSN(t, "default_transaction_isolation=serializable")
	sh.must("migrate", "up", "--db", dsn)
	sh.fails(exitError, "error", []string{"read committed"}, "db", "check", "--db", dsn)
	sh.must("migrate", "up")
	sh.fails(exitError, "unsupported", nil, "db", "rebase")
}
