package mysql_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// Receipt asks for the receipt of an order.
type Receipt struct {
	Order int `json:"order"`
}

func (Receipt) Kind() string { return "receipt" }

// shop makes a database with a table of orders and Tusk's own tables.
func shop(ctx context.Context) (*mysql.Store, *tusk.Client) {
	s, err := mysql.Open(ctx, mysqltest.Example())
	if err != nil {
		panic(err)
	}
	if _, err := s.Migrate(ctx, -1); err != nil {
		panic(err)
	}
	if _, err := s.DB().ExecContext(ctx,
		"create table orders (id int primary key, receipts int not null) engine = innodb"); err != nil {
		panic(err)
	}
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		panic(err)
	}
	return s, client
}

// An order and the task that it needs are stored together, or neither is.
func ExampleStore_Tx_enqueueTx() {
	ctx := context.Background()
	s, client := shop(ctx)
	defer s.Close()
	order := func(id int, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "insert into orders (id, receipts) values (?, 0)", id); err != nil {
			return err
		}
		_, err := client.EnqueueTx(ctx, tx, Receipt{Order: id}, nil)
		return err
	}
	tx, _ := s.DB().BeginTx(ctx, nil)
	fmt.Println(order(1, tx), tx.Rollback())
	tasks, _ := client.List(ctx, tusk.Filter{})
	fmt.Println("rolled back:", len(tasks), "tasks")
	tx, _ = s.DB().BeginTx(ctx, nil)
	fmt.Println(order(2, tx), tx.Commit())
	tasks, _ = client.List(ctx, tusk.Filter{})
	fmt.Println("committed:", len(tasks), tasks[0].State)
	// Output:
	// <nil> <nil>
	// rolled back: 0 tasks
	// <nil> <nil>
	// committed: 1 available
}

// What a handler changes and the end of its task are committed together: however often the handler runs, the effect
// happens once.
func ExampleStore_Tx_completeTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, client := shop(ctx)
	defer s.Close()
	if _, err := s.DB().ExecContext(ctx, "insert into orders (id, receipts) values (7, 0)"); err != nil {
		panic(err)
	}
	task, err := client.Enqueue(ctx, Receipt{Order: 7}, nil)
	if err != nil {
		panic(err)
	}
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[Receipt]) error {
		tx, err := s.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "update orders set receipts = receipts + 1 where id = ?", t.Args.Order); err != nil {
			return err
		}
		if err := t.CompleteTx(ctx, tx); err != nil {
			return err // tusk.ErrLeaseLost: another attempt has the task now
		}
		defer stop()
		return tx.Commit()
	})
	worker, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println("stopped:", worker.Run(ctx))
	done, err := client.Get(context.Background(), task.ID)
	if err != nil {
		panic(err)
	}
	var receipts int
	if err := s.DB().QueryRow("select receipts from orders where id = 7").Scan(&receipts); err != nil {
		panic(err)
	}
	fmt.Println(done.State, "with", receipts, "receipt")
	// Output:
	// stopped: <nil>
	// completed with 1 receipt
}
