package tusk_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// inFile creates a client on an SQLite file, and the program's own pool on the same file.
func inFile() (client *tusk.Client, db *sql.DB, done func()) {
	folder, err := os.MkdirTemp("", "tusk-example-")
	if err != nil {
		panic(err)
	}
	path := filepath.Join(folder, "shop.db")
	store, err := sqlitefile.Open(context.Background(), path)
	if err != nil {
		panic(err)
	}
	if _, err := store.Migrate(context.Background(), -1); err != nil {
		panic(err)
	}
	if db, err = sqlitefile.Pool(path + "?_txlock=immediate"); err != nil {
		panic(err)
	}
	if client, err = tusk.NewClient(store, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		panic(err)
	}
	return client, db, func() { db.Close(); store.Close(); os.RemoveAll(folder) }
}

// Tasks that are enqueued in a transaction exist once it is committed, and not if it is
// rolled back.
func ExampleClient_EnqueueTx() {
	client, db, done := inFile()
	defer done()
	ctx := context.Background()
	order := func(commit bool) {
		tx, _ := db.BeginTx(ctx, nil)
		defer tx.Rollback()
		_, _ = tx.ExecContext(ctx, "create table if not exists orders (customer text)")
		_, _ = tx.ExecContext(ctx, "insert into orders values ('Ada')")
		_, err := client.EnqueueTx(ctx, tx, Greet{Name: "Ada"}, nil)
		_, err2 := client.EnqueueManyTx(ctx, tx, []tusk.NewTask{{Args: Greet{Name: "Alan"}}, {Args: Greet{Name: "Grace"}}})
		w := tusk.NewWorkflow()
		w.Task("thank", Greet{Name: "everybody"}, nil)
		_, err3 := client.EnqueueWorkflowTx(ctx, tx, w)
		if commit {
			fmt.Println(err, err2, err3, tx.Commit())
		}
	}
	for _, commit := range []bool{false, true} {
		order(commit)
		tasks, _ := client.List(ctx, tusk.Filter{})
		fmt.Println(len(tasks), "tasks")
	}
	// Output:
	// 0 tasks
	// <nil> <nil> <nil> <nil>
	// 4 tasks
}

// The handler's writes and the task's completion are committed together.
func ExampleTask_CompleteTx() {
	client, db, done := inFile()
	defer done()
	_, _ = db.Exec("create table greeted (name text)")
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Greet]) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "insert into greeted values (?)", t.Args.Name); err != nil {
			return err
		}
		if err := t.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
	r, _ := client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil)
	runUntil(client, mux, r.ID, tusk.StateCompleted)
	var n int
	fmt.Println(db.QueryRow("select count(*) from greeted").Scan(&n), n)
	// Output: <nil> 1
}
