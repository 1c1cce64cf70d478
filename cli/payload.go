package cli

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// payloads opens the place for large args and outputs, which is that of the archive, if one is named. Commands that
// only read do not create its folder.
func (app *App) payloads(ctx context.Context, a access, s store.Store) (p tusk.Payloads, done func(), err error) {
	if app.flags.archive == "" || a == existing && app.archiveNamed() != nil {
		return nil, func() {}, nil
	}
	bucket, err := place.Open(ctx, app.flags.archive)
	if err != nil {
		return nil, nil, usage("", "--archive: %v", err)
	}
	return archive.NewPayloads(s, bucket, tusk.NewID), func() { _ = bucket.Close() }, nil
}

// nothingKept is where a dry run writes large args.
type nothingKept struct{ tusk.Payloads }

func (app *App) nothingKept() tusk.Payloads {
	if app.flags.archive == "" {
		return nil
	}
	return nothingKept{}
}

// Write implements tusk.Payloads.
func (nothingKept) Write(_ context.Context, _ string, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// argsFile opens a file with args; - is stdin.
func (app *App) argsFile(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(app.In), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usage("", "--args-file: %v", err)
	}
	return f, nil
}

// newTasksContentCommand returns a command that prints the args or the output of a task, byte for byte.
func newTasksContentCommand(
	app *App, name, what string, of func(*tusk.Client, *tusk.TaskInfo) (tusk.Content, error),
) *cobra.Command {
	return &cobra.Command{
		Use:   name + " ID",
		Short: "Print the " + what + " of a task as it is, however large",
		Long: `Print the ` + what + ` of a task as JSON, byte for byte and in the clear. What is kept
outside the database, or in the archive, is read from there: --archive names it.`,
		Example: `  tusk tasks ` + name + ` 01a204c4-1948-7000-8004-865c4787136d --archive file:///var/lib/tusk/archive > ` +
			name + `.json`,
		Args: between(1, 1, "ID"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			task, err := app.findAnywhere(ctx, client, args[0])
			if err != nil {
				return err
			}
			content, err := of(client, task)
			if err != nil {
				return err
			}
			r, err := content.Open(ctx)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(app.Out, r)
			return err
		}),
	}
}

// findAnywhere finds a task by its id, or a part of it, in the database or else in the archive.
func (app *App) findAnywhere(ctx context.Context, client *tusk.Client, text string) (*tusk.TaskInfo, error) {
	id, err := query.FindID(ctx, client, query.Everything, text)
	if err != nil {
		return nil, app.orArchived(ctx, client, err)
	}
	return app.orFromArchive(ctx, client, id, client.Get)
}

// orFromArchive reads a task, or else finds it in the archive if the database does not have it.
func (app *App) orFromArchive(
	ctx context.Context, client *tusk.Client, id tusk.ID, read func(context.Context, tusk.ID) (*tusk.TaskInfo, error),
) (*tusk.TaskInfo, error) {
	task, err := read(ctx, id)
	if errors.Is(err, tusk.ErrNotFound) && app.flags.archive != "" {
		archived, err := app.findArchived(ctx, client, id)
		return &archived, err
	}
	return task, app.orArchived(ctx, client, err)
}

// orArchived adds to the error for a missing task that it may be in the archive, if there is one that was not named.
func (app *App) orArchived(ctx context.Context, client *tusk.Client, err error) error {
	if !errors.Is(err, tusk.ErrNotFound) || app.flags.archive != "" {
		return err
	}
	status, unread := archive.ReadStatus(ctx, client.Store())
	if unread != nil || status.Tasks == 0 {
		return err
	}
	return &Problem{Code: "not_found", Exit: exitNotFound, Text: err.Error(), Err: err,
		Hint: "the archive may have it: say where that is, with --archive URL or TUSK_ARCHIVE, and give the whole id"}
}

func outputOf(client *tusk.Client, t *tusk.TaskInfo) (tusk.Content, error) {
	return client.OutputOf(t), nil
}
