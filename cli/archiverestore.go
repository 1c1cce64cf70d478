package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
)

// restoreRow is a restore as commands print it.
type restoreRow struct {
	ID       string   `json:"id" col:"ID"`
	State    string   `json:"state" col:"STATE"`
	By       string   `json:"by" col:"BY"`
	Expected int64    `json:"expected" col:"EXPECTED"`
	Restored int64    `json:"restored" col:"RESTORED"`
	Skipped  int64    `json:"skipped" col:"SKIPPED"`
	Left     []string `json:"left" one:"LEFT"` // the first tasks that were left alone, and why
	At       instant  `json:"at" col:"ASKED"`
	Done     instant  `json:"done_at" col:"DONE"`
	Error    string   `json:"error" col:"ERROR"`
}

func restoreOf(t archive.Restore) restoreRow {
	row := restoreRow{t.ID.String(), string(t.State), t.By, t.Expected, t.Restored, t.Skipped, leftLines(t.Left),
		instant(t.At), instant(t.Done), t.Error}
	if t.CancelRequested && !t.Ended() {
		row.State = "stopping"
	}
	return row
}

var restores = requests[archive.Restore, restoreRow]{
	name: "restore", order: "oldest first", list: archive.Restores, get: archive.ReadRestore,
	cancel: archive.CancelRestore, row: restoreOf,
	carry: func(ctx context.Context, app *App, id tusk.ID, tell func(archive.Restore)) (t archive.Restore, err error) {
		err = app.withKeeper(ctx, func(_ *tusk.Client, _ *archive.Archive, r *archive.Runner) error {
			t, err = r.Restore(ctx, id, tell)
			return err
		})
		return t, err
	},
	stands: func(t archive.Restore) (tusk.ID, int64, int64) { return t.ID, t.Restored + t.Skipped, t.Expected },
}

func newArchiveRestoreCommand(app *App) *cobra.Command {
	var filter archiveFilter
	var agreed consent
	var detach bool
	c := &cobra.Command{
		Use:   "restore [ID…] [filter flags]",
		Short: "Put archived tasks back into the database",
		Long: `Put finished tasks of the archive back into the database, under their own ids and with
their whole history: the named ones, or all that match a filter. They leave the archive,
and their retention starts again: finished_at is when they were restored, and a line of
their log says when they ended. Tasks that are in the database or under a hold are
skipped.

A restore is stored. If it is interrupted, tusk archive restores carry ID or a tusk
serve --archive continues it, and no task is lost or duplicated.`,
		Example: `  tusk archive restore 01a204c4-1948-7000-8004-865c4787136d
  tusk archive restore --state discarded --queue mail --since 7d --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			t := archive.Restore{By: app.whoami(), Via: "cli"}
			switch {
			case len(args) > 0 && (filter.narrow() || filter.all):
				return usage("leave out the ids or the filter flags", "tasks are named by their ids or by a filter, not both")
			case len(args) == 0 && !filter.narrow() && !filter.all:
				return usage("give ids, or a filter such as --state or --queue, or --all", "%s: say which tasks", cmd.CommandPath())
			}
			for _, text := range args {
				id, err := tusk.ParseID(text)
				if err != nil {
					return usage("", "%v", err)
				}
				t.IDs = append(t.IDs, id)
			}
			var err error
			if t.Query, err = filter.query(); err != nil {
				return firstProblem(err)
			}
			return app.restore(cmd.Context(), t, &agreed, detach)
		},
	}
	agreed.addTo(c)
	c.Flags().BoolVar(&detach, "detach", false, "store the restore and leave it to a tusk serve --archive")
	filter.addTo(c)
	return c
}

func (app *App) restore(ctx context.Context, t archive.Restore, agreed *consent, detach bool) error {
	return app.withShelf(ctx, func(client *tusk.Client, a *archive.Archive) error {
		if err := archive.CanRestore(client.Store()); err != nil {
			return &Problem{Code: "unsupported", Exit: exitUsage, Text: err.Error(), Hint: "tusk archive rerun"}
		}
		matched, err := app.restorable(ctx, a, &t)
		if err != nil {
			return err
		}
		tasks := count(int(matched), "task")
		if agreed.dryRun || matched == 0 {
			return printOne(app, matchedRow{matched, agreed.dryRun})
		}
		if len(t.IDs) == 0 {
			if err := app.confirm(agreed, "put "+tasks+" back into the database"); err != nil {
				return err
			}
		}
		t.ID, t.Expected = tusk.NewID(), matched
		begun, err := archive.RequestRestore(ctx, client.Store(), t)
		if err = app.audited(ctx, client, "archive.restore", t.ID.String(), err); err != nil {
			return err
		}
		return restores.begun(ctx, app, begun, detach)
	})
}

// restorable counts the tasks to restore. Each named task must be in the archive.
func (app *App) restorable(ctx context.Context, a *archive.Archive, t *archive.Restore) (int64, error) {
	if len(t.IDs) > 0 {
		for _, id := range t.IDs {
			if _, err := a.Find(ctx, id); err != nil {
				return 0, notArchived(id, err)
			}
		}
		return int64(len(t.IDs)), nil
	}
	bar := newArchiveBar(app)
	n, err := a.Count(ctx, t.Query, 0, func(p archive.Progress) { bar.at(p, 0) })
	bar.end()
	if err != nil {
		return 0, err
	}
	app.note("restore: %s", count(int(n.Tasks), "task")+map[bool]string{true: " matches", false: " match"}[n.Tasks == 1])
	app.noteSealed(n.Sealed)
	return n.Tasks, nil
}
