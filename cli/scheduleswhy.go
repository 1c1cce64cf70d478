package cli

import (
	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/why"
)

// scheduleWhyView explains why a schedule does not fire.
type scheduleWhyView struct {
	Name    string      `json:"name"`
	Reasons []reasonRow `json:"reasons"`
}

func newSchedulesWhyCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "why NAME",
		Short: "Show why a schedule does not fire",
		Long: `Show why a schedule does not fire now, and what would keep its tasks from running. If there
are several reasons, act on the first. Each names the command that changes it.`,
		Args: between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tusk.ValidateName("schedule", args[0]); err != nil {
				return err
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				s, reasons, err := why.Schedule(cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				v := scheduleWhyView{s.Name, rowsOf(reasons, reasonOf)}
				return printWhy(app, v, v.Reasons)
			})
		},
	}
}
