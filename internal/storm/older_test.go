//go:build unix

package storm

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// older is the program of the previous release, as changes to an engine's texts.
type older struct {
	ground string
	step   bool // it does not know the latest migration
	before []change
}

var olders = []older{{"postgres", true, afterwards}, {"mysql", false, []change{
	// procedures with another text have their own version
	{"procedures/claim.sql", "    -- Leases up to", "    -- An older program's. Leases up to"},
}}}

// TestAnOlderProgramGoesOnWhileTheSchemaIsBroughtUp starts processes of a program that has its own functions or
// procedures. If that program does not know the latest migration, the schema lacks it at first; it is applied while
// they work. Then they and processes of this program work side by side, and some are killed.
func TestAnOlderProgramGoesOnWhileTheSchemaIsBroughtUp(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program and takes a while")
	}
	for _, o := range olders {
		t.Run(o.ground, o.goesOn)
	}
}

func (o older) goesOn(t *testing.T) {
	program := o.build(t)
	s := newStorm(t, o.ground)
	s.settings()
	engine, ok := store.As[store.Migrator](s.client.Store())
	if !ok {
		t.Fatal("the engine has no schema")
	}
	all, err := engine.Migrations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := all[len(all)-3].Version // the last one is the functions
	if taken, err := engine.Migrate(t.Context(), before); err != nil || len(taken) != 2 {
		t.Fatal(taken, err)
	}
	install := exec.Command(program, "migrate", "up", "--db", s.ground.dsn)
	install.Env = append(os.Environ(), playRole+"=tusk")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv(envOld, program) // for every other worker
	for _, name := range []string{"worker", "worker", "producer"} {
		r := s.role(name)
		r.program = program
		s.fleet.start(r)
	}
	time.Sleep(2 * time.Second)
	taken, err := engine.Migrate(t.Context(), -1)
	if err != nil || o.step != (len(taken) == 2) || len(taken) == 0 {
		t.Fatal(taken, err)
	}
	s.measure()
	s.fleet.start(s.role("producer"))
	s.fleet.start(s.worker())
	s.fleet.start(s.worker())
	for range 8 {
		time.Sleep(time.Duration(300+s.random.IntN(700)) * time.Millisecond)
		if err := s.kill(s.any("worker")); err != nil {
			t.Fatal(err)
		}
	}
	s.drain()
	s.check()
	s.report()
}

// afterwards undoes what the latest migration changed in the engine's texts. Whoever adds a migration that the texts
// use adds their former wording here.
var afterwards = append(readWaiting("functions/02_state", "functions/03_lock", "functions/05_enqueue",
	"functions/10_need", "functions/11_edit", "functions/14_search", "sql/chores", "sql/edit", "sql/enqueue", "sql/read",
	"sql/rebase", "sql/search", "sql/turn"),
	change{"search.go", `{"unready",`, `{"waiting",`},
	change{"lines.go", `{"waiting", "line_1", "line_2"}`, `{"waiting"}`},
	change{"sql/turn.sql", "tusk.line_1", "tusk.waiting"},
	change{"sql/turn.sql", "tusk.line_2", "tusk.waiting"},
	change{"rows.sql", "tusk.unready", "tusk.waiting"},
	change{"rows.sql", "'tusk.line_1'::regclass::oid", "0::oid"},
	change{"rows.sql", "'tusk.line_2'::regclass::oid", "0::oid"},
	change{"rows.sql", "case when exists (select from tusk.program p where p.version < 13) then 0\n" +
		"  else coalesce(pg_catalog.pg_sequence_last_value('tusk.line_table'), 1)::int end", "0"},
	change{"sql/line.sql", "'tusk.line_1'::regclass::oid", "0::oid"},
	change{"sql/line.sql", "'tusk.line_2'::regclass::oid", "0::oid"})

// readWaiting undoes a change in SQL files: before the latest migration, all tasks that might not run yet were in one
// table.
func readWaiting(files ...string) (all []change) {
	for _, file := range files {
		all = append(all, change{file + ".sql", "tusk.unready", "tusk.waiting"})
	}
	return all
}

// build builds this test binary as that program.
func (o older) build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	engine, err := filepath.Abs(filepath.Join("..", "..", "store", o.ground))
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	step := ""
	if o.step {
		steps, err := filepath.Glob(filepath.Join(engine, "migrations", "*.sql"))
		if err != nil || len(steps) < 2 {
			t.Fatal(steps, err)
		}
		step = slices.Max(steps)
		replace[step] = ""
	}
	texts := map[string]string{}
	for _, a := range o.before {
		name := filepath.Join(engine, filepath.FromSlash(a.file))
		if texts[name] == "" {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
		if !strings.Contains(texts[name], a.old) {
			t.Fatalf("%s does not say %q", a.file, a.old)
		}
		texts[name] = strings.ReplaceAll(texts[name], a.old, a.new)
	}
	for name, text := range texts {
		replace[name] = filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "storm.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(program); err != nil || o.step && bytes.Contains(text, []byte(filepath.Base(step))) {
		t.Fatalf("the program knows %s: %v", filepath.Base(step), err)
	}
	return program
}
