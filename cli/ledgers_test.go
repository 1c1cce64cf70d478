//go:build unix

package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestAQueueInManyLedgers(t *testing.T) {
	sh := newShell(t)
	db := "ledgers: " + pgtest.DSN(t) + " " + pgtest.DSN(t)
	if r := sh.run("migrate", "up", "--db", db); r.status == exitOK || !strings.Contains(r.err, "--ledgers 8") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	sh.fails(exitUsage, "usage", []string{"1 to 64"}, "migrate", "up", "--ledgers", "65", "--db", db)
	one := pgtest.DSN(t)
	sh.fails(exitUsage, "usage", []string{"ledgers: postgres://"}, "migrate", "up", "--ledgers", "4", "--db", one)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+db)
	sh.fails(exitUsage, "schema_missing", []string{"--ledgers 8"}, "migrate", "up", "--dry-run")
	r := sh.run("enqueue", "echo")
	if r.status != exitUsage || !strings.Contains(r.err, "--ledgers 8") || strings.Contains(r.err, "auto-migrate") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	steps := len(sh.json("migrate", "up", "--ledgers", "4", "--dry-run"))
	if done := len(sh.json("migrate", "up", "--ledgers", "4")); steps == 0 || steps != done {
		t.Errorf("a dry run lists %d steps, then %d are done", steps, done)
	}
	if more := len(sh.json("migrate", "up", "--ledgers", "5", "--dry-run")); more != steps {
		t.Errorf("a dry run for one more ledger lists %d steps", more)
	}
	sh.must("migrate", "up")
	sh.fails(exitUsage, "usage", []string{"there are 4 of them"}, "migrate", "up", "--ledgers", "2")

	var ids []string
	for range 6 {
		ids = append(ids, sh.enqueue("echo", `{"hello":"world"}`))
	}
	key := sh.enqueue("echo", `{}`, "--key", "one")
	if again := sh.enqueue("echo", `{}`, "--key", "one"); again != key {
		t.Errorf("a key has the tasks %s and %s", key, again)
	}
	if n := len(sh.json("tasks", "list")); n != 7 {
		t.Errorf("%d tasks are listed", n)
	}
	sh.must("work", "--until-empty")
	for _, id := range append(ids, key) {
		if got := sh.json("tasks", "show", id)[0]["state"]; got != "completed" {
			t.Errorf("task %s is %v", id, got)
		}
	}
	r = sh.run("doctor")
	for _, finding := range []string{"the schema is the one that this program needs", "dead row"} {
		if !strings.Contains(r.out, finding) {
			t.Errorf("it does not say %q: %s%s", finding, r.out, r.err)
		}
	}
}

