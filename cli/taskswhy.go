package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/why"
)

// whyView explains why a task does not run.
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
act on the first. Each names the command that changes it. With --archive, it also shows how
a task ended that has moved to the archive.`,
		Args: between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				found, err := app.findAnywhere(cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				t, reasons, err := why.Task(cmd.Context(), client, found.ID)
				if errors.Is(err, tusk.ErrNotFound) { // it is in the archive
					t, reasons, err = found, whyArchived(found), nil
				}
				if err != nil {
					return err
				}
				v := whyView{t.ID, t.State, rowsOf(reasons, reasonOf)}
				return printWhy(app, v, v.Reasons)
			})
		},
	}
}

// whyArchived explains how a task in the archive ended.
func whyArchived(t *tusk.TaskInfo) []why.Reason {
	reasons := why.Explain(why.Facts{Task: *t})
	for i := range reasons {
		reasons[i].Text += ", and has moved to the archive"
		if reasons[i].Fix != "" {
			reasons[i].Fix = "tusk archive restore " + t.ID.String()
		}
	}
	return reasons
}

func reasonOf(r why.Reason) reasonRow {
	row := reasonRow{r.Code, r.Text, r.Fix, instant(r.Until), r.Tasks}
	if row.Tasks == nil {
		row.Tasks = []tusk.ID{}
	}
	return row
}

// printWhy prints reasons: view as JSON, or the reasons as text on a terminal.
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
