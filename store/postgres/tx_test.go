package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

func TestATransactionOfDatabaseSQLHoldsTasksAndFinishes(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	db, err := sql.Open("pgx", pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := startWorker(t, s)
	for _, commit := range []bool{false, true} {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		u := txOf(t, s, tx)
		tasks := newTasks(3, "q")
		tasks[1].Key, tasks[2].Tags, tasks[2].Settings = "k", []string{"a b"}, []byte{0}
		results, err := u.Enqueue(ctx, tasks)
		if err != nil || results[1].ID != tasks[1].ID || results[1].Result != store.Added {
			t.Fatal(results, err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 10, Token: store.NewToken()})
	if err != nil || len(claimed) != 3 {
		t.Fatal(len(claimed), err)
	}
	for _, commit := range []bool{false, true} {
		tx, _ := db.Begin()
		u, _ := s.Tx(tx)
		finish(t, u, claimed[:2])
		if lost, err := s.Finish(ctx, completed(claimed[2:])); err != nil || commit != (len(lost) == 1) {
			t.Fatal("a finish beside an open transaction:", lost, err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if lost, err := s.Finish(ctx, completed(claimed)); err != nil || len(lost) != 3 {
		t.Fatal(lost, err)
	}
	if list, err := s.List(ctx, store.Filter{States: []store.State{store.Completed}}); err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
}

// Found by the storm: a transaction that was older than a task's last attempt put the task back into the log. The
// task ran and completed, and then was in no list.
func TestATransactionOlderThanAnAttemptMayPutTheTaskBack(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w, term := startWorker(t, s), lead(t, s)
	old := beginWriting(t, pool)
	task := newTasks(1, "q")
	task[0].Key, task[0].OnConflict = "k", store.Replace
	if _, err := s.Enqueue(ctx, task); err != nil {
		t.Fatal(err)
	}
	first := claimOne(t, s, w)
	back := store.Outcome{Task: &first, State: store.Available, Attempt: first.Attempt}
	if lost, err := s.Finish(ctx, []store.Outcome{back}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	u := txOf(t, s, old)
	replacement := newTasks(1, "q")
	replacement[0].Key, replacement[0].OnConflict, replacement[0].Priority = "k", store.Replace, 1
	if results, err := u.Enqueue(ctx, replacement); err != nil || results[0].Result != store.Replaced {
		t.Fatal(results, err)
	}
	if err := old.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(ctx, term, 10); err != nil {
		t.Fatal(err)
	}
	second := claimOne(t, s, w)
	if second.ID != first.ID || second.Attempt != 2 {
		t.Fatalf("claimed %v at attempt %d", second.ID, second.Attempt)
	}
	finish(t, s, []store.Task{second})
	list, err := s.List(ctx, store.Filter{})
	if err != nil || len(list) != 1 || list[0].State != store.Completed || list[0].Priority != 1 || list[0].Attempt != 2 {
		t.Fatalf("%+v, %v: want the completed task", list, err)
	}
}

// An admission may be older than an attempt, too, if it has settled doubts before.
func TestAnAdmissionOlderThanAnAttemptLeavesTheTaskToTheNext(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w, term := startWorker(t, s), lead(t, s)
	old := beginWriting(t, pool)
	if _, err := s.Enqueue(ctx, newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
	first := claimOne(t, s, w)
	again := store.Outcome{Task: &first, State: store.Retryable, Attempt: first.Attempt, Error: "x", Fingerprint: "f"}
	if lost, err := s.Finish(ctx, []store.Outcome{again}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	var admitted int
	err := old.QueryRow(ctx, s.Statement("admit"), term, 10).Scan(&admitted, new([]string), new([]string))
	if err != nil || admitted != 0 {
		t.Fatalf("admitted %d tasks, %v", admitted, err)
	}
	if err := old.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Admit(ctx, term, 10); err != nil || done.Count != 1 {
		t.Fatal(done, err)
	}
	finish(t, s, []store.Task{claimOne(t, s, w)})
	list, err := s.List(ctx, store.Filter{})
	if err != nil || len(list) != 1 || list[0].State != store.Completed || list[0].Attempt != 2 {
		t.Fatalf("%+v, %v: want the completed task", list, err)
	}
}

// Found by the storm: maintenance met a lease that a flush was closing in part, and reopened a task that a user's
// transaction had completed.
func TestMaintenanceLeavesALeaseToTheFlushThatHoldsIt(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w, term := startWorker(t, s), lead(t, s)
	if _, err := s.Enqueue(ctx, newTasks(3, "q")); err != nil {
		t.Fatal(err)
	}
	tasks := claimSome(t, s, w, 3)
	users := begin(t, pool)
	inside := txOf(t, s, users)
	finish(t, inside, tasks[:1])
	flush := begin(t, pool) // does what a flush of the second task does, up to its commit
	for _, statement := range []string{"select from tusk.lease where token = $1 and $2 = any(firsts) for no key update",
		"update tusk.lease set open = set_bit(b'111', array_position(firsts, $2) - 1, 0) where token = $1"} {
		if _, err := flush.Exec(ctx, statement, tasks[0].Lease, tasks[1].ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := users.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	maintained := make(chan error, 1)
	go func() { maintained <- s.Maintain(ctx, term) }()
	for ended := false; !ended && number(t, pool,
		"select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == 0; {
		select {
		case err := <-maintained:
			maintained <- err
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := flush.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-maintained; err != nil {
		t.Fatal(err)
	}
	again := store.Outcome{Task: &tasks[0], State: store.Retryable, Attempt: 1, Error: "not committed", Fingerprint: "f"}
	if lost, err := s.Finish(ctx, []store.Outcome{again}); err != nil || len(lost) != 1 {
		t.Fatalf("lost %v, %v: the task is completed, and its second outcome was accepted", lost, err)
	}
	if lost, err := s.Finish(ctx, completed(tasks[1:])); err != nil || len(lost) != 1 || lost[0] != tasks[1].ID {
		t.Fatalf("lost %v, %v: want the second task alone, which had ended", lost, err)
	}
}

// claimOne claims the only task of the queue q.
func claimOne(t *testing.T, s *postgres.Store, worker store.ID) store.Task {
	t.Helper()
	tasks, err := s.Claim(context.Background(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 10,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("claimed %d tasks: %v", len(tasks), err)
	}
	return tasks[0]
}
