package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(playTusk) != "" {
		app := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
		app.patience, _ = time.ParseDuration(os.Getenv(playPatience)) // 0 if not set
		os.Exit(app.main(os.Args[1:]))
	}
	if target := os.Getenv(playHostile); target != "" {
		hostileMain(target)
	}
	pgtest.Main(mysqltest.Around{Tests: leakless{m}})
}

// leakless runs tests that must not leave goroutines behind, except one that waits for a server to end.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	code := l.m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction(
		"github.com/tuskqueue/tusk/store/postgres/pgtest.(*Server).await.func1")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// shell runs commands in its own folder.
type shell struct {
	t     *testing.T
	stdin string
	env   []string
	setup func(*App)
}

// result is the result of a command.
type result struct {
	status   int
	out, err string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	t.Chdir(t.TempDir())
	return &shell{t: t, env: []string{"HOME=/nowhere"}}
}

// besideShell returns a shell on a database for a test that runs beside others: all have the working directory of the
// process.
func besideShell(t *testing.T, dsn string) *shell {
	t.Helper()
	t.Parallel()
	return &shell{t: t, env: []string{"HOME=/nowhere", "TUSK_DATABASE_URL=" + dsn}}
}

// filledShell returns a shell with a database.
func filledShell(t *testing.T) *shell {
	sh := newShell(t)
	sh.must("migrate", "up")
	return sh
}

func (sh *shell) run(args ...string) result {
	sh.t.Helper()
	var out, errOut bytes.Buffer
	app := newApp(strings.NewReader(sh.stdin), &out, &errOut, sh.env)
	if sh.setup != nil {
		sh.setup(app)
	}
	status := app.main(args)
	return result{status, out.String(), errOut.String()}
}

// must runs a command that has to succeed, and returns its output.
func (sh *shell) must(args ...string) string {
	sh.t.Helper()
	r := sh.run(args...)
	if r.status != exitOK {
		sh.t.Fatalf("tusk %s: status %d\n%s%s", strings.Join(args, " "), r.status, r.out, r.err)
	}
	return r.out
}

// json runs a command with --json and returns its objects.
func (sh *shell) json(args ...string) []map[string]any {
	sh.t.Helper()
	var objects []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(sh.must(append(args, "--json")...)), "\n") {
		if line == "" {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			sh.t.Fatalf("tusk %s --json: %v in %q", strings.Join(args, " "), err, line)
		}
		objects = append(objects, object)
	}
	return objects
}

// fails runs a command that has to fail with a status and a code, and whose line on stderr contains all the parts.
func (sh *shell) fails(status int, code string, parts []string, args ...string) {
	sh.t.Helper()
	r := sh.run(args...)
	command := "tusk " + strings.Join(args, " ")
	if len(command) > 200 {
		command = command[:200] + "…"
	}
	if r.status != status {
		sh.t.Errorf("%s: status %d, want %d\n%s", command, r.status, status, r.err)
	}
	last := r.err[strings.LastIndex(strings.TrimSuffix(r.err, "\n"), "\n")+1:]
	if !strings.HasPrefix(last, "error["+code+"]: ") {
		sh.t.Errorf("%s: %q, want error[%s]", command, last, code)
	}
	for _, part := range parts {
		if !strings.Contains(r.err, part) {
			sh.t.Errorf("%s: %q, want %q in it", command, r.err, part)
		}
	}
}

func (sh *shell) write(name, text string, mode os.FileMode) {
	sh.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		sh.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		sh.t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		sh.t.Fatal(err)
	}
}
