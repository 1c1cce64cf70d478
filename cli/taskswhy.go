package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/why"
)

// whyView says why a task does not run.
type whyView struct {
	ID      tusk.ID     `json:"id"`
	State   tusk.State  `json:"state"`
	Reasons []reasonRow `json:"reasons"`
}

type reasonRow struct {
	Code  why.Code  `json:"code" col:"REASON"`
	Text  string    `json:"text" col:"WHY"`
	Fix   string    `json:"fix" col:"CHANGE IT WITH"`
	Until instant   `json:"until" one:"UNTIL"`
	Tasks []tusk.ID `json:"tasks" one:"TASKS"`
}

func newTasksWhyCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Show why a task does not run",
		Long: `Show why a task does not run, what holds it, or how it ended. If there are several reasons,
act on the first. Each names the command that changes it.`,
		Args: between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				id, err := query.FindID(cmd.Context(), client, query.Everything, args[0])
				if err != nil {
					return err
				}
				t, reasons, err := why.Task(cmd.Context(), client, id)
				if err != nil {
					return err
				}
				v := whyView{t.ID, t.State, rowsOf(reasons, reasonOf)}
				return printWhy(app, v, v.Reasons)
			})
		},
	}
}

func reasonOf(r why.Reason) reasonRow {
	row := reasonRow{r.Code, r.Text, r.Fix, instant(r.Until), r.Tasks}
	if row.Tasks == nil {
		row.Tasks = []tusk.ID{}
	}
	return row
}

// printWhy prints reasons: as JSON in their view, in a terminal as text.
func printWhy[T any](app *App, view T, reasons []reasonRow) error {
	if app.flags.json {
		return printOne(app, view)
	}
	if !app.terminal || app.flags.quiet {
		return printList(app, reasons)
	}
	for _, r := range reasons {
		fmt.Fprintf(app.Out, "%s: %s\n", r.Code, printable(r.Text))
		if r.Fix != "" {
			fmt.Fprintf(app.Out, "  %s\n", printable(r.Fix))
		}
	}
	return nil
}
