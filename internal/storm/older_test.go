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

// TestAnOlderProgramGoesOnWhileTheSchemaIsBroughtUp starts processes of a program that
// does not know the last step of the schema and has functions of its own, on a schema
// without that step. The step is taken while they work; then they and processes of this
// program work side by side, and some are killed.
func TestAnOlderProgramGoesOnWhileTheSchemaIsBroughtUp(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program and takes a while")
	}
	steps, err := filepath.Glob(filepath.Join("..", "..", "store", "postgres", "migrations", "*.sql"))
	if err != nil || len(steps) < 2 {
		t.Fatal(steps, err)
	}
	older := buildOlder(t, slices.Max(steps))
	s := newStorm(t, "postgres")
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
	install := exec.Command(older, "migrate", "up", "--db", s.ground.dsn)
	install.Env = append(os.Environ(), playRole+"=tusk")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv(envOld, older) // every other worker
	for _, name := range []string{"worker", "worker", "producer"} {
		r := s.role(name)
		r.program = older
		s.fleet.start(r)
	}
	s.measure()
	if taken, err := engine.Migrate(t.Context(), -1); err != nil || len(taken) != 2 {
		t.Fatal(taken, err)
	}
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

// afterwards is what the engine's texts say since the newest step of the schema. Who adds a step
// that they make use of says here what they said before.
var afterwards = []struct{ file, now, before string }{
	{"functions/01_words.sql", "-- ", "-- An older program's. "}, // functions of another text have a version of their own
	{"functions/02_state.sql", ",\n  n.changed_at, n.changed\n", "\n"},
	{"functions/02_state.sql", ", n.changed_at, n.changed", ""},
	{"functions/05_enqueue.sql", `
  insert into tusk.note (id, changed_at, changed)
  select c.id, _at, c.how from unnest(_ids, _how) c(id, how) order by c.id
  on conflict (id) do update set changed_at = excluded.changed_at, changed = excluded.changed
`, "\n  select\n"},
	{"functions/12_restore.sql", "(id, progress, output, logs, changed_at, changed)", "(id, progress, output, logs)"},
	{"functions/12_restore.sql", "t.logs, t.changed_at, t.changed\n", "t.logs\n"},
	{"functions/12_restore.sql", " or t.changed_at is not null", ""},
	{"functions/12_restore.sql", ",\n      changed_at = excluded.changed_at, changed = excluded.changed", ""},
	{"sql/read.sql", "n.changed_at, n.changed", "null, null"},
}

// buildOlder builds this test binary as if a step of the schema had not been written yet.
func buildOlder(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, a := range afterwards {
		name := filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.FromSlash(a.file))
		if texts[name] == "" {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
		if !strings.Contains(texts[name], a.now) {
			t.Fatalf("%s does not say %q", a.file, a.now)
		}
		texts[name] = strings.Replace(texts[name], a.now, a.before, 1)
	}
	replace := map[string]string{path: ""}
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
	if text, err := os.ReadFile(program); err != nil || bytes.Contains(text, []byte(filepath.Base(file))) {
		t.Fatalf("the program knows %s: %v", filepath.Base(file), err)
	}
	return program
}
