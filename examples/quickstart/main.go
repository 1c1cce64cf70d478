// Quickstart enqueues three tasks into an SQLite file and runs them. It is the first
// program of docs/guide.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// SendEmail is the input of one kind of task.
type SendEmail struct {
	To string `json:"to"`
}

// Kind implements tusk.Args.
func (SendEmail) Kind() string { return "send_email" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "sqlite:quickstart.db"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string) error {
	engine, err := sqlitefile.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer engine.Close()
	if _, err := engine.Migrate(ctx, -1); err != nil {
		return err
	}
	client, err := tusk.NewClient(engine, nil)
	if err != nil {
		return err
	}

	mux := tusk.NewMux()
	tusk.Handle(mux, func(_ context.Context, t *tusk.Task[SendEmail]) error {
		fmt.Println("mail to", t.Args.To, "in attempt", t.Attempt)
		return nil
	})

	_, err = client.EnqueueMany(ctx, []tusk.NewTask{
		{Args: SendEmail{To: "ada@example.com"}},
		{Args: SendEmail{To: "alan@example.com"}},
		{Args: SendEmail{To: "grace@example.com"}, Options: &tusk.Options{Priority: -1}},
	})
	if err != nil {
		return err
	}

	worker, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		return err
	}
	return worker.Run(ctx) // until Ctrl-C
}
