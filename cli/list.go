package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

// newListCommand prints all that find returns; people are told when that is nothing.
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

// list is printList for a whole answer; people are told when it is empty.
func list[T any](app *App, rows []T, none string) error {
	if len(rows) == 0 {
		app.note("%s", none)
		return nil
	}
	return printList(app, rows)
}

// rowsOf makes a row of each thing.
func rowsOf[T, R any](all []T, row func(T) R) []R {
	rows := make([]R, len(all))
	for i, one := range all {
		rows[i] = row(one)
	}
	return rows
}
