package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// olderEnv names a program of an older release, which takes the place of the present one in the test below. The present
// one is then the newer.
const olderEnv = "TUSK_TEST_OLDER"

// nextStep is a step of the schema that a later release may have.
var nextStep = map[string]string{
	"sqlite":   "-- +goose Up\ncreate table tusk_next (a integer);\n-- +goose Down\ndrop table tusk_next;\n",
	"postgres": "-- up\ncreate table tusk.next (a int);\n-- down\ndrop table tusk.next;\n",
	"mysql":    "-- +goose Up\ncreate table tusk_next (a int);\n-- +goose Down\ndrop table tusk_next;\n",
}

// routines are files whose text decides under which names the functions of a program are installed.
var routines = []string{"postgres/functions/00_rows.sql", "mysql/procedures/claim.sql"}

// nextRelease builds a program with one more step in each engine's schema, and with functions of its own.
var nextRelease = sync.OnceValues(func() (string, error) {
	if _, err := built(); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	change := func(path, text string) error {
		file := filepath.Join(builtIn, strings.ReplaceAll(path, "/", "_"))
		replace[filepath.Join(packageDir, "..", "store", path)] = file
		return os.WriteFile(file, []byte(text), 0o600)
	}
	for engine, step := range nextStep {
		steps, err := os.ReadDir(filepath.Join(packageDir, "..", "store", engine, "migrations"))
		if err != nil {
			return "", err
		}
		if err := change(fmt.Sprintf("%s/migrations/%05d_next.sql", engine, len(steps)+1), step); err != nil {
			return "", err
		}
	}
	for _, path := range routines {
		text, err := os.ReadFile(filepath.Join(packageDir, "..", "store", path))
		if err != nil {
			return "", err
		}
		if err := change(path, string(text)+"\n-- of the next release\n"); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list, path := filepath.Join(builtIn, "next.json"), filepath.Join(builtIn, "next")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-overlay", list, "-o", path, "github.com/tuskqueue/tusk/cmd/tusk")
	build.Dir = packageDir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// Programs of two releases work on one database while tasks are enqueued: the newer one migrates, its workers replace
// the old ones, and the old ones replace them again, before and after the schema is reverted. Each task runs once.
func TestProgramsAreReplacedAndBackWhileTasksAreEnqueued(t *testing.T) {
	old := binary(t)
	next, err := nextRelease()
	if err != nil {
		t.Fatal(err)
	}
	if older := os.Getenv(olderEnv); older != "" {
		old, next = older, old
	}
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   databases["sqlite"],
		"postgres": func(t *testing.T) string { return enginetest.PostgresDSN(t) },
		"mysql":    func(t *testing.T) string { return mysqltest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rolling{t: t, dsn: dsn(t)}
			r.tusk(old, "migrate", "up")
			version := r.version(old)
			r.tusk(old, "limits", "set", "limited", "--per-tenant", "2", "--create")
			r.tusk(old, "schedules", "add", "each-second", "@every 1s", "echo", "--queue", "plain", "--overlap", "allow")
			first, second := r.worker(old), r.worker(old)
			stop := r.produce(old)
			defer stop()
			r.awaitMore("the first programs")

			r.tusk(next, "migrate", "up")
			if v := r.version(next); v == version && os.Getenv(olderEnv) == "" {
				t.Fatalf("the schema still has version %d", v)
			}
			r.producers.Store(&[]string{old, next})
			third := r.worker(next)
			r.replace(first)
			r.awaitMore("both")
			fourth := r.worker(next)
			r.replace(second)
			r.producers.Store(&[]string{next})
			r.awaitMore("the next programs")

			r.producers.Store(&[]string{next, old})
			fifth := r.worker(old)
			r.replace(third)
			r.awaitMore("both, on the way back")
			sixth := r.worker(old)
			r.replace(fourth)
			r.producers.Store(&[]string{old})
			r.awaitMore("the old programs on the newer schema")
			r.tusk(next, "migrate", "down", "--yes", "--to", fmt.Sprint(version))
			r.awaitMore("the old programs on their own schema again")

			r.tusk(next, "migrate", "up")
			seventh := r.worker(next)
			r.replace(fifth)
			r.replace(sixth)
			stop()
			r.tusk(next, "schedules", "remove", "--yes", "each-second")
			r.check(next)
			r.replace(seventh)
		})
	}
}

// rolling is a database whose programs are replaced.
type rolling struct {
	t         *testing.T
	dsn       string
	producers atomic.Pointer[[]string]
	stored    atomic.Int64 // tasks of producers
}

func (r *rolling) command(bin string, args ...string) *exec.Cmd {
	c := exec.Command(bin, args...)
	c.Env = append(os.Environ(), "HOME=/nowhere", "TUSK_DATABASE_URL="+r.dsn)
	return c
}

// tusk runs a command that has to succeed and returns its output.
func (r *rolling) tusk(bin string, args ...string) string {
	r.t.Helper()
	out, err := r.call(bin, "", args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rolling) call(bin, in string, args ...string) (string, error) {
	c := r.command(bin, args...)
	c.Stdin = strings.NewReader(in)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(bin), strings.Join(args, " "), err, said.String())
	}
	return string(out), err
}

