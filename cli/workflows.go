package cli

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

func newWorkflowsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "workflows",
		Short: "Enqueue, show, cancel and retry graphs of tasks",
		Long: `A workflow is a graph of tasks. Each task runs when the tasks before it have ended. Pipeline
runs, and tasks with children, are workflows, too. They have the id of their first task.`,
	}
	c.AddCommand(newWorkflowsListCommand(app), newWorkflowsEnqueueCommand(app), newWorkflowsShowCommand(app),
		newWorkflowsWatchCommand(app),
		app.workflowCommand("cancel ID", "Cancel all tasks of a workflow that have not finished",
			func(ctx context.Context, client *tusk.Client, id tusk.ID) (int, error) {
				return client.CancelWorkflow(ctx, id, "cancelled with its workflow")
			}), newWorkflowsRetryCommand(app))
	return c
}

// runRow is a workflow that was enqueued.
type runRow struct {
	ID    tusk.ID            `json:"id" col:"ID"`
	Count int                `json:"-" col:"TASKS"`
	Tasks map[string]tusk.ID `json:"tasks"`
}

func newWorkflowsEnqueueCommand(app *App) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "enqueue FILE|-",
		Short: "Enqueue a workflow from JSON",
		Long: `Enqueue a workflow from JSON: {"tasks": [{"name", "kind", "args", "after": [names],
"on_failure": "cancel"|"continue"|"wait", "last", "queue", "tenant", "partition",
"priority", "tags", "metadata", "max_attempts", "timeout", "stall_timeout",
"backoff", "delay", "expires_in", "deadline", "deadline_in", "weight", "ephemeral"}, …]}.`,
		Example: `  echo '{"tasks":[{"name":"a","kind":"echo"},{"name":"b","kind":"echo","after":["a"]}]}' |
    tusk workflows enqueue -`,
		Args: between(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := app.readInput(args[0])
			if err != nil {
				return err
			}
			w, err := tusk.ParseWorkflow(text)
			if err != nil {
				return firstProblem(err)
			}
			var tried []store.NewTask
			client, closeStore, err := app.enqueuer(cmd.Context(), dryRun, &tried)
			if err != nil {
				return err
			}
			defer closeStore()
			run, err := client.EnqueueWorkflow(cmd.Context(), w)
			if err != nil {
				return firstProblem(err)
			}
			if dryRun {
				app.note("%d tasks are valid; nothing was stored", len(run.Tasks))
				return printList(app, triedWorkflow(run, tried))
			}
			return printOne(app, runRow{run.ID, len(run.Tasks), run.Tasks})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check the workflow and store nothing")
	return c
}

func newWorkflowsRetryCommand(app *App) *cobra.Command {
	var from string
	c := app.workflowCommand("retry ID",
		"Retry all tasks of a workflow that were discarded or cancelled, or all from one task on",
		func(ctx context.Context, client *tusk.Client, id tusk.ID) (int, error) {
			if from != "" {
				return client.RetryWorkflowFrom(ctx, id, from)
			}
			return client.RetryWorkflow(ctx, id)
		})
	c.Flags().StringVar(&from, "from", "",
		"`name` or id of a task that has finished: it and all that come after it run again, those that had completed, too")
	return c
}

// workflowCommand returns a command that changes a workflow and prints how many tasks were changed.
func (app *App) workflowCommand(
	use, short string, do func(context.Context, *tusk.Client, tusk.ID) (int, error),
) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.withWorkflow(cmd.Context(), args[0], func(client *tusk.Client, id tusk.ID) error {
				n, err := do(cmd.Context(), client, id)
				if err != nil {
					return err
				}
				return printOne(app, doneRow{id.String(), count(n, "task")})
			})
		},
	}
}

// withWorkflow finds the id of a workflow and opens the database.
func (app *App) withWorkflow(ctx context.Context, text string, do func(*tusk.Client, tusk.ID) error) error {
	if err := query.CheckPart(text); err != nil {
		return err
	}
	return app.withClient(ctx, func(client *tusk.Client) error {
		id, err := query.FindWorkflow(ctx, client, query.Everything, text)
		if err != nil {
			return err
		}
		return do(client, id)
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
