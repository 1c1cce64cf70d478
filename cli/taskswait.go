package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
)

// endRow says how a task ended.
type endRow struct {
	ID     tusk.ID         `json:"id" col:"ID"`
	State  tusk.State      `json:"state" col:"STATE"`
	Reason string          `json:"reason" col:"REASON"`
	Error  string          `json:"error" col:"ERROR"` // of the last attempt of a discarded task
	Output json.RawMessage `json:"output" col:"OUTPUT"`
}

func endOf(t *tusk.TaskInfo) endRow {
	row := endRow{ID: t.ID, State: t.State, Reason: t.Reason}
	if t.Detail == nil || !t.State.Finished() {
		return row
	}
	row.Output = t.Detail.Output
	if n := len(t.Detail.Attempts); n > 0 && t.State == tusk.StateDiscarded {
		row.Error = t.Detail.Attempts[n-1].Error
	}
	return row
}

func newTasksWaitCommand(app *App) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait until tasks have ended, and print their outputs",
		Long: `Wait until all of the tasks have ended, and print how each of them ended, with its output.
The exit status is 0 if all of them completed, 6 if one was cancelled or discarded, and 5
if one has not ended after --timeout.`,
		Example: `  tusk tasks wait $(tusk enqueue resize '{"file":"cat.png"}' --quiet) --timeout 5m`,
		Args:    between(1, -1, "ID"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			ids := make([]tusk.ID, len(args))
			for i, text := range args {
				var err error
				if ids[i], err = query.FindID(ctx, client, query.Everything, text); err != nil {
					return app.orArchived(ctx, client, err)
				}
			}
			return app.awaitTasks(ctx, client, ids, timeout)
		}),
	}
	c.Flags().Var(positiveFlag(&timeout), "timeout", "stop waiting after this; default: never")
	return c
}

// awaitTasks waits for tasks and prints how they ended, in the given order.
func (app *App) awaitTasks(ctx context.Context, client *tusk.Client, ids []tusk.ID, timeout time.Duration) error {
	limited, cancel := ctx, func() {}
	if timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	tasks, errs := make([]*tusk.TaskInfo, len(ids)), make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			tasks[i], errs[i] = app.orFromArchive(limited, client, id, client.Await)
			if limited.Err() != nil && ctx.Err() == nil && errors.Is(errs[i], context.DeadlineExceeded) {
				tasks[i], errs[i] = app.orFromArchive(ctx, client, id, client.Get)
			}
		})
	}
	all.Wait()
	var rows []endRow
	for i, t := range tasks {
		if errs[i] == nil {
			rows = append(rows, endOf(t))
		}
	}
	printErr := printList(app, rows)
	for _, err := range errs {
		if err != nil {
			return errors.Join(err, printErr)
		}
	}
	return errors.Join(endVerdict(rows, timeout), printErr)
}

// endVerdict returns an error unless all tasks have completed.
func endVerdict(rows []endRow, timeout time.Duration) error {
	open, failed := 0, 0
	for _, row := range rows {
		switch {
		case !row.State.Finished():
			open++
		case row.State != tusk.StateCompleted:
			failed++
		}
	}
	switch {
	case open > 0:
		return &Problem{Code: "timeout", Exit: exitUnavailable, Hint: "tusk tasks why ID says what holds a task",
			Text: fmt.Sprintf("%d of %s did not end within %s", open, count(len(rows), "task"), duration.Text(timeout))}
	case failed > 0:
		return &Problem{Code: "not_completed", Exit: exitFailed, Hint: "tusk tasks show ID has the errors",
			Text: fmt.Sprintf("%d of %s did not complete", failed, count(len(rows), "task"))}
	}
	return nil
}

// outcomeRow is the result of an enqueue and how the task ended.
type outcomeRow struct {
	ID     tusk.ID         `json:"id" col:"ID"`
	Result string          `json:"result" col:"RESULT"`
	State  tusk.State      `json:"state" col:"STATE"`
	Reason string          `json:"reason" one:"REASON"`
	Error  string          `json:"error" one:"ERROR"`
	Output json.RawMessage `json:"output" one:"OUTPUT"`
}

// awaitEnqueued waits for a task that was just enqueued, and prints how it ended.
func (app *App) awaitEnqueued(ctx context.Context, client *tusk.Client, e enqueuedRow) error {
	t, err := app.orFromArchive(ctx, client, e.ID, client.Await)
	if err != nil {
		return fmt.Errorf("the task is stored (%s), but: %w", e.Result, err)
	}
	end := endOf(t)
	return errors.Join(endVerdict([]endRow{end}, 0),
		printOne(app, outcomeRow{e.ID, e.Result, end.State, end.Reason, end.Error, end.Output}))
}
