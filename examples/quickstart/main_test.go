package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func TestTheFirstProgramRunsItsTasks(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "quickstart.db")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, dsn) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if completed(dsn) == 3 {
			return
		}
	}
	t.Error("the tasks were never completed")
}

// completed counts the completed tasks in the file, as another process would.
func completed(dsn string) int {
	ctx := context.Background()
	engine, err := sqlitefile.Open(ctx, dsn)
	if err != nil {
		return 0
	}
	defer engine.Close()
	client, err := tusk.NewClient(engine, nil)
	if err != nil {
		return 0
	}
	tasks, err := client.List(ctx, tusk.Filter{States: []tusk.State{tusk.StateCompleted}})
	if err != nil {
		return 0
	}
	return len(tasks)
}
