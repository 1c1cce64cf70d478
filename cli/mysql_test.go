//go:build unix

package cli

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// TestADayWithMySQL does what a newcomer would do. Each command runs in its own process.
func TestADayWithMySQL(t *testing.T) {
	sh := newShell(t)
	db := mysqltest.Database(t)
	p := sh.start("dev", "--addr", "127.0.0.1:0", "--db", db)
	url := p.await(`web UI +(http://\S+)/`)
	if !strings.Contains(p.log(), "innodb_flush_log_at_trx_commit is 2") {
		t.Errorf("it does not say that this server is not durable: %s", p.log())
	}
	if log := p.log(); strings.Contains(log, "***") && strings.Contains(log, "export TUSK_DATABASE_URL") {
		t.Errorf("it says to export a URL without its password: %s", log)
	}
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+db)
	id := sh.enqueue("echo", `{"hello":"world"}`)
	later := sh.enqueue("echo", `{}`, "--queue", "night", "--delay", "1h")
	eventually(t, func() bool { return sh.json("tasks", "show", id)[0]["state"] == "completed" }, p.log)
	for _, path := range []string{"/", "/tasks", "/tasks?state=completed", "/tasks/" + id, "/queues", "/workers",
		"/errors", "/schedules", "/readyz", "/api/v1/stats"} {
		response, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
	p.signal(os.Interrupt)
	if status := p.status(); status != exitOK {
		t.Errorf("dev: status %d\n%s", status, p.log())
	}
	sh.must("tasks", "retry", later)
	sh.must("work", "--queue", "night", "--until-empty")
	if got := sh.json("tasks", "show", later)[0]["state"]; got != "completed" {
		t.Error(got)
	}
}

func TestWhatMySQLRefusesIsSaidPlainly(t *testing.T) {
	sh := newShell(t)
	db := mysqltest.Database(t)
	at, _, _ := strings.Cut(strings.TrimPrefix(db[strings.LastIndex(db, "@")+1:], "@"), "/")
	sh.fails(exitUsage, "wrong_password", []string{"check the user"}, "tasks", "list", "--db",
		"mysql://nobody:topsecret@"+at+"/x")
	sh.fails(exitUnavailable, "unavailable", []string{"connection refused"}, "tasks", "list", "--db",
		"mysql://root@127.0.0.1:1/x")
	sh.fails(exitUsage, "database_missing", nil, "tasks", "list", "--db", db+"_nowhere")
	sh.fails(exitUsage, "invalid_dsn", []string{"names no database", "mysql://user@host/database"}, "tasks", "list",
		"--db", "mysql://root@"+at)
}
