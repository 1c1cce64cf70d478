package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDemoAccountsForEveryTask(t *testing.T) {
	sh := newShell(t)
	sh.env = append(sh.env, playTusk+"=1")
	t.Setenv("TMPDIR", t.TempDir())
	for n := range 30 {
		sh.write(filepath.Join("files", fmt.Sprint(n%3), fmt.Sprint(n)), strings.Repeat("text", n), 0o644)
	}
	sh.write("files/.git/HEAD", "left out", 0o644)
	r := sh.run("demo", "files", "--json")
	if r.status != exitOK {
		t.Fatalf("status %d\n%s%s", r.status, r.out, r.err)
	}
	t.Log(r.out)
	report := decodeOne(t, r.out)
	want := []string{"enqueued", "completed", "discarded", "retries", "rescued", "lost",
		"wait_p50_ms", "wait_p99_ms", "run_p50_ms", "run_p99_ms", "tasks_per_s"}
	if got := keysOf(t, r.out); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	switch {
	case report["lost"] != 0.0:
		t.Errorf("lost %v", report["lost"])
	case report["rescued"].(float64) < 1, report["retries"].(float64) < 10, report["discarded"].(float64) < 6:
		t.Errorf("too little happened: %s", r.out)
	case report["enqueued"] != report["completed"].(float64)+report["discarded"].(float64):
		t.Errorf("not all ended: %s", r.out)
	}
	if !strings.Contains(r.err, "with SIGKILL while it ran") {
		t.Errorf("the story: %s", r.err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoUsesTheDatabaseOfTheFlagAndLeavesIt(t *testing.T) {
	sh := newShell(t)
	sh.env = append(sh.env, playTusk+"=1")
	out := sh.must("demo", "--db", "sqlite:kept.db")
	for _, field := range []string{"enqueued", "rescued", "lost\t0", "tasks per second"} {
		if !strings.Contains(out, field) {
			t.Errorf("no %q in %s", field, out)
		}
	}
	if discarded := sh.json("tasks", "list", "--state", "discarded", "--db", "sqlite:kept.db"); len(discarded) < 6 {
		t.Errorf("%d discarded tasks in the database", len(discarded))
	}
}

func TestDemoRefusesWhatIsNoFolder(t *testing.T) {
	sh := newShell(t)
	sh.write("file", "text", 0o644)
	sh.fails(exitUsage, "usage", []string{"not a folder"}, "demo", "file")
	sh.fails(exitUsage, "usage", []string{"not a folder"}, "demo", "nowhere")
	sh.fails(exitUsage, "usage", []string{"unexpected argument"}, "demo", ".", "..")
}

func TestDemoIsBoundedInWhatItReads(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large"), demoLargest+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "endless")); err != nil {
		t.Fatal(err)
	}
	tasks, notes, err := demoFiles(dir)
	if err != nil || len(tasks) != demoFewest || len(notes) != 2 ||
		!strings.Contains(notes[0], "1 files are left out because they are large") {
		t.Fatalf("%d tasks, %q, %v", len(tasks), notes, err)
	}
	for _, task := range tasks {
		if task.Path != "" {
			t.Errorf("a task for %s", task.Path)
		}
	}
}
