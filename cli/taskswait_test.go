package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// On every engine, a call that waits for a task returns its output, and ends if the task is deleted.
func TestEveryEngineAwaitsTasks(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		mux := tusk.NewMux()
		tusk.HandleKind(mux, "double", func(_ context.Context, task *tusk.Task[int]) error {
			return task.RecordOutput(2 * task.Args)
		})
		w, err := tusk.NewWorker(client, mux, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stopped := make(chan error, 1)
		working, stop := context.WithCancel(ctx)
		go func() { stopped <- w.Run(working) }()
		const many = 50
		ends := make(chan error, many)
		for n := range many {
			e, err := client.Enqueue(ctx, tusk.RawArgs{Name: "double", JSON: fmt.Append(nil, n)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				task, err := client.Await(ctx, e.ID)
				if err == nil && (task.State != tusk.StateCompleted || string(task.Detail.Output) != fmt.Sprint(2*n)) {
					err = fmt.Errorf("%d: %v %s", n, task.State, task.Detail.Output)
				}
				ends <- err
			}()
		}
		for range many {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		e, err := client.Enqueue(ctx, tusk.RawArgs{Name: "double"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := client.Await(ctx, e.ID)
			ends <- err
		}()
		time.Sleep(100 * time.Millisecond) // it most likely waits now; the test holds either way
		if err := client.Delete(ctx, e.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-ends; !errors.Is(err, tusk.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
	})
}

func TestWaitReportsHowTasksEnded(t *testing.T) {
	sh := newShell(t)
	a, b := sh.enqueue("echo", `{"n":1}`), sh.enqueue("echo", `{"n":2}`)
	sh.start("work", "--exec", "broken=sh -c 'echo no disk >&2; exit 1'")
	rows := sh.json("tasks", "wait", b, a[:13], a)
	if len(rows) != 3 || rows[0]["id"] != b || rows[1]["id"] != a || rows[1]["state"] != "completed" ||
		fmt.Sprint(rows[0]["output"]) != "map[n:2]" {
		t.Errorf("%v", rows)
	}
	if out := sh.must("tasks", "wait", a); strings.TrimSpace(out) != a+"\tcompleted\t\t\t"+`{"n":1}` {
		t.Errorf("%q", out)
	}
	broken := sh.enqueue("broken", "--max-attempts", "1")
	r := sh.run("tasks", "wait", a, broken)
	if r.status != exitFailed || !strings.Contains(r.out, "discarded\tgave up after 1 attempt") ||
		!strings.Contains(r.err, "error[not_completed]: 1 of 2 tasks did not complete") {
		t.Errorf("%+v", r)
	}
	late := sh.enqueue("echo", "--delay", "1h")
	r = sh.run("tasks", "wait", a, late, "--timeout", "500ms")
	if r.status != exitUnavailable || !strings.Contains(r.out, late+"\tscheduled") ||
		!strings.Contains(r.err, "error[timeout]: 1 of 2 tasks did not end within 500ms") {
		t.Errorf("%+v", r)
	}
	sh.must("tasks", "cancel", late)
	sh.fails(exitFailed, "not_completed", nil, "tasks", "wait", late)
	sh.fails(exitNotFound, "not_found", nil, "tasks", "wait", a, noSuchID)
	sh.fails(exitUsage, "usage", []string{"ID is missing"}, "tasks", "wait")

	row := sh.json("enqueue", "echo", `{"n":3}`, "--wait")[0]
	if row["result"] != "added" || row["state"] != "completed" || fmt.Sprint(row["output"]) != "map[n:3]" {
		t.Errorf("%v", row)
	}
	r = sh.run("enqueue", "broken", "--max-attempts", "1", "--wait")
	if r.status != exitFailed || !strings.Contains(r.out, "state\tdiscarded") || !strings.Contains(r.out, "error\t") {
		t.Errorf("%+v", r)
	}
	sh.fails(exitUsage, "usage", nil, "enqueue", "echo", "--wait", "--dry-run")
}

// A task may be in the archive before somebody waits for it.
func TestWaitFindsAnArchivedTask(t *testing.T) {
	sh := newShell(t)
	place := "file://" + filepath.ToSlash(t.TempDir())
	id := sh.enqueue("echo", `{"n":1}`)
	sh.must("archive", "set", "--all")
	sh.must("work", "--until-empty")
	server := sh.start("serve", "--addr", "127.0.0.1:0", "--archive", place, "--keep-completed", "1s")
	eventually(t, func() bool { return sh.json("archive", "status")[0]["tasks"] == 1.0 }, server.log)
	rows := sh.json("tasks", "wait", id, "--archive", place)
	if len(rows) != 1 || rows[0]["state"] != "completed" || fmt.Sprint(rows[0]["output"]) != "map[n:1]" {
		t.Errorf("%v", rows)
	}
}
