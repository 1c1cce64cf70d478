package cli

import (
	"context"
	"errors"

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
	Files      int      `json:"files" one:"FILES"` // looked through, of how many
	Of         int      `json:"of" one:"OF"`
	Left       []string `json:"left" one:"LEFT"` // the first tasks that were left alone, and why
	StartedAt  instant  `json:"started_at" col:"STARTED"`
	FinishedAt instant  `json:"finished_at" col:"FINISHED"`
	Error      string   `json:"error" col:"ERROR"`
}

func rerunOf(r rerun.Rerun) rerunRow {
	row := rerunRow{r.ID.String(), string(r.State), r.By, r.Expected, r.Enqueued, r.KeyTaken, r.Refused, r.Files, r.Of, []string{},
		instant(r.StartedAt), instant(r.FinishedAt), r.Error}
	for _, l := range r.Left {
		row.Left = append(row.Left, l.ID.String()+": "+l.Why)
	}
	if r.CancelRequested && !r.Ended() {
		row.State = "stopping"
	}
	return row
}

func newArchiveRerunCommand(app *App) *cobra.Command {
	var filter archiveFilter
	var agreed consent
	var detach bool
	c := &cobra.Command{
		Use:   "rerun [ID…] [filter flags]",
		Short: "Run tasks of the archive again, as new tasks",
		Long: `Run tasks of the archive again, as new tasks: those that are named, or all that
match. A new task has the kind, args, queue, tenant, key, priority, tags and settings
of the other, whose id is in its metadata as rerun_of. The other stays in the archive.

A rerun by filter is stored. When it is interrupted, tusk archive reruns carry ID or
a tusk serve --archive goes on with it, and no task is enqueued twice.`,
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

// ranRow is what became of a task that was named.
type ranRow struct {
	ID     tusk.ID `json:"id" col:"ID"`
	New    string  `json:"new" col:"NEW"` // the id of the task that stands for it now
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

// matchedRow says how many tasks matched; alone when nothing is done with them.
type matchedRow struct {
	Matched int64 `json:"matched" col:"MATCHED"`
	DryRun  bool  `json:"dry_run" one:"DRY_RUN"`
}

// rerunSum says what a rerun by filter does.
type rerunSum struct {
	matchedRow
	rerunRow
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
		if !detach {
			begun, err = app.carryRerun(ctx, c, begun)
		}
		return errors.Join(printOne(app, rerunSum{matchedRow{n.Tasks, false}, rerunOf(begun)}), err)
	})
}

// carryRerun carries a rerun on, with a bar, until it is over. An interrupt leaves it.
func (app *App) carryRerun(ctx context.Context, c *rerun.Carrier, r rerun.Rerun) (rerun.Rerun, error) {
	bar := newProgress(app, r.Expected)
	seen := int64(0)
	ended, err := c.Carry(ctx, r.ID, func(now rerun.Rerun) {
		at := now.Enqueued + now.KeyTaken + now.Refused
		bar.add(at-seen, int(at))
		seen = at
	})
	bar.end()
	if ctx.Err() != nil {
		app.note("interrupted: tusk archive reruns carry %s goes on with it, or cancel ends it", r.ID)
	}
	if ended.ID.IsZero() {
		ended = r
	}
	if err == nil && ended.State == rerun.Failed {
		err = &Problem{Code: "rerun_failed", Exit: exitConflict, Text: ended.Error}
	}
	return ended, err
}

func newArchiveRerunsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "reruns",
		Short: "Watch, carry on and cancel reruns of what matched a filter",
	}
	get := func(ctx context.Context, client *tusk.Client, id tusk.ID) (rerun.Rerun, error) {
		return rerun.Get(ctx, client.Store(), id)
	}
	c.AddCommand(
		newListCommand(app, "List reruns, newest first", "there is no rerun",
			func(ctx context.Context, client *tusk.Client) ([]rerunRow, error) {
				all, err := rerun.List(ctx, client.Store())
				return rowsOf(all, rerunOf), err
			}),
		app.rerunCommand("show ID", "Show a rerun", get),
		app.rerunCommand("carry ID", "Carry a rerun on, or watch another process do it, until it is over",
			func(ctx context.Context, client *tusk.Client, id tusk.ID) (r rerun.Rerun, err error) {
				if r, err = get(ctx, client, id); err != nil {
					return r, err
				}
				err = app.withArchive(ctx, func(a *archive.Archive) error {
					r, err = app.carryRerun(ctx, &rerun.Carrier{Client: client, Archive: a, Log: app.Log}, r)
					return err
				})
				return r, err
			}),
		app.rerunCommand("cancel ID", "Stop a rerun; what it has enqueued stays",
			func(ctx context.Context, client *tusk.Client, id tusk.ID) (rerun.Rerun, error) {
				err := rerun.Cancel(ctx, client.Store(), id)
				if err = app.audited(ctx, client, "archive.rerun.cancel", id.String(), err); err != nil {
					return rerun.Rerun{}, err
				}
				return get(ctx, client, id)
			}))
	return c
}

// rerunCommand does one thing with a rerun and prints how that stands.
func (app *App) rerunCommand(use, short string, do func(context.Context, *tusk.Client, tusk.ID) (rerun.Rerun, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tusk.ParseID(args[0])
			if err != nil {
				return usage("", "%v", err)
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				r, err := do(cmd.Context(), client, id)
				if r.ID.IsZero() {
					return err
				}
				return errors.Join(printOne(app, rerunOf(r)), err)
			})
		},
	}
}
