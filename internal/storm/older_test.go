//go:build unix

package storm

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// buildOlder builds this test binary as if a step of the schema had not been written yet, and
// with functions of another text.
func buildOlder(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	functions := filepath.Join(filepath.Dir(filepath.Dir(path)), "functions", "01_words.sql")
	text, err := os.ReadFile(functions)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(dir, "functions.sql")
	if err := os.WriteFile(changed, append(text, "-- of an older program\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: "", functions: changed}})
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
