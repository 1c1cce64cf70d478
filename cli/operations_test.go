package cli

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/tuskqueue/tusk"
)

// fill stores n tasks in a queue.
func (sh *shell) fill(queue string, n int) {
	sh.t.Helper()
	before := sh.stdin
	sh.stdin = strings.Repeat(`{"kind":"a","queue":"`+queue+`"}`+"\n", n)
	sh.must("enqueue", "--from", "-")
	sh.stdin = before
}

func (sh *shell) operation(id string) map[string]any {
	sh.t.Helper()
	return sh.json("operations", "show", id[:23])[0] // a part of the id is enough
}

// TestAnOperationOutlivesTheProcessesThatCarryIt kills two processes in the middle of an operation: the command that
// began it, and a worker that continued it.
func TestAnOperationOutlivesTheProcessesThatCarryIt(t *testing.T) {
	sh := newShell(t)
	sh.fill("many", 1000)
	sh.fill("few", 10)
	latest := map[string]any{}
	seen := func(n float64) {
		t.Helper()
		eventually(t, func() bool {
			if all := sh.json("operations", "list"); len(all) > 0 {
				latest = all[0]
			}
			return len(latest) > 0 && latest["seen"].(float64) >= n
		}, func() string { return "no progress: " + sh.must("operations", "list") })
	}
	worker := []string{"work", "--lease", "3s", "--queue", "other"}
	for i, command := range [][]string{{"tasks", "cancel", "--queue", "many", "--yes", "--per-second", "200"}, worker} {
		p := sh.start(command...)
		seen(float64(200 + 300*i))
		p.signal(syscall.SIGKILL)
		p.status()
		if latest["state"] != "running" {
			t.Fatalf("it is over before the kill: %v", latest)
		}
	}
	p := sh.start(worker...)
	seen(1000)
	eventually(t, func() bool { seen(1000); return latest["state"] == "done" },
		func() string { return "not done: " + sh.must("operations", "list") })
	p.signal(syscall.SIGTERM)
	p.status()
	if n := len(sh.ids("--queue", "many", "--state", "cancelled", "--all")); n != 1000 {
		t.Errorf("%d tasks are cancelled", n)
	}
	if n := len(sh.ids("--queue", "few", "--state", "available")); n != 10 {
		t.Errorf("%d tasks of the other queue are left", n)
	}
	// A page that was in progress at a kill is read again, and changes nothing more.
	if latest["seen"].(float64) > 1400 || latest["changed"].(float64)+
		latest["refused"].(float64) != latest["seen"].(float64) {
		t.Errorf("%v", latest)
	}
}

func TestAnOperationIsLeftToOthersOrStopped(t *testing.T) {
	sh := newShell(t)
	sh.fill("many", 300)
	r := sh.run("tasks", "delete", "--queue", "many", "--yes", "--detach", "-q")
	if id := strings.TrimSpace(r.out); r.status != exitOK || sh.operation(id)["state"] != "running" {
		t.Fatalf("%+v", r)
	}
	id := sh.json("operations", "list")[0]["id"].(string)
	if got := sh.json("operations", "carry", id)[0]; got["state"] != "done" || got["changed"] != 300.0 ||
		got["expected"] != 300.0 {
		t.Errorf("%v", got)
	}
	sh.fill("many", 300)
	id = sh.json("tasks", "delete", "--queue", "many", "--yes", "--detach")[0]["id"].(string)
	if got := sh.json("operations", "cancel", id)[0]; got["state"] != "stopping" {
		t.Errorf("%v", got)
	}
	if got := sh.json("operations", "carry", id)[0]; got["state"] != "cancelled" || got["seen"] != 0.0 {
		t.Errorf("%v", got)
	}
	sh.fails(exitNotFound, "not_found", nil, "operations", "show", noSuchID)
	sh.fails(exitUsage, "usage", []string{"not both"}, "tasks", "cancel", id, "--detach")
}

func TestAnInterruptStopsAnOperation(t *testing.T) {
	sh := newShell(t)
	sh.fill("many", 500)
	p := sh.start("tasks", "cancel", "--queue", "many", "--yes", "--per-second", "50")
	eventually(t, func() bool {
		all := sh.json("operations", "list")
		return len(all) > 0 && all[0]["seen"].(float64) >= 50
	}, func() string { return "no progress" })
	p.signal(syscall.SIGINT)
	if got := p.status(); got != exitInterrupted {
		t.Errorf("status %d: %s", got, p.log())
	}
	got := sh.json("operations", "list")[0]
	if got["state"] != "cancelled" || got["changed"].(float64) >= 500 {
		t.Errorf("%v", got)
	}
	if n := len(sh.ids("--state", "cancelled", "--all")); float64(n) != got["changed"].(float64) {
		t.Errorf("%d tasks are cancelled: %v", n, got)
	}
}

// Dead letters are discarded tasks. After the fix they run again.
func TestDeadLettersAreDriven(t *testing.T) {
	sh := newShell(t)
	for range 3 {
		sh.enqueue("mail", "--queue", "mail", "--max-attempts", "1")
	}
	sh.enqueue("bill", "--queue", "bills", "--max-attempts", "1")
	broken := true
	handler := func(*tusk.Task[map[string]any]) error {
		if broken {
			return errors.New("no route")
		}
		return nil
	}
	handlers := map[string]func(*tusk.Task[map[string]any]) error{"mail": handler, "bill": handler}
	sh.work(handlers, "mail", "bills")
	if n := len(sh.ids("--state", "discarded")); n != 4 {
		t.Fatalf("%d dead letters", n)
	}
	if got := sh.json("tasks", "retry", "--state", "discarded", "--queue", "mail",
		"--dry-run")[0]; got["matched"] != 3.0 || got["changed"] != 0.0 {
		t.Errorf("%v", got)
	}
	broken = false
	if got := sh.json("tasks", "retry", "--state", "discarded", "--queue", "mail")[0]; got["changed"] != 3.0 {
		t.Errorf("%v", got)
	}
	sh.work(handlers, "mail", "bills")
	if done, dead := len(sh.ids("--state", "completed")), len(sh.ids("--state", "discarded")); done != 3 || dead != 1 {
		t.Errorf("%d completed, %d discarded", done, dead)
	}
}
