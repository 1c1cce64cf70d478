package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
)

// TestAnswersOfAThousandLargeTasksCostLittleMemory requests 1,000 tasks of 250 KB, in every possible way, from a
// server in its own process.
func TestAnswersOfAThousandLargeTasksCostLittleMemory(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("stores 250 MB, and needs /proc")
	}
	sh := newShell(t)
	bin := binary(t)
	for _, engine := range []string{"sqlite", "postgres", "mysql"} {
		t.Run(engine, func(t *testing.T) { sh.largeAnswers(t, bin, databases[engine](t)) })
	}
}

// largeAnswers tests the server on one database.
func (sh *shell) largeAnswers(t *testing.T, bin, dsn string) {
	const most = 64 << 20
	sh = &shell{t: t, env: slices.Clone(sh.env)}
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+dsn)
	sh.must("migrate", "up")
	client := clientOf(t, dsn)
	workflow := storeLarge(t, client)
	storeSchedules(t, client)
	admin := strings.TrimSpace(sh.must("tokens", "create", "a", "--role", "admin", "-q"))
	for _, request := range []struct{ method, path, body string }{
		{"GET", "/api/v1/tasks?limit=1000", ""},
		{"GET", "/api/v1/workflows", ""},
		{"GET", "/api/v1/workflows/" + workflow, ""},
		{"GET", "/workflows/" + workflow, ""},
		{"GET", "/tasks", ""},
		{"GET", "/api/v1/tasks/export", ""},
		{"POST", "/api/v1/lease", `{"queues":["default"],"max":1000}`},
		{"GET", "/api/v1/schedules", ""},
		{"GET", "/schedules", ""},
		{"GET", "/api/v1/schedules/s0", ""},
	} {
		more, before := sh.costOf(bin, admin, request.method, request.path, request.body)
		t.Logf("%s %s: %d MiB more than %d", request.method, request.path, more>>20, before>>20)
		if more > most {
			t.Errorf("%s %s: %d MiB more than %d", request.method, request.path, more>>20, before>>20)
		}
	}
}

// costOf returns how much memory a request takes at most, in addition to what the server had before.
func (sh *shell) costOf(bin, token, method, path, body string) (more, before int64) {
	sh.t.Helper()
	p := sh.serveBy(bin)
	defer func() {
		p.signal(os.Interrupt)
		p.status()
	}()
	url, pid := p.await(`health=(http\S+)/healthz`), p.cmd.Process.Pid
	send(url, token, "GET", "/api/v1/queues", "")
	before = memoryNow(sh.t, pid)
	if status, answer := send(url, token, method, path, body); status != 200 {
		sh.t.Errorf("%s %s: %d %.200s", method, path, status, answer)
	}
	return peakMemory(sh.t, pid) - before, before
}

// clientOf returns a client of a database.
func clientOf(t *testing.T, dsn string) *tusk.Client {
	t.Helper()
	where, err := parseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	s, closeStore, err := engines[where.engine](t.Context(), where.text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeStore() })
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// storeSchedules stores as many schedules with large args as are allowed. It tries to store 250 MB of them.
func storeSchedules(t *testing.T, client *tusk.Client) {
	t.Helper()
	args := largeArgs()
	for i := range 1000 {
		err := client.PutSchedule(t.Context(), tusk.Schedule{Name: fmt.Sprint("s", i), Spec: "@every 7d",
			Args: tusk.RawArgs{Name: "k", JSON: args}})
		if errors.Is(err, tusk.ErrInvalid) {
			t.Logf("there is room for %d schedules", i)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func largeArgs() []byte { return fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", 250_000)) }

// storeLarge stores a workflow of 1,000 tasks, 250 MB in total.
func storeLarge(t *testing.T, client *tusk.Client) string {
	t.Helper()
	w := tusk.NewWorkflow()
	args := largeArgs()
	for i := range 1000 {
		w.Task(fmt.Sprint("t", i), tusk.RawArgs{Name: "k", JSON: args}, nil)
	}
	run, err := client.EnqueueWorkflow(context.WithoutCancel(t.Context()), w)
	if err != nil {
		t.Fatal(err)
	}
	return run.ID.String()
}

// memoryNow returns the memory of a process, and resets its peak.
func memoryNow(t *testing.T, pid int) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600); err != nil {
		t.Fatal(err)
	}
	return peakMemory(t, pid)
}
