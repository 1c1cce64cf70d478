package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

func newWorkflowsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "workflows",
		Short: "Enqueue, show, cancel and retry graphs of tasks",
		Long: `A workflow is a graph of tasks: each runs when those that it comes after have ended.
The runs of pipelines, and tasks with their children, are workflows, too: they go
by the id of their first task.`,
	}
	c.AddCommand(newWorkflowsEnqueueCommand(app), newWorkflowsShowCommand(app),
		newWorkflowEdit(app, "cancel", "Cancel all tasks of a workflow that have not finished", func(client *tusk.Client, ctx context.Context, id tusk.ID) (int, error) {
			return client.CancelWorkflow(ctx, id, "cancelled with its workflow")
		}),
		newWorkflowEdit(app, "retry", "Retry all tasks of a workflow that were discarded or cancelled", (*tusk.Client).RetryWorkflow))
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
"on_failure": "cancel"|"continue"|"wait", "queue", "tenant", "priority", "tags",
"metadata", "max_attempts", "timeout", "delay"}, …]}.`,
		Example: `  echo '{"tasks":[{"name":"a","kind":"echo"},{"name":"b","kind":"echo","after":["a"]}]}' | tusk workflows enqueue -`,
		Args:    between(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, _, err := app.openInput(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			text, err := io.ReadAll(io.LimitReader(file, 64<<20))
			if err != nil {
				return err
			}
			w, err := tusk.ParseWorkflow(text)
			if err != nil {
				return firstProblem(err)
			}
			client, closeStore, err := app.enqueuer(cmd.Context(), dryRun)
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
				return nil
			}
			return printOne(app, runRow{run.ID, len(run.Tasks), run.Tasks})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check the workflow and store nothing")
	return c
}

// nodeRow is a task of a workflow.
type nodeRow struct {
	Name    string   `json:"name" col:"NAME"`
	ID      tusk.ID  `json:"id" col:"ID"`
	Kind    string   `json:"kind" col:"KIND"`
	State   string   `json:"state" col:"STATE"`
	Attempt int      `json:"attempt" col:"ATTEMPT"`
	After   []string `json:"after" col:"AFTER"`
	Reason  string   `json:"reason" col:"REASON"`
}

func newWorkflowsShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "List the tasks of a workflow, parents first",
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tusk.ParseID(args[0])
			if err != nil {
				return err
			}
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			w, err := client.Workflow(cmd.Context(), id)
			if err != nil {
				return err
			}
			names := map[tusk.ID]string{}
			for _, t := range w.Tasks {
				names[t.ID] = or(t.Node, t.ID.String())
			}
			rows := make([]nodeRow, len(w.Tasks))
			for i, t := range w.Tasks {
				rows[i] = nodeRow{Name: t.Node, ID: t.ID, Kind: t.Kind, State: t.State.String(), Attempt: t.Attempt, After: []string{}, Reason: t.Reason}
				for _, n := range t.Detail.Needs {
					rows[i].After = append(rows[i].After, or(names[n.Task], n.Task.String()))
				}
			}
			app.note("%s", progressOf(w))
			return printList(app, rows)
		},
	}
}

func progressOf(w *tusk.WorkflowInfo) string {
	text := fmt.Sprintf("%d tasks", len(w.Tasks))
	for _, state := range slices.Sorted(maps.Keys(w.States)) {
		text += fmt.Sprintf(", %d %v", w.States[state], state)
	}
	return text
}

func newWorkflowEdit(app *App, verb, short string, do func(*tusk.Client, context.Context, tusk.ID) (int, error)) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " ID",
		Short: short,
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tusk.ParseID(args[0])
			if err != nil {
				return err
			}
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			n, err := do(client, cmd.Context(), id)
			if err != nil {
				return err
			}
			return printOne(app, doneRow{id.String(), fmt.Sprintf("%d tasks", n)})
		},
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
