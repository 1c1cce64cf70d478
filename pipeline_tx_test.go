package tusk_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// inTx completes a task in a transaction of its own.
func inTx(ctx context.Context, db *sql.DB, complete func(ctx context.Context, tx any) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := complete(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A commit with CompleteTx would end the run, because the output of the stage is known only later.
func TestOnlyTheLastStageCompletesInATransaction(t *testing.T) {
	shared := &tusk.Options{Queue: tusk.DefaultQueue}
	p := tusk.NewPipeline("ingest").Stage("fetch", shared).Stage("store", shared)
	refused := func(t *testing.T, db *sql.DB, ctx context.Context, complete func(context.Context, any) error) {
		if err := inTx(ctx, db, complete); !errors.Is(err, tusk.ErrUnsupported) {
			t.Errorf("a stage with a next stage completed in a transaction: %v", err)
		}
	}
	for name, register := range map[string]func(t *testing.T, client *tusk.Client, db *sql.DB, mux *tusk.Mux){
		"HandleStage": func(t *testing.T, _ *tusk.Client, db *sql.DB, mux *tusk.Mux) {
			tusk.HandleStage(mux, p, "fetch", func(ctx context.Context, task *tusk.Task[string]) (string, error) {
				refused(t, db, ctx, task.CompleteTx)
				return "page", nil
			})
			tusk.HandleStage(mux, p, "store", func(ctx context.Context, task *tusk.Task[string]) (string, error) {
				return "", errors.Join(task.RecordOutput("stored "+task.Args), inTx(ctx, db, task.CompleteTx))
			})
		},
		"WithPipeline": func(t *testing.T, client *tusk.Client, db *sql.DB, mux *tusk.Mux) {
			if err := client.DefinePipeline(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			tusk.HandleKind(mux, "ingest.fetch", func(ctx context.Context, task *tusk.Task[string]) error {
				refused(t, db, ctx, task.CompleteTx)
				return task.RecordOutput("page")
			}, tusk.WithPipeline())
			tusk.HandleKind(mux, "ingest.store", func(ctx context.Context, task *tusk.Task[string]) error {
				return errors.Join(task.RecordOutput("stored "+task.Args), inTx(ctx, db, task.CompleteTx))
			}, tusk.WithPipeline())
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, db, done := inFile()
			defer done()
			mux := tusk.NewMux()
			register(t, client, db, mux)
			w, err := tusk.NewWorker(client, mux, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			r, err := client.Enqueue(ctx, p.Start("x"), nil)
			if err != nil {
				t.Fatal(err)
			}
			var run *tusk.WorkflowInfo
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
				if run, err = client.Workflow(ctx, r.ID); err != nil || run.Done() {
					break
				}
			}
			if err != nil || !run.Done() || len(run.Tasks) != 2 || string(run.Tasks[1].Detail.Output) != `"stored page"` {
				t.Errorf("the run: %+v, %v", run, err)
			}
		})
	}
}
