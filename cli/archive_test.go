package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A server moves a finished task into a folder; it is gone from the database, and found.
func TestAServerArchivesAndCommandsFindWhatItArchived(t *testing.T) {
	sh := newShell(t)
	dir := t.TempDir()
	place := "file://" + filepath.ToSlash(dir)
	sh.must("migrate", "up")
	id := strings.TrimSpace(sh.must("enqueue", "mail", `{"to": "ada"}`, "--queue", "mail", "--max-attempts", "7", "--quiet"))
	sh.must("tasks", "cancel", id, "--reason", "why not")
	sh.must("archive", "set", "mail")
	if out := sh.must("archive", "set", "other", "--off"); !strings.Contains(out, "not archived") {
		t.Error(out)
	}
	time.Sleep(1100 * time.Millisecond) // its retention is over when the server starts
	server := sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-cancelled", "1s")
	server.await("archived")
	eventually(t, func() bool {
		status := sh.json("archive", "status")[0]
		return status["tasks"] == 1.0 && status["failing"] == "" && fmt.Sprint(status["queues"]) == "[mail !other]"
	}, server.log)
	if r := sh.run("tasks", "show", id); r.status != exitNotFound {
		t.Errorf("without the archive: status %d: %s", r.status, r.out)
	}
	for _, command := range [][]string{{"tasks", "show"}, {"archive", "show"}} {
		var task map[string]any
		out := sh.must(append(command, id, "--json", "--archive", place)...)
		if err := json.Unmarshal([]byte(out), &task); err != nil || task["id"] != id || task["reason"] != "why not" || task["max_attempts"] != 7.0 {
			t.Errorf("%v: %s: %v", command, out, err)
		}
	}
	if out := sh.must("archive", "list", "--archive", place, "--queue", "mail", "--quiet"); !strings.Contains(out, "queue=mail/") {
		t.Error(out)
	}
	sh.must("archive", "verify", "--archive", place)
	files, _ := filepath.Glob(filepath.Join(dir, "day=*", "queue=mail", "*"))
	if len(files) != 1 {
		t.Fatal(files)
	}
	if err := os.Truncate(files[0], 100); err != nil {
		t.Fatal(err)
	}
	if r := sh.run("archive", "verify", "--archive", place); r.status != exitError || !strings.Contains(r.out, "100 bytes") {
		t.Errorf("a damaged file: status %d: %s", r.status, r.out)
	}
}

func TestAnArchiveThatCannotBeIsSaid(t *testing.T) {
	sh := newShell(t)
	sh.must("migrate", "up")
	for place, want := range map[string]string{"": "--archive is missing", "ftp://x": "file:// or s3://", "file://host/x": "three slashes", "s3://a:b@c": "credentials"} {
		if r := sh.run("archive", "list", "--archive", place); r.status != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: status %d: %s", place, r.status, r.err)
		}
	}
}
