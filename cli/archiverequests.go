package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/store"
)

// requests are commands for requests that are stored and survive crashes: reruns or restores. T is a request, and R
// is a request as printed.
type requests[T, R any] struct {
	name   string // name of one request
	order  string // order in which list prints requests
	list   func(context.Context, store.Recorder) ([]T, error)
	get    func(context.Context, store.Recorder, tusk.ID) (T, error)
	cancel func(context.Context, store.Recorder, tusk.ID) error
	// carry continues a request until it is over, and reports its progress.
	carry func(context.Context, *App, tusk.ID, func(T)) (T, error)
	row   func(T) R
	// stands returns a request's id, how many tasks it has passed, and how many it expects.
	stands func(T) (id tusk.ID, past, expected int64)
}

// command returns the commands that watch, continue and cancel requests.
func (k requests[T, R]) command(app *App, short string) *cobra.Command {
	c := &cobra.Command{Use: k.name + "s", Short: short}
	c.AddCommand(
		newListCommand(app, "List "+k.name+"s, "+k.order, "there is no "+k.name,
			func(ctx context.Context, client *tusk.Client) ([]R, error) {
				all, err := k.list(ctx, client.Store())
				return rowsOf(all, k.row), err
			}),
		k.with(app, "show ID", "Show a "+k.name, func(_ context.Context, _ *tusk.Client, t T) (T, error) { return t, nil }),
		k.with(app, "carry ID", "Carry a "+k.name+" on, or watch another process do it, until it is over",
			func(ctx context.Context, _ *tusk.Client, t T) (T, error) { return k.carried(ctx, app, t) }),
		k.with(app, "cancel ID", "Stop a "+k.name+"; what it has done stays",
			func(ctx context.Context, client *tusk.Client, t T) (T, error) {
				id, _, _ := k.stands(t)
				err := k.cancel(ctx, client.Store(), id)
				if err = app.audited(ctx, client, "archive."+k.name+".cancel", id.String(), err); err != nil {
					return t, err
				}
				return k.get(ctx, client.Store(), id)
			}))
	return c
}

// with does one thing with a request and prints the request's state.
func (k requests[T, R]) with(
	app *App, use, short string, do func(context.Context, *tusk.Client, T) (T, error),
) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  between(1, 1, "ID"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			id, err := tusk.ParseID(args[0])
			if err != nil {
				return usage("", "%v", err)
			}
			t, err := k.get(ctx, client.Store(), id)
			if errors.Is(err, archive.ErrNoSuchRestore) {
				err = &Problem{Code: "not_found", Exit: exitNotFound, Text: err.Error()}
			}
			if err != nil {
				return err
			}
			t, err = do(ctx, client, t)
			return errors.Join(printOne(app, k.row(t)), err)
		}),
	}
}

// carried continues a request until it is over, with a progress bar. An interrupt leaves the request as it is.
func (k requests[T, R]) carried(ctx context.Context, app *App, t T) (T, error) {
	id, _, expected := k.stands(t)
	bar := newProgress(app, expected)
	seen := int64(0)
	ended, err := k.carry(ctx, app, id, func(now T) {
		_, past, _ := k.stands(now)
		bar.add(past-seen, int(past))
		seen = past
	})
	bar.end()
	if ctx.Err() != nil {
		app.note("interrupted: tusk archive %ss carry %s goes on with it, or cancel ends it", k.name, id)
	}
	if at, _, _ := k.stands(ended); at.IsZero() {
		ended = t
	}
	return ended, err
}

// begun continues a request that was just stored, unless detach leaves that to others, and prints its state.
func (k requests[T, R]) begun(ctx context.Context, app *App, t T, detach bool) (err error) {
	if !detach {
		t, err = k.carried(ctx, app, t)
	}
	return errors.Join(printOne(app, k.row(t)), err)
}

// leftLines lists the tasks that were left alone, and why.
func leftLines(left []archive.Left) []string {
	lines := []string{}
	for _, l := range left {
		lines = append(lines, l.ID.String()+": "+l.Why)
	}
	return lines
}
