package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/archive/place/placetest"
)

// Tasks are archived in an S3 server, and put back from there by their ids and by a filter. The process that restores
// is killed while it does that, and then the object store. Each task is in the database or in the archive, exactly
// once, and tasks in the database run again.
func TestTasksAreRestoredFromS3(t *testing.T) {
	objects := placetest.Start(t, placetest.S3)
	sh, place := newShell(t), objects.URL("restored")
	sh.env = append(sh.env, playPatience+"=3s")
	sh.must("migrate", "up")
	const tasks = 3000 // restoring a third of them takes several transactions
	var lines strings.Builder
	for i := range tasks {
		fmt.Fprintf(&lines, `{"kind": "echo", "args": {"n": %d}, "queue": "bills", "tenant": %q}`+"\n", i,
			[]string{"acme", "bolt", "cure"}[i%3])
	}
	sh.stdin = lines.String()
	sh.must("enqueue", "--from", "-")
	sh.must("tasks", "cancel", "--queue", "bills", "--yes")
	ids := func(filter ...string) []string {
		return strings.Fields(sh.must(append([]string{"tasks", "list", "--queue", "bills", "--all", "--quiet"},
			filter...)...))
	}
	enqueued := ids()
	sh.must("archive", "set", "bills")
	time.Sleep(1100 * time.Millisecond) // so that their retention is over when the server starts
	serve := func() *process {
		return sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-cancelled", "1s")
	}
	server := serve()
	eventually(t, func() bool { return sh.json("archive", "status")[0]["tasks"] == float64(tasks) && len(ids()) == 0 },
		server.log)
	sh.must("archive", "set", "bills", "--off") // so that restored tasks stay
	sh.must("queues", "keep", "bills", "--cancelled", "forever")

	named := strings.Fields(sh.must("archive", "search", "--tenant", "acme", "--limit", "2", "--quiet",
		"--archive", place))
	if back := sh.json("archive", "restore", named[0], named[1], "--archive", place); back[0]["restored"] != 2.0 {
		t.Error(back)
	}
	stands := func(id string) map[string]any { return sh.json("archive", "restores", "show", id)[0] }
	restored := func(tenant string, between func(id string)) {
		id := fmt.Sprint(sh.json("archive", "restore", "--tenant", tenant, "--yes", "--detach", "--archive", place)[0]["id"])
		eventually(t, func() bool { return len(ids("--tenant", tenant)) > 0 }, server.log)
		between(id)
		eventually(t, func() bool { return stands(id)["state"] == "done" },
			func() string { return fmt.Sprint(stands(id), server.log()) })
		if now := stands(id); now["restored"] != float64(tasks/3) || now["skipped"] != 0.0 {
			t.Errorf("%s: %v", tenant, now)
		}
	}
	restored("bolt", func(id string) {
		objects.Hold(true) // so that it cannot end
		if err := server.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		server.status()
		if now := stands(id); now["state"] == "done" {
			t.Errorf("the restore was over before the process was killed: %v", now)
		}
		objects.Hold(false)
		server = serve()
	})
	restored("cure", func(string) {
		objects.Kill()
		if err := objects.Again(); err != nil {
			t.Fatal(err)
		}
	})

	there := ids()
	archived := strings.Fields(sh.must("archive", "search", "--all", "--quiet", "--archive", place))
	if len(there) != tasks/3*2+2 || !slices.Contains(there, named[0]) || !slices.Contains(there, named[1]) {
		t.Errorf("%d tasks are in the database", len(there))
	}
	all := slices.Concat(there, archived)
	slices.Sort(all)
	slices.Sort(enqueued)
	if !slices.Equal(all, enqueued) {
		t.Errorf("%d tasks are in the database and %d in the archive, of %d", len(there), len(archived), len(enqueued))
	}
	sh.must("archive", "verify", "--archive", place)
	sh.must("tasks", "retry", "--queue", "bills", "--tenant", "bolt", "--state", "cancelled", "--yes")
	sh.must("work", "--until-empty", "--queue", "bills")
	if done := ids("--state", "completed"); len(done) != tasks/3 {
		t.Errorf("%d tasks were run", len(done))
	}
}
