package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// On each engine a server archives tasks, a command puts them back, and they run again.
func TestTasksAreRestoredOnEachEngine(t *testing.T) {
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			sh, place := besideShell(t, dsn(t)), "file://"+filepath.ToSlash(t.TempDir())
			sh.must("migrate", "up")
			enqueue := func(more ...string) string {
				return strings.TrimSpace(sh.must(append([]string{"enqueue", "echo", `{"n": 1}`, "--queue", "q", "--quiet"},
					more...)...))
			}
			ids := []string{enqueue("--key", "k"), enqueue("--tenant", "acme")}
			sh.must("tasks", "cancel", ids[0], ids[1])
			sh.must("archive", "set", "q")
			time.Sleep(1100 * time.Millisecond) // so that their retention is over when the server starts
			server := sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-cancelled", "1s")
			eventually(t, func() bool { return sh.json("archive", "status")[0]["tasks"] == 2.0 }, server.log)
			sh.must("archive", "set", "q", "--off") // so that restored tasks stay
			sh.must("queues", "keep", "q", "--cancelled", "forever")

			back := sh.json("archive", "restore", "--state", "cancelled", "--yes", "--archive", place)
			if back[0]["state"] != "done" || back[0]["restored"] != 2.0 || back[0]["skipped"] != 0.0 {
				t.Error(back)
			}
			if left := sh.json("archive", "search", "--all", "--archive", place); len(left) != 0 {
				t.Errorf("the archive still has %v", left)
			}
			sh.must("tasks", "retry", ids[0], ids[1])
			sh.must("work", "--until-empty", "--queue", "q")
			for _, id := range ids {
				if out := sh.must("tasks", "show", id); !strings.Contains(out, "completed") {
					t.Error(out)
				}
			}
		})
	}
}
