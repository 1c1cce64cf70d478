//go:build unix

package cli

import (
	"strings"
	"testing"

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
	sh.must("migrate", "up", "--ledgers", "4")
	sh.must("migrate", "up")
	sh.fails(exitUsage, "usage", []string{"there are 4 of them"}, "migrate", "up", "--ledgers", "8")

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
	r := sh.run("doctor")
	for _, finding := range []string{"the schema is the one that this program needs", "dead rows"} {
		if !strings.Contains(r.out, finding) {
			t.Errorf("it does not say %q: %s%s", finding, r.out, r.err)
		}
	}
}
