package postgres_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

func TestAFlushHasAStatementForEverySortOfEnd(t *testing.T) {
	s, _ := fresh(t)
	for _, name := range []string{"finish_plain", "finish_keyed", "finish_lease", "finish"} {
		if s.Statement(name) == "" || s.Statement(name+"_turns") == "" {
			t.Errorf("%s, or %[1]s_turns, is no statement", name)
		}
	}
	for _, name := range []string{"finish_noted", "finish_more", "finish_more_noted"} {
		if s.Statement(name) == "" {
			t.Errorf("%s is no statement", name)
		}
	}
}

// A server that handles single tasks with a key or a delay spends most of its time on them, so the general functions
// are not called for them.
func TestASingleTaskWithAKeyOrADelayTakesTheShortWay(t *testing.T) {
	s, pool := fresh(t)
	w := startWorker(t, s)
	goRound(t, s, w, 1)
	if _, err := pool.Exec(t.Context(), postgres.InFunctions(
		"drop function tusk_fn.put_needing, tusk_fn.put, tusk_fn.finish_lease")); err != nil {
		t.Fatal(err)
	}
	enqueue := func(change func(task *store.NewTask)) store.ID {
		t.Helper()
		tasks := newTasks(1, "q")
		change(&tasks[0])
		got, err := s.Enqueue(t.Context(), tasks)
		if err != nil || got[0] != (store.Enqueued{ID: tasks[0].ID, Result: store.Added}) {
			t.Fatal(got, err)
		}
		return tasks[0].ID
	}
	// The key of an ended task is free.
	for _, conflict := range []store.OnConflict{store.Once, store.Skip, store.Replace} {
		id := enqueue(func(task *store.NewTask) {
			task.Tenant, task.Key, task.OnConflict, task.ExpiresIn = "t", "k", conflict, time.Hour
		})
		tasks := claimsOne(t, s, w)
		if got := tasks[0]; got.ID != id || got.Key != "k" || got.Tenant != "t" ||
			got.ExpiresAt.Sub(got.EnqueuedAt) != time.Hour {
			t.Errorf("claimed %+v", got)
		}
		finish(t, s, tasks)
	}
	for _, runAt := range []time.Time{{}, time.Now().Add(time.Hour)} {
		id := enqueue(func(task *store.NewTask) { task.Delay, task.RunAt, task.ExpiresIn = time.Minute, runAt, time.Hour })
		list, err := s.List(t.Context(), store.Filter{States: []store.State{store.Scheduled}, Limit: 1})
		if err != nil || len(list) != 1 || list[0].ID != id {
			t.Fatal(list, err)
		}
		due := list[0].EnqueuedAt
		if !runAt.IsZero() {
			due = runAt
		}
		if got := list[0]; got.RunAt.Sub(due.Add(time.Minute)).Abs() > time.Millisecond ||
			got.ExpiresAt.Sub(got.EnqueuedAt) != time.Hour {
			t.Errorf("due at %v, expires at %v, enqueued at %v", got.RunAt, got.ExpiresAt, got.EnqueuedAt)
		}
	}
}
