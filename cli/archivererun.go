package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/rerun"
)

// rerunRow is a rerun as commands print it.
type rerunRow struct {
	ID         string   `json:"id" col:"ID"`
	State      string   `json:"state" col:"STATE"`
	By         string   `json:"by" col:"BY"`
	Expected   int64    `json:"expected" col:"EXPECTED"`
	Enqueued   int64    `json:"enqueued" col:"ENQUEUED"`
	KeyTaken   int64    `json:"key_taken" one:"KEY_TAKEN"`
	Refused    int64    `json:"refused" one:"REFUSED"`
	Files      int      `json:"files" one:"FILES"` // files searched so far
	Of         int      `json:"of" one:"OF"`
	Left       []string `json:"left" one:"LEFT"` // the first tasks that were left alone, and why
	StartedAt  instant  `json:"started_at" col:"STARTED"`
	FinishedAt instant  `json:"finished_at" col:"FINISHED"`
	Error      string   `json:"error" col:"ERROR"`
}

func rerunOf(r rerun.Rerun) rerunRow {
	row := rerunRow{r.ID.String(), string(r.State), r.By, r.Expected, r.Enqueued, r.KeyTaken, r.Refused, r.Files, r.Of,
		leftLines(r.Left),
		instant(r.StartedAt), instant(r.FinishedAt), r.Error}
	if r.CancelRequested && !r.Ended() {
		row.State = "stopping"
	}
	return row
}

var reruns = requests[rerun.Rerun, rerunRow]{
	name: "rerun", order: "newest first", list: rerun.List, get: rerun.Get, cancel: rerun.Cancel, row: rerunOf,
	carry: func(ctx context.Context, app *App, id tusk.ID, tell func(rerun.Rerun)) (r rerun.Rerun, err error) {
		err = app.withShelf(ctx, func(client *tusk.Client, a *archive.Archive) error {
			r, err = (&rerun.Carrier{Client: client, Archive: a, Log: app.Log}).Carry(ctx, id, tell)
			return err
		})
		if err == nil && r.State == rerun.Failed {
			err = &Problem{Code: "rerun_failed", Exit: exitConflict, Text: r.Error}
		}
		return r, err
	},
	stands: func(r rerun.Rerun) (tusk.ID, int64, int64) {
		return r.ID, r.Enqueued + r.KeyTaken + r.Refused, r.Expected
	},
}

func newArchiveRerunCommand(app *App) *cobra.Command {
	var filter archiveFilter
	var agreed consent
	var detach bool
	c := &cobra.Command{
		Use:   "rerun [ID…] [filter flags]",
		Short: "Run archived tasks again, as new tasks",
		Long: `Run archived tasks again, as new tasks: the named ones, or all that match a filter. A
new task has the kind, args, queue, tenant, key, priority, tags and settings of the old
one, whose id is in its metadata as rerun_of. The old task stays in the archive.

A rerun by filter is stored. If it is interrupted, tusk archive reruns carry ID or a
tusk serve --archive continues it, and no task is enqueued twice.`,
		Example: `  tusk archive rerun 01a204c4-1948-7000-8004-865c4787136d
  tusk archive rerun --state discarded --queue mail --since 7d --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if filter.narrow() || filter.all || detach {
					return usage("leave out the ids or the filter flags", "tasks are named by their ids or by a filter, not both")
				}
				return app.rerunNamed(cmd.Context(), args, agreed.dryRun)
			}
			if !filter.narrow() && !filter.all {
				return usage("give ids, or a filter such as --state or --queue, or --all", "%s: say which tasks", cmd.CommandPath())
			}
			q, err := filter.query()
			if err != nil {
				return firstProblem(err)
			}
			return app.rerunMatching(cmd.Context(), rerun.Rerun{Query: q, By: app.whoami(), Via: "cli"}, &agreed, detach)
		},
	}
	agreed.addTo(c)
	c.Flags().BoolVar(&detach, "detach", false, "by filter: store the rerun and leave it to a tusk serve --archive")
	filter.addTo(c)
	return c
}

// ranRow is the result for a named task.
type ranRow struct {
	ID     tusk.ID `json:"id" col:"ID"`
	New    string  `json:"new" col:"NEW"` // the id of the task that replaces it now
	Result string  `json:"result" col:"RESULT"`
}

func (app *App) rerunNamed(ctx context.Context, args []string, dry bool) error {
	ids := make([]tusk.ID, len(args))
	for i, text := range args {
		id, err := tusk.ParseID(text)
		if err != nil {
			return usage("", "%v", err)
		}
		ids[i] = id
	}
	return app.withShelf(ctx, func(client *tusk.Client, a *archive.Archive) error {
		c := &rerun.Carrier{Client: client, Archive: a, Log: app.Log}
		for _, id := range ids {
			row := ranRow{ID: id, Result: "would run"}
			if dry {
				if _, err := a.Find(ctx, id); err != nil {
					return notArchived(id, err)
				}
			} else {
				e, err := c.One(ctx, id, nil)
				if err = app.audited(ctx, client, "archive.rerun", id.String(), notArchived(id, err)); err != nil {
					return err
				}
				row.New, row.Result = e.ID.String(), e.Result.String()
			}
			if err := printList(app, []ranRow{row}); err != nil {
				return err
			}
		}
		return nil
	})
}

// matchedRow says how many tasks matched, if nothing else is done with them.
type matchedRow struct {
	Matched int64 `json:"matched" col:"MATCHED"`
	DryRun  bool  `json:"dry_run" one:"DRY_RUN"`
}

func (app *App) rerunMatching(ctx context.Context, r rerun.Rerun, agreed *consent, detach bool) error {
	return app.withShelf(ctx, func(client *tusk.Client, a *archive.Archive) error {
		c := &rerun.Carrier{Client: client, Archive: a, Log: app.Log}
		bar := newArchiveBar(app)
		n, err := c.Count(ctx, r, 0, func(p archive.Progress) { bar.at(p, 0) })
		bar.end()
		if err != nil {
			return err
		}
		tasks := count(int(n.Tasks), "task")
		app.note("rerun: %s", tasks+map[bool]string{true: " matches", false: " match"}[n.Tasks == 1])
		app.noteSealed(n.Sealed)
		if agreed.dryRun || n.Tasks == 0 {
			return printOne(app, matchedRow{n.Tasks, agreed.dryRun})
		}
		if err := app.confirm(agreed, "rerun "+tasks); err != nil {
			return err
		}
		r.Expected = n.Tasks
		begun, err := rerun.Start(ctx, client.Store(), r)
		if err = app.audited(ctx, client, "archive.rerun", begun.ID.String(), err); err != nil {
			return err
		}
		return reruns.begun(ctx, app, begun, detach)
	})
}
