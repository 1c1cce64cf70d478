package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

var update = flag.Bool("update", false, "write testdata anew")

func TestATerminalGetsATableAndAPipeGetsLines(t *testing.T) {
	sh := newShell(t)
	id := sh.enqueue("a", "--queue", "mail", "--delay", "90m")
	if got := sh.must("tasks", "list"); strings.Count(got, "\n") != 1 ||
		!strings.HasPrefix(got, id+"\tscheduled\tmail\ta\t0\t0\t20") {
		t.Errorf("a pipe gets %q", got)
	}
	sh.setup = func(app *App) { app.terminal = true }
	got := sh.must("tasks", "list")
	if !strings.HasPrefix(got, "\x1b[1mID ") || !strings.Contains(got, "in 1h") || strings.Contains(got, "\t") {
		t.Errorf("a terminal gets %q", got)
	}
	for _, plain := range []struct{ env, arg string }{{"NO_COLOR=1", "-q=false"}, {"TERM=dumb", "-q=false"},
		{"X=", "--no-color"}} {
		sh.env = []string{plain.env}
		if got := sh.must("tasks", "list", plain.arg); !strings.HasPrefix(got, "ID ") {
			t.Errorf("%v: %q", plain, got)
		}
	}
	if got := sh.must("tasks", "list", "-q"); got != id+"\n" {
		t.Errorf("quiet: %q", got)
	}
}