// version returns the version of the schema.
func (r *rolling) version(bin string) (newest int) {
	r.t.Helper()
	for line := range strings.Lines(r.tusk(bin, "migrate", "status", "--json")) {
		var step struct {
			Version int
			State   string
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			r.t.Fatal(err)
		}
		if step.State == "applied" {
			newest = max(newest, step.Version)
		}
	}
	return newest
}

func (r *rolling) worker(bin string) *process {
	r.t.Helper()
	p := &process{t: r.t, cmd: r.command(bin, "work", "--queue", "plain", "--queue", "limited", "--exec", "slow=sleep 0.2",
		"--concurrency", "8", "--poll", "200ms", "--log-level", "warn")}
	p.cmd.Stderr = p
	p.begin()
	return p
}

// replace ends a worker as a supervisor does. Nothing may have gone wrong in it.
func (r *rolling) replace(p *process) {
	r.t.Helper()
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != 0 || strings.Contains(p.log(), "ERROR") {
		r.t.Errorf("a worker ended with status %d: %s", status, p.log())
	}
}

// produce enqueues tasks by one program after the other until it is stopped.
func (r *rolling) produce(bins ...string) (stop func()) {
	r.producers.Store(&bins)
	ended, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			now := *r.producers.Load()
			if err := r.enqueue(now[i%len(now)], i); err != nil {
				r.t.Error(err)
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}

func (r *rolling) enqueue(bin string, round int) error {
	var lines strings.Builder
	add := func(queue, kind, more string) {
		fmt.Fprintf(&lines, `{"queue":%q,"kind":%q%s}`+"\n", queue, kind, more)
	}
	for i := range 10 {
		add("plain", "echo", "")
		add("plain", "echo", fmt.Sprintf(`,"key":"%d-%d"`, round, i))
		add("plain", "echo", `,"delay":"300ms"`)
		add("limited", "echo", fmt.Sprintf(`,"tenant":"tenant-%d"`, i%3))
	}
	add("plain", "slow", "")
	add("limited", "slow", `,"tenant":"tenant-0"`)
	out, err := r.call(bin, lines.String(), "enqueue", "--from", "-", "-q")
	if err != nil {
		return err
	}
	r.stored.Add(int64(strings.Count(out, "\n")))
	_, err = r.call(bin, `{"tasks":[{"name":"a","kind":"echo","queue":"plain","tenant":"tenant-1"},
		{"name":"b","kind":"echo","queue":"limited","tenant":"tenant-1","after":["a"]}]}`, "workflows", "enqueue", "-")
	r.stored.Add(2)
	return err
}

// task is what the test wants to know of one.
type task struct {
	ID      string
	Kind    string
	State   string
	Attempt int
	Error   string
}

func (r *rolling) tasks(bin string) (all []task) {
	r.t.Helper()
	out := json.NewDecoder(strings.NewReader(r.tusk(bin, "tasks", "list", "--all", "--json")))
	for out.More() {
		var one task
		if err := out.Decode(&one); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// awaitMore waits until tasks have been completed that were enqueued after its call.
func (r *rolling) awaitMore(who string) {
	r.t.Helper()
	bin := (*r.producers.Load())[0]
	count := func() (n int) {
		for _, one := range r.tasks(bin) {
			if one.State == "completed" {
				n++
			}
		}
		return n
	}
	want := int(r.stored.Load()) + 100
	eventually(r.t, func() bool { return count() >= want || r.t.Failed() },
		func() string { return fmt.Sprintf("%s: %d tasks completed, want %d", who, count(), want) })
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// check waits until all tasks have ended: each was completed by its first attempt.
func (r *rolling) check(bin string) {
	r.t.Helper()
	ended := func(one task) bool { return one.State == "completed" || one.State == "discarded" }
	var all []task
	eventually(r.t, func() bool {
		all = r.tasks(bin)
		return !slices.ContainsFunc(all, func(one task) bool { return !ended(one) })
	}, func() string { return fmt.Sprint("tasks have not ended: ", slices.DeleteFunc(all, ended)) })
	if stored := int(r.stored.Load()); len(all) < stored {
		r.t.Errorf("%d tasks of %d", len(all), stored)
	}
	for _, one := range all {
		if one.State != "completed" || one.Attempt != 1 {
			r.t.Errorf("task %+v", one)
		}
	}
}
