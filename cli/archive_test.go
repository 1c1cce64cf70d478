package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnArchiveWhoseNameIsMisspelledIsNotCreated(t *testing.T) {
	sh := filledShell(t)
	dir := filepath.Join(t.TempDir(), "nowhere")
	for _, args := range [][]string{{"list"}, {"verify"}, {"search"}, {"prune"}} {
		sh.fails(exitUsage, "usage", []string{"nowhere", "does not exist", "tusk serve --archive"},
			append([]string{"archive", "--archive", "file://" + filepath.ToSlash(dir)}, args...)...)
	}
	sh.must("archive", "holds", "--archive", "file://"+filepath.ToSlash(dir))
	sh.must("tasks", "list", "--archive", "file://"+filepath.ToSlash(dir))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A server moves a finished task into a folder. It is gone from the database, but is found.
func TestAServerArchivesAndCommandsFindWhatItArchived(t *testing.T) {
	sh := newShell(t)
	dir := t.TempDir()
	place := "file://" + filepath.ToSlash(dir)
	sh.must("migrate", "up")
	id := strings.TrimSpace(sh.must("enqueue", "mail", `{"to": "ada"}`, "--queue", "mail", "--max-attempts",
		"7", "--quiet"))
	sh.must("tasks", "cancel", id, "--reason", "why not")
	sh.must("archive", "set", "mail")
	sh.fails(exitNotFound, "unknown_queue", nil, "archive", "set", "other", "--off")
	if out := sh.must("archive", "set", "other", "--off", "--create"); !strings.Contains(out, "not archived") {
		t.Error(out)
	}
	time.Sleep(1100 * time.Millisecond) // so that its retention is over when the server starts
	server := sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-cancelled", "1s")
	server.await("archived")
	eventually(t, func() bool {
		status := sh.json("archive", "status")[0]
		return status["tasks"] == 1.0 && status["failing"] == "" && fmt.Sprint(status["queues"]) == "[mail !other]"
	}, server.log)
	for _, part := range []string{id, id[:30]} {
		for _, command := range []string{"show", "why"} {
			sh.fails(exitNotFound, "not_found", []string{"the archive may have it", "--archive"}, "tasks", command, part)
		}
	}
	if out := sh.must("tasks", "why", id, "--archive", place); !strings.HasPrefix(out, "cancelled\t") ||
		!strings.Contains(out, "has moved to the archive") || !strings.Contains(out, "tusk archive restore "+id) {
		t.Error(out)
	}
	for _, command := range [][]string{{"tasks", "show"}, {"archive", "show"}} {
		var task map[string]any
		out := sh.must(append(command, id, "--json", "--archive", place)...)
		if err := json.Unmarshal([]byte(out), &task); err != nil || task["id"] != id || task["reason"] != "why not" ||
			task["max_attempts"] != 7.0 {
			t.Errorf("%v: %s: %v", command, out, err)
		}
	}
	if out := sh.must("archive", "list", "--archive", place, "--queue", "mail", "--quiet"); !strings.Contains(out,
		"queue=mail/") {
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
	if r := sh.run("archive", "verify", "--archive", place); r.status != exitError ||
		!strings.Contains(r.out, "100 bytes") {
		t.Errorf("a damaged file: status %d: %s", r.status, r.out)
	}
}

func TestAnArchiveThatCannotBeIsSaid(t *testing.T) {
	sh := newShell(t)
	sh.must("migrate", "up")
	for place, want := range map[string]string{"": "--archive is empty", "ftp://x": "file://, s3://, gs:// or azblob://",
		"file://host/x": "three slashes", "s3://a:b@c": "credentials"} {
		if r := sh.run("archive", "list", "--archive", place); r.status != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: status %d: %s", place, r.status, r.err)
		}
	}
}

// Commands search the archive, run its tasks again, and hold, prune and erase them.
func TestAServerThatCannotWriteTemporaryFilesDoesNotArchive(t *testing.T) {
	sh := filledShell(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(dir, "nowhere"))
	sh.fails(exitUsage, "usage", []string{"temporary files", "TMPDIR"}, "serve", "--addr", "127.0.0.1:0", "--archive",
		"file://"+filepath.ToSlash(dir))
}

func TestCommandsReadAndKeepTheArchive(t *testing.T) {
	sh := newShell(t)
	place := "file://" + filepath.ToSlash(t.TempDir())
	sh.must("migrate", "up")
	var ids []string
	for i := range 6 {
		id := sh.must("enqueue", "bill", fmt.Sprintf(`{"order": {"id": %d}}`, i), "--queue", "bills", "--tenant",
			[]string{"acme", "bolt"}[i%2], "--quiet")
		ids = append(ids, strings.TrimSpace(id))
	}
	sh.must(append([]string{"tasks", "cancel"}, ids...)...)
	sh.must("archive", "set", "--all")
	time.Sleep(1100 * time.Millisecond) // so that their retention is over when the server starts
	server := sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-cancelled", "1s")
	server.await("archived")
	eventually(t, func() bool { return sh.json("archive", "status")[0]["tasks"] == 6.0 }, server.log)

	found := sh.json("archive", "search", "--args", "order.id=3", "--state", "cancelled", "--since", "1h",
		"--archive", place)
	if len(found) != 1 || found[0]["id"] != ids[3] {
		t.Error(found)
	}
	if r := sh.run("archive", "search", "--state", "running", "--archive", place); r.status != exitUsage {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if found = sh.json("archive", "search", "--limit", "2", "--archive", place); len(found) != 2 {
		t.Error(found)
	}
	one := sh.json("archive", "rerun", ids[0], "--archive", place)
	if len(one) != 1 || one[0]["result"] != "added" || one[0]["new"] == ids[0] {
		t.Error(one)
	}
	if r := sh.run("archive", "rerun", "--archive", place); r.status != exitUsage {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if dry := sh.json("archive", "rerun", "--tenant", "bolt", "--dry-run", "--archive", place); dry[0]["matched"] != 3.0 ||
		dry[0]["dry_run"] != true || len(dry[0]) != 2 {
		t.Error(dry)
	}
	if r := sh.run("archive", "rerun", "--tenant", "bolt", "--archive", place); r.status != exitUsage ||
		!strings.Contains(r.err, "--yes") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	ran := sh.json("archive", "rerun", "--tenant", "bolt", "--yes", "--archive", place)
	if ran[0]["state"] != "done" || ran[0]["enqueued"] != 3.0 {
		t.Error(ran)
	}
	if all := sh.json("archive", "reruns", "list"); len(all) != 1 || all[0]["id"] != ran[0]["id"] {
		t.Error(all)
	}
	if again := sh.json("archive", "reruns", "carry", fmt.Sprint(ran[0]["id"]), "--archive",
		place); again[0]["enqueued"] != 3.0 {
		t.Error(again)
	}

	sh.must("archive", "set", "bills", "--off") // so that restored tasks stay
	sh.must("queues", "keep", "bills", "--cancelled", "forever")
	if r := sh.run("archive", "restore", "--tenant", "bolt", "--archive", place); r.status != exitUsage ||
		!strings.Contains(r.err, "--yes") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if dry := sh.json("archive", "restore", "--args", "order.id=5", "--dry-run", "--archive",
		place); dry[0]["matched"] != 1.0 || dry[0]["dry_run"] != true || len(dry[0]) != 2 {
		t.Error(dry)
	}
	if r := sh.run("archive", "restore", ids[0], "--tenant", "bolt", "--archive", place); r.status != exitUsage {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	back := sh.json("archive", "restore", "--args", "order.id=5", "--yes", "--archive", place)
	if back[0]["state"] != "done" || back[0]["restored"] != 1.0 || back[0]["expected"] != 1.0 {
		t.Error(back)
	}
	if all := sh.json("archive", "restores", "list"); len(all) != 1 || all[0]["id"] != back[0]["id"] {
		t.Error(all)
	}
	if r := sh.run("archive", "restores", "cancel", ids[0]); r.status != exitNotFound {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if out := sh.must("tasks", "show", ids[5]); !strings.Contains(out, "restored from the archive") {
		t.Error(out)
	}
	if r := sh.run("archive", "restore", ids[5], "--archive", place); r.status != exitNotFound {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	sh.must("tasks", "retry", ids[5])
	sh.must("tasks", "cancel", ids[5])

	sh.must("archive", "keep", "--all", "--for", "1ms")
	sh.fails(exitNotFound, "unknown_queue", []string{"--create"}, "archive", "keep", "misspelt", "--for", "forever")
	sh.must("archive", "keep", "misspelt", "--like-others")
	sh.must("archive", "keep", "other", "--for", "forever", "--create")
	sh.must("archive", "keep", "other", "--for", "forever") // it has a rule now
	sh.fails(exitNotFound, "unknown_queue", []string{"--create"}, "archive", "hold", "case-3", "--queue", "misspelt")
	sh.must("archive", "hold", "case-3", "--queue", "misspelt", "--create")
	sh.must("archive", "hold", "case-3", "--queue", "misspelt", "--reason", "a court's order")
	sh.must("archive", "unhold", "case-3")
	sh.must("archive", "hold", "case-1", "--tenant", "acme", "--reason", "a letter")
	if r := sh.run("archive", "hold", "case-2"); r.status != exitUsage {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if dry := sh.json("archive", "prune", "--dry-run", "--archive", place); dry[0]["tasks"] != 2.0 {
		t.Error(dry)
	}
	if gone := sh.json("archive", "prune", "--yes", "--archive", place); gone[0]["tasks"] != 2.0 {
		t.Error(gone)
	}
	if e := sh.json("archive", "erase", "acme", "--yes", "--archive", place); e[0]["state"] != "held" ||
		e[0]["held"] != 3.0 {
		t.Error(e)
	}
	if holds := sh.json("archive", "holds"); len(holds) != 1 || holds[0]["reason"] != "a letter" {
		t.Error(holds)
	}
	sh.must("archive", "unhold", "case-1")
	if r := sh.run("archive", "unhold", "case-1"); r.status != exitNotFound {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	// The server continues the erasure.
	eventually(t, func() bool { return sh.json("archive", "erasures")[0]["state"] == "done" }, server.log)
	if found = sh.json("archive", "search", "--all", "--archive", place); len(found) != 0 {
		t.Error(found)
	}
	sh.must("archive", "verify", "--archive", place)
}

// Args and outputs that are too large for the database go to the archive's place. They can be read as files, also
// from the archive.
func TestLargeArgsAndOutputsAreFiles(t *testing.T) {
	sh := newShell(t)
	place := "file://" + filepath.ToSlash(t.TempDir())
	sh.must("migrate", "up")
	text := `{"text":"` + strings.Repeat("many words ", 60<<10) + `"}`
	file := filepath.Join(t.TempDir(), "args.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := sh.run("enqueue", "echo", "--args-file", file); r.status != exitUsage ||
		!strings.Contains(r.err, "object store") {
		t.Errorf("without a place: status %d: %s", r.status, r.err)
	}
	sh.must("enqueue", "echo", "--args-file", file, "--dry-run", "--archive", place)
	id := strings.TrimSpace(sh.must("enqueue", "echo", "--args-file", file, "--quiet", "--archive", place))
	sh.must("archive", "set", "--all")
	sh.must("work", "--until-empty", "--archive", place)
	if out := sh.must("tasks", "show", id); len(out) > 4<<10 {
		t.Errorf("the task is shown with %d bytes", len(out))
	}
	for _, what := range []string{"args", "output"} {
		if out := sh.must("tasks", what, id, "--archive", place); out != text {
			t.Errorf("the %s have %d bytes", what, len(out))
		}
	}
	time.Sleep(1100 * time.Millisecond) // so that its retention is over when the server starts
	server := sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-completed", "1s")
	server.await("archived")
	eventually(t, func() bool { return sh.run("tasks", "show", id).status == exitNotFound }, server.log)
	if out := sh.must("tasks", "output", id, "--archive", place); out != text {
		t.Errorf("the output has %d bytes", len(out))
	}
	again := sh.json("archive", "rerun", id, "--archive", place)
	if out := sh.must("tasks", "args", fmt.Sprint(again[0]["new"]), "--archive", place); out != text {
		t.Errorf("the args of a rerun have %d bytes", len(out))
	}
	sh.must("archive", "verify", "--archive", place)
}