func TestATableFitsTheTerminalAndShowsStatesInColour(t *testing.T) {
	sh := newShell(t)
	id := sh.enqueue("a-kind-with-a-rather-long-name-that-nobody-reads", "--queue", "mail", "--key",
		strings.Repeat("key", 30))
	sh.setup = func(app *App) { app.terminal = true }
	sh.env = []string{"COLUMNS=80"}
	got := sh.must("tasks", "list")
	for _, line := range strings.Split(strings.TrimSpace(got), "\n") {
		if n := utf8.RuneCountInString(ansi.ReplaceAllString(line, "")); n > 80 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	if !strings.Contains(got, "\n"+id[24:]) || !strings.Contains(got, "\x1b[34mavailable\x1b[0m") ||
		!strings.Contains(got, "…") || strings.Contains(got, "REASON") {
		t.Errorf("%q", got)
	}
	sh.env = []string{"COLUMNS=400"}
	if got := sh.must("tasks", "list"); !strings.Contains(got, id) || strings.Contains(got, "…") {
		t.Errorf("a wide terminal gets %q", got)
	}
	sh.setup = nil
	sh.env = []string{"COLUMNS=20"}
	if got := sh.must("tasks", "list"); !strings.Contains(got, id+"\tavailable\t") || strings.Contains(got, "…") {
		t.Errorf("a pipe gets %q", got)
	}
}

var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestTasksAreFoundByTheirArgs(t *testing.T) {
	sh := newShell(t)
	want := sh.enqueue("charge", `{"order":{"id":17},"to":"ada"}`)
	sh.enqueue("charge", `{"order":{"id":18},"to":"alan"}`)
	for _, text := range []string{"order.id=17", "ADA"} {
		if got := strings.TrimSpace(sh.must("tasks", "list", "--args", text, "--since", "1h", "-q")); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if rows := sh.json("tasks", "list", "--args", "nobody", "--since", "1h"); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
	sh.fails(exitUsage, "usage", []string{"time window"}, "tasks", "list", "--args", "ada")
}

func TestEveryListPrintsJSON(t *testing.T) {
	sh := newShell(t)
	id := sh.enqueue("a")
	sh.must("schedules", "add", "n", "@hourly", "k")
	for _, args := range [][]string{
		{"tasks", "list"}, {"tasks", "show", id}, {"queues", "list"}, {"workers", "list"}, {"schedules", "list"},
		{"schedules", "next", "n"},
		{"schedules", "run", "n"}, {"errors"}, {"errors", "list"}, {"stats"}, {"migrate", "status"}, {"version"},
		{"config", "show"}, {"config", "check"},
		{"queues", "pause", "x", "--create"}, {"enqueue", "b"}, {"tasks", "cancel", "--all", "--yes"},
		{"tasks", "delete", id, "--yes"},
	} {
		sh.json(args...)
		if r := sh.run(append(args, "--json")...); r.err != "" && r.status == exitOK {
			t.Errorf("%q says %q besides", args, r.err)
		}
	}
}

func TestKnownErrorsHaveAStatusACodeAndAHint(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{tusk.ErrNotFound, 3, "not_found"}, {tusk.ErrRefused, 4, "refused"}, {store.ErrConflict, 4, "conflict"},
		{store.ErrUnavailable, 5, "unavailable"}, {store.ErrReadOnly, 5, "read_only"}, {store.ErrFull, 5, "storage_full"},
		{store.ErrSchemaMissing, 2, "schema_missing"}, {store.ErrSchemaOld, 2, "schema_old"},
		{store.ErrSchemaNew, 2, "schema_new"},
		{store.ErrSchemaForeign, 2, "schema_foreign"}, {store.ErrUnsupported, 1, "unsupported"},
		{store.ErrNotCommitted, 1, "not_stored"},
		{context.DeadlineExceeded, 5, "timeout"}, {errors.New("else"), 1, "error"}, {tusk.ErrInvalid, 2, "invalid"},
		{errors.New("FATAL: password authentication failed (SQLSTATE 28P01)"), 2, "wrong_password"},
		{fmt.Errorf("%w: tls error: server refused TLS connection\n\th:1 (h): server error: FATAL: %s", store.ErrUnavailable,
			"too many connections (SQLSTATE 53300)"), 5, "unavailable"},
		{fmt.Errorf("%w: h:1 (h): tls error: server refused TLS connection", store.ErrUnavailable), 2, "no_tls"},
		{errors.New(`FATAL: unrecognized configuration parameter "x" (SQLSTATE 42704)`), 2, "invalid_dsn"},
		{errors.New("cannot parse `postgres://h/d?pool_max_conns=0`: pool_max_conns too small"), 2, "invalid_dsn"},
		{errors.New(`ERROR: prepared statement "s" already exists (SQLSTATE 42P05)`), 2, "invalid_dsn"},
		{errors.New("Error 1193 (HY000): Unknown system variable 'x'"), 2, "invalid_dsn"},
		{errors.Join(store.ErrNotCommitted, store.ErrUnavailable), 5, "unavailable"},
		{errOutputClosed, 0, ""}, {errors.Join(errOutputClosed, store.ErrFull), 5, "storage_full"},
		{errors.Join(nil, errOutputClosed), 0, ""}, {syscall.EPIPE, 1, "error"},
		{fmt.Errorf("%w: write tcp: %w", store.ErrUnavailable, syscall.EPIPE), 5, "unavailable"},
	} {
		var out bytes.Buffer
		app := newApp(strings.NewReader(""), io.Discard, &out, nil)
		app.ran = true
		if status := app.exit(fmt.Errorf("enqueue: %w", c.err)); status != c.status || c.code != "" &&
			!strings.HasPrefix(out.String(), "error["+c.code+"]: enqueue: ") {
			t.Errorf("%v: status %d, %s", c.err, status, out.String())
		}
	}
}

// unreadPipe is a stdout that nobody reads.
type unreadPipe struct{}

func (unreadPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestAClosedStdoutHidesNoError(t *testing.T) {
	sh := filledShell(t)
	missing := tusk.NewID().String()
	sh.setup = func(app *App) { app.Out = output{unreadPipe{}} }
	sh.stdin = "not JSON\n"
	for _, c := range []struct {
		status int
		code   string
		args   []string
	}{
		{exitUsage, "invalid_lines", []string{"enqueue", "--from", "-"}},
		{exitNotFound, "not_found", []string{"tasks", "cancel", missing}},
		{exitOK, "", []string{"tasks", "list"}},
	} {
		r := sh.run(c.args...)
		if r.status != c.status || c.code != "" && !strings.Contains(r.err, "error["+c.code+"]") {
			t.Errorf("%q: status %d, %s", c.args, r.status, r.err)
		}
	}
}

func TestAPoolersErrorNamesTheParameterThatHelps(t *testing.T) {
	var out bytes.Buffer
	app := newApp(strings.NewReader(""), io.Discard, &out, nil)
	app.ran = true
	app.exit(errors.New(`ERROR: prepared statement "s" does not exist (SQLSTATE 26000)`))
	if !strings.Contains(out.String(), "add default_query_exec_mode=cache_describe to the database URL") {
		t.Error(out.String())
	}
}

func TestHelpIsAsRecorded(t *testing.T) {
	var got strings.Builder
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasSubCommands() {
			c.SetOut(&got)
			fmt.Fprintf(&got, "$ %s --help\n", c.CommandPath())
			_ = c.Help()
			fmt.Fprintln(&got)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	app := newApp(strings.NewReader(""), io.Discard, io.Discard, nil)
	for _, c := range newRoot(app).Commands() {
		switch c.Name() {
		case "enqueue", "tasks", "errors", "schedules", "queues", "workers", "stats", "top", "migrate", "config", "version":
			walk(c)
		}
	}
	path := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the help has changed: look at it, then go test ./cli -run Help -update\n%s", got.String())
	}
}

// packageDir is the working directory at the start, which some tests change.
var packageDir, _ = os.Getwd()

// binary builds the command, for tests that need a separate process.
func binary(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// built is the path of the program that is built for all tests. Its folder is removed after them.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tusk-built-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "tusk")
	build := exec.Command("go", "build", "-o", path, "github.com/tuskqueue/tusk/cmd/tusk")
	build.Dir = packageDir
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build and make check, which leave most of it in the cache
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

var builtIn string

func TestTheProcessBehavesInAShell(t *testing.T) {
	tusk := binary(t)
	t.Chdir(t.TempDir())
	script := func(text string) (string, string) {
		t.Helper()
		var errOut bytes.Buffer
		c := exec.Command("sh", "-c", text)
		c.Env = append(os.Environ(), "tusk="+tusk, "HOME=/nowhere")
		c.Stderr = &errOut
		out, err := c.Output()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), errOut.String()
	}
	t.Run("a closed pipe is no error", func(t *testing.T) {
		_, err := script(
			`yes '{"kind":"a"}' | head -3000 | "$tusk" enqueue --from - -q; "$tusk" tasks list --all --json | head -1`)
		if err != "" {
			t.Error(err)
		}
	})
	t.Run("closed stdin is an empty one", func(t *testing.T) {
		out, err := script(`"$tusk" enqueue a - <&-; echo $?`)
		if out != "2\n" || !strings.HasPrefix(err, "error[") {
			t.Errorf("%s%s", out, err)
		}
	})
	t.Run("an interrupt ends a command that waits for input", func(t *testing.T) {
		c := exec.Command(tusk, "enqueue", "--from", "-")
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		var errOut bytes.Buffer
		c.Stderr = &errOut
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// More than a pipe holds: after this is written, the process has begun to read.
		if _, err := fmt.Fprintf(in, `{"kind":"a","args":%q}`+"\n", strings.Repeat("x", 100_000)); err != nil {
			t.Fatal(err)
		}
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		if c.ProcessState.ExitCode() != exitInterrupted ||
			!strings.Contains(errOut.String(), "error[interrupted]: stored 0 tasks; nothing from line 1 on") {
			t.Errorf("status %d, %s", c.ProcessState.ExitCode(), errOut.String())
		}
	})
}

func TestAServersSchemaIsCreatedOnlyWhenAsked(t *testing.T) {
	t.Run("postgres", func(t *testing.T) { schemaOnlyWhenAsked(t, pgtest.DSN(t)) })
	t.Run("mysql", func(t *testing.T) { schemaOnlyWhenAsked(t, mysqltest.Database(t)) })
}

func schemaOnlyWhenAsked(t *testing.T, db string) {
	sh := newShell(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+db)
	sh.fails(exitUsage, "schema_missing", []string{"tusk migrate up", "--auto-migrate"}, "enqueue", "a")
	for _, args := range [][]string{{"migrate", "status"}, {"migrate", "up", "--dry-run"}} {
		if steps := sh.json(args...); len(steps) < 2 || steps[0]["applied_at"] != nil {
			t.Errorf("%v: %v", args, steps)
		}
	}
	sh.must("migrate", "up")
	id := sh.enqueue("a", `{"x":1}`)
	if got := sh.json("tasks", "show", id)[0]; got["state"] != "available" {
		t.Errorf("%v", got)
	}
	sh.must("tasks", "cancel", id)
	sh.must("migrate", "down", "--to", "0", "--yes")
	sh.must("tasks", "list", "--auto-migrate")
	name := db[strings.LastIndex(db, "/")+1:]
	sh.fails(exitUsage, "database_missing", nil, "tasks", "list", "--db", strings.Replace(db, name, "nowhere_"+name, 1))
}

func TestAProgressBarIsDrawnOnATerminalThatHasWaited(t *testing.T) {
	var out bytes.Buffer
	app := newApp(strings.NewReader(""), io.Discard, &out, nil)
	draw := func() string {
		out.Reset()
		p := newProgress(app, 100)
		p.add(25, 10)
		quick := out.String()
		p.started = p.started.Add(-2 * patience)
		p.add(25, 20)
		p.end()
		return quick + out.String()
	}
	if got := draw(); got != "" {
		t.Errorf("a pipe gets %q", got)
	}
	app.watched = true
	if got := draw(); !strings.Contains(got, "[###############...............]  50%  20 tasks") ||
		!strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("a terminal gets %q", got)
	}
}

func TestTheManualHasEveryCommandAndEveryCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	app := newApp(strings.NewReader(""), io.Discard, io.Discard, nil)
	for _, c := range newRoot(app).Commands() {
		if c.Hidden {
			continue
		}
		heading := "\n### " + c.Name() + "\n"
		switch c.Name() {
		case "help":
			continue
		case "version", "completion":
			heading = "\n### version, completion\n"
		}
		if !strings.Contains(manual, heading) {
			t.Errorf("docs/cli.md has no section %s", c.Name())
		}
		for _, sub := range c.Commands() {
			if !strings.Contains(manual, sub.Name()) {
				t.Errorf("docs/cli.md does not say %s", sub.CommandPath())
			}
		}
	}
	for _, k := range known {
		if !strings.Contains(manual, "`"+k.code+"`") {
			t.Errorf("docs/cli.md has no code %s", k.code)
		}
	}
	for _, s := range said {
		if !strings.Contains(manual, "`"+s.code+"`") {
			t.Errorf("docs/cli.md has no code %s", s.code)
		}
	}
}