// While a server is away, commands start that do not need all ledgers.
func TestAServerOfManyLedgersIsAway(t *testing.T) {
	lost, err := pgtest.Start()
	if err != nil {
		t.Skipf("no PostgreSQL server of the test's own: %v", err)
	}
	t.Cleanup(lost.Stop)
	sh := newShell(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL=ledgers: "+pgtest.DSN(t)+" "+lost.DSN)
	sh.must("migrate", "up", "--ledgers", "2")
	lost.Stop()
	for range 3 {
		id := sh.enqueue("echo", `{}`)
		if got := sh.json("tasks", "show", id)[0]["state"]; got != "available" {
			t.Errorf("task %s is %v", id, got)
		}
	}
	sh.fails(exitUnavailable, "unavailable", []string{"tusk_1_of_2", "on no server that answers"}, "queues", "list")
	sh.fails(exitUnavailable, "unavailable", []string{"tusk_1_of_2"}, "migrate", "up")
	if r := sh.run("doctor"); r.status != 2 || !strings.Contains(r.out, "tusk_1_of_2") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	id := sh.enqueue("echo", `{}`)
	sh.start("work")
	url := sh.start("serve", "--addr", "127.0.0.1:0").await(`url=(http://[^/]+)/`)
	eventually(t, func() bool { return sh.json("tasks", "show", id)[0]["state"] == "completed" },
		func() string { return "a worker that started meanwhile does not run the task" })
	if status, body := get(t, url+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
}

// A server is lost for good.
func TestLedgersAreGivenUp(t *testing.T) {
	lost, err := pgtest.Start()
	if err != nil {
		t.Skipf("no PostgreSQL server of the test's own: %v", err)
	}
	t.Cleanup(lost.Stop)
	sh := newShell(t)
	one := "ledgers: " + pgtest.DSN(t)
	sh.must("migrate", "up", "--ledgers", "2", "--db", one+" "+lost.DSN)
	lost.Stop()
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+one)
	dry := sh.json("ledgers", "give-up", "1", "--dry-run")
	if len(dry) != 1 || dry[0]["no"] != 1.0 || dry[0]["dry_run"] != true || dry[0]["missing"] != 0.0 {
		t.Errorf("a dry run: %v", dry)
	}
	sh.fails(exitUsage, "confirmation_required", []string{"give up ledger 1 and lose all tasks there"},
		"ledgers", "give-up", "1")
	sh.fails(exitError, "error", []string{"it is on"}, "ledgers", "give-up", "0", "--yes")
	sh.must("ledgers", "give-up", "1", "--yes")
	if rows := sh.json("ledgers", "list"); len(rows) != 2 || rows[1]["state"] != "open" {
		t.Errorf("%v", rows)
	}
	if got := sh.json("tasks", "show", sh.enqueue("echo", `{}`))[0]["state"]; got != "available" {
		t.Errorf("a task is %v", got)
	}
}

// A fence waits for a transaction. A terminal is shown what for.
func TestALongFenceShowsWhatItWaitsFor(t *testing.T) {
	sh := newShell(t)
	one := pgtest.DSN(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL=ledgers: "+one)
	sh.must("migrate", "up", "--ledgers", "2")
	c, err := pgx.Connect(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), "begin; lock table tusk_1_of_2.log in row exclusive mode"); err != nil {
		t.Fatal(err)
	}
	terminal := &process{t: t}
	app := newApp(strings.NewReader(""), io.Discard, terminal, sh.env)
	app.watched = true
	status := make(chan int, 1)
	go func() { status <- app.main([]string{"ledgers", "fence", "0", "1"}) }()
	terminal.await(`ledger 1: waiting for transactions to end  1s`)
	if _, err := c.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	if got := <-status; got != exitOK || !strings.HasSuffix(terminal.log(), "\r\x1b[K") {
		t.Errorf("status %d: %q", got, terminal.log())
	}
}

func TestLedgersAreFencedOpenedAndMoved(t *testing.T) {
	sh := newShell(t)
	one := pgtest.DSN(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+one)
	sh.must("migrate", "up")
	key := sh.enqueue("echo", `{}`, "--key", "one")
	sh.fails(exitUsage, "usage", []string{"ledgers: postgres://"}, "ledgers", "list")
	db := "ledgers: " + one + " " + pgtest.DSN(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+db)
	sh.must("migrate", "up", "--ledgers", "4")
	if again := sh.enqueue("echo", `{}`, "--key", "one"); again != key {
		t.Errorf("a key of the plain queue has the tasks %s and %s", key, again)
	}
	states := func() (all []string) {
		for _, row := range sh.json("ledgers", "list") {
			all = append(all, row["schema"].(string)+" "+row["state"].(string))
		}
		return all
	}
	want := "tusk open, tusk_1_of_4_keys_1 open, tusk_2_of_4_keys_1 open, tusk_3_of_4_keys_1 open"
	if got := strings.Join(states(), ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	sh.must("ledgers", "fence", "3", "3")
	if got := strings.Join(states(), ", "); !strings.Contains(got, "tusk_3_of_4_keys_1_fenced fenced") {
		t.Errorf("after a fence: %s", got)
	}
	sh.must("ledgers", "open", "3")
	home := sh.json("ledgers", "list")[0]["server"].(string)
	sh.fails(exitUsage, "confirmation_required", []string{"move ledger 3"}, "ledgers", "move", "3", "--to", home)
	if moved := sh.json("ledgers", "move", "3", "--to", home, "--yes")[0]; moved["stood_still_seconds"].(float64) > 600 {
		t.Errorf("%v: not in seconds", moved)
	}
	rows := sh.json("ledgers", "list")
	for _, row := range rows {
		if row["no"].(float64) == 3 && row["state"] == "open" && row["server"] != home {
			t.Errorf("it did not move: %v", row)
		}
	}
	if len(rows) != 5 {
		t.Errorf("%d rows, want one of the copy as well: %v", len(rows), rows)
	}
	sh.must("ledgers", "drop-copies", "--yes")
	if got := strings.Join(states(), ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := sh.must("__complete", "ledgers", "give-up", ""); !strings.HasPrefix(got, "0\n1\n2\n3\n:") {
		t.Errorf("completed %q", got)
	}
	sh.fails(exitUsage, "usage", []string{"which ledgers?"}, "ledgers", "fence")
	sh.fails(exitUsage, "usage", []string{"no number"}, "ledgers", "fence", "x")
	sh.must("work", "--until-empty")
	if got := sh.json("tasks", "show", key)[0]["state"]; got != "completed" {
		t.Errorf("task %s is %v", key, got)
	}
}
