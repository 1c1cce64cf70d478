package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tuskqueue/tusk/store"
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
		u, err := s.Tx(tx)
		if err != nil {
			t.Fatal(err)
		}
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
		if lost, err := u.Finish(ctx, completed(claimed[:2])); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
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
