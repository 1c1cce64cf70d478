package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

// newListCommand returns a command that prints all rows from find. If there are none, it says so.
func newListCommand[R any](
	app *App, short, none string, find func(context.Context, *tusk.Client) ([]R, error),
) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: short,
		Args:  noArgs,
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, _ []string) error {
			rows, err := find(ctx, client)
			if err != nil {
				return err
			}
			return list(app, rows, none)
		}),
	}
}

// list is printList for a complete result. If the result is empty, it says so.
func list[T any](app *App, rows []T, none string) error {
	if len(rows) == 0 {
		app.note("%s", none)
		return nil
	}
	return printList(app, rows)
}

// rowsOf makes a row from each element.
func rowsOf[T, R any](all []T, row func(T) R) []R {
	rows := make([]R, len(all))
	for i, one := range all {
		rows[i] = row(one)
	}
	return rows
}
