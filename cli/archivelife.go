package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/internal/duration"
	accounts "github.com/tuskqueue/tusk/server/access"
)

func newArchiveKeepCommand(app *App) *cobra.Command {
	var all, like bool
	var keep time.Duration
	c := &cobra.Command{
		Use:   "keep [QUEUE…]",
		Short: "Set how long tasks are kept in the archive",
		Long: `Set how long tasks are kept in the archive after their end: for the named queues, or
with --all for every queue without a setting of its own. By default they are kept for
ever. A tusk serve --archive deletes older tasks once an hour, one file of a day at a
time; tusk archive prune does so now. Tasks under a hold are never deleted.`,
		Example: `  tusk archive keep --all --for 26280h
  tusk archive keep audit --for forever`,
		Args: between(0, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usage("", "name queues, or say --all")
			}
			if !like && keep == 0 {
				return usage("", "--for is missing: a duration, or forever")
			}
			setting, result := &keep, "kept for "+duration.Text(keep)
			switch {
			case like:
				setting, result = nil, "kept like others"
			case keep == tusk.Forever:
				*setting, result = 0, "kept for ever"
			}
			set := func(c *tusk.Client, ctx context.Context, name string) error {
				err := archive.SetRetention(ctx, c.Store(), name, setting)
				if errors.Is(err, archive.ErrTooLong) {
					err = usage("", "--for: %v", err)
				}
				return app.audited(ctx, c, "archive.keep", name, err)
			}
			if !all {
				return app.forEach(cmd.Context(), "queue", names, result, set)
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				if err := set(client, cmd.Context(), ""); err != nil {
					return err
				}
				return printList(app, []doneRow{{"(all)", result}})
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all queues without a setting of their own")
	c.Flags().Var(keepFlag(&keep), "for", "how long: a `duration`, or forever")
	c.Flags().BoolVar(&like, "like-others", false, "follow the setting of --all")
	c.MarkFlagsMutuallyExclusive("all", "like-others")
	c.MarkFlagsMutuallyExclusive("for", "like-others")
	return app.meantQueues(c, func(names []string) []string {
		if like {
			return nil // removing a setting needs no confirmation
		}
		return names
	})
}

// goneRow says what was deleted from the archive, or what would be.
type goneRow struct {
	Tasks  int64 `json:"tasks" col:"TASKS"`
	Files  int   `json:"files" col:"FILES"` // deleted or rewritten
	Bytes  int64 `json:"bytes" col:"BYTES"`
	DryRun bool  `json:"dry_run" one:"DRY_RUN"`
}

func newArchivePruneCommand(app *App) *cobra.Command {
	var agreed consent
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete archived tasks that are past their retention, now",
		Long: `Delete archived tasks that are past the time set by tusk archive keep, except tasks
under a hold. A tusk serve --archive does so once an hour. A file is deleted when all of
its tasks may be deleted.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return app.withKeeper(ctx, func(client *tusk.Client, a *archive.Archive, r *archive.Runner) error {
				would, err := a.Prunable(ctx, client.Store())
				if err != nil {
					return err
				}
				if agreed.dryRun || would.Tasks == 0 {
					return printOne(app, goneRow{would.Tasks, would.Files, would.Bytes, agreed.dryRun})
				}
				if err := app.confirm(&agreed, "delete "+count(int(would.Tasks), "task")+" from the archive"); err != nil {
					return err
				}
				bar := newArchiveBar(app)
				gone, err := r.Prune(ctx, bar.cut)
				bar.end()
				err = app.audited(ctx, client, "archive.prune", count(int(gone.Tasks), "task"), err)
				return errors.Join(printOne(app, goneRow{gone.Tasks, gone.Files, gone.Bytes, false}), err)
			})
		},
	}
	agreed.addTo(c)
	return c
}

func (b *archiveBar) cut(done, of int, gone archive.Gone) {
	b.at(archive.Progress{Files: done, Of: of}, int(gone.Tasks))
}

// erasureRow is a request to erase a tenant's tasks.
type erasureRow struct {
	ID     string  `json:"id" col:"ID"`
	Tenant string  `json:"tenant" col:"TENANT"`
	State  string  `json:"state" col:"STATE"`
	Tasks  int64   `json:"tasks" col:"TASKS"` // deleted
	Files  int     `json:"files" one:"FILES"`
	Held   int64   `json:"held" col:"HELD"` // kept by holds
	By     string  `json:"by" col:"BY"`
	At     instant `json:"at" col:"ASKED"`
	Done   instant `json:"done_at" col:"DONE"`
	Error  string  `json:"error" col:"ERROR"`
}

func erasureOf(e archive.Erasure) erasureRow {
	return erasureRow{e.ID.String(), e.Tenant, string(e.State), e.Tasks, e.Files, e.Held, e.By, instant(e.At),
		instant(e.Done), e.Error}
}

func newArchiveEraseCommand(app *App) *cobra.Command {
	var agreed consent
	var detach bool
	c := &cobra.Command{
		Use:   "erase TENANT",
		Short: "Delete all tasks of a tenant from the archive",
		Long: `Delete all tasks of a tenant from the archive, by rewriting the files that contain some.
The request is stored: if the command is interrupted, a tusk serve --archive continues
it, and tusk archive erasures says when it was done. Tasks under a hold stay until the
hold is removed. Tasks of the tenant in the database are not deleted: run tusk tasks
delete --tenant TENANT first.`,
		Args: between(1, 1, "TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, tenant := cmd.Context(), args[0]
			if err := tusk.ValidateName("tenant", tenant); err != nil {
				return err
			}
			return app.withKeeper(ctx, func(client *tusk.Client, a *archive.Archive, r *archive.Runner) error {
				would, err := a.Erasable(ctx, client.Store(), tenant)
				if err != nil {
					return err
				}
				if agreed.dryRun {
					return printOne(app, goneRow{would.Tasks, would.Files, would.Bytes, true})
				}
				if err := app.confirm(&agreed, "delete "+count(int(would.Tasks), "task")+" of "+tenant+
					" from the archive for ever"); err != nil {
					return err
				}
				e, err := archive.RequestErasure(ctx, client.Store(), tusk.NewID(), tenant, app.whoami())
				if err = app.audited(ctx, client, "archive.erase", tenant, err); err != nil || detach {
					return errors.Join(err, printOne(app, erasureOf(e)))
				}
				bar := newArchiveBar(app)
				e, err = r.Erase(ctx, e, bar.cut)
				bar.end()
				return errors.Join(printOne(app, erasureOf(e)), err)
			})
		},
	}
	agreed.addTo(c)
	c.Flags().BoolVar(&detach, "detach", false, "store the request and leave it to a tusk serve --archive")
	return c
}

// holdRow is a legal hold.
type holdRow struct {
	Name   string  `json:"name" col:"NAME"`
	Queue  string  `json:"queue" col:"QUEUE"`
	Tenant string  `json:"tenant" col:"TENANT"`
	From   instant `json:"from" col:"FROM"`
	Until  instant `json:"until" col:"UNTIL"`
	Reason string  `json:"reason" col:"REASON"`
	By     string  `json:"by" col:"BY"`
	At     instant `json:"at" col:"PUT"`
}

func holdOf(h archive.Hold) holdRow {
	return holdRow{h.Name, h.Queue, h.Tenant, instant(h.From), instant(h.Until), h.Reason, h.By, instant(h.At)}
}

func newArchiveHoldCommand(app *App) *cobra.Command {
	var h archive.Hold
	var all bool
	c := &cobra.Command{
		Use:   "hold NAME",
		Short: "Keep archived tasks from being pruned or erased",
		Long: `Create a legal hold, or change the hold of that name: matching tasks of the archive are
neither pruned nor erased until it is removed. Once the command has succeeded, no task
under the hold is deleted. A hold covers what is in the archive now and later, but not
the database: have the queue archived.`,
		Example: `  tusk archive hold case-17 --tenant acme --since 2026-01-01T00:00:00Z --reason "letter of 3 May"
  tusk archive unhold case-17`,
		Args: between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			h.Name, h.By, h.At = args[0], app.whoami(), time.Now().UTC()
			if err := tusk.ValidateName("hold", h.Name); err != nil {
				return err
			}
			if all == (h.Queue != "" || h.Tenant != "" || !h.From.IsZero() || !h.Until.IsZero()) {
				return usage("", "say what is held: --queue, --tenant, --since, --until, or --all")
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				err := archive.PutHold(cmd.Context(), client.Store(), h, time.Minute)
				if err = app.audited(cmd.Context(), client, "archive.hold", h.Name, err); err != nil {
					return err
				}
				return printOne(app, holdOf(h))
			})
		},
	}
	c.Flags().StringVar(&h.Queue, "queue", "", "tasks of this `queue`")
	c.Flags().StringVar(&h.Tenant, "tenant", "", "tasks of this `tenant`")
	c.Flags().Var(whenFlag(&h.From, ""), "since", "tasks that ended then or later: 30d or RFC 3339")
	c.Flags().Var(whenFlag(&h.Until, ""), "until", "tasks that ended before: 30d or RFC 3339")
	c.Flags().StringVar(&h.Reason, "reason", "", "`text` to keep with the hold")
	c.Flags().BoolVar(&all, "all", false, "all tasks")
	return app.meantQueues(c, func([]string) []string {
		if h.Queue == "" {
			return nil
		}
		return []string{h.Queue}
	})
}

func newArchiveUnholdCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "unhold NAME…",
		Short: "Remove holds",
		Args:  between(1, -1, "NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "hold", names, "removed",
				func(c *tusk.Client, ctx context.Context, name string) error {
					err := archive.RemoveHold(ctx, c.Store(), name)
					if errors.Is(err, archive.ErrNoHold) {
						err = &Problem{Code: "not_found", Exit: exitNotFound, Text: err.Error()}
					}
					return app.audited(ctx, c, "archive.unhold", name, err)
				})
		},
	}
}

// withShelf calls do with the archive that --archive names, and the database.
func (app *App) withShelf(ctx context.Context, do func(*tusk.Client, *archive.Archive) error) error {
	return app.withClient(ctx, func(client *tusk.Client) error {
		return app.withArchive(ctx, func(a *archive.Archive) error { return do(client, a) })
	})
}

// withKeeper calls do to change the archive that --archive names.
func (app *App) withKeeper(ctx context.Context, do func(*tusk.Client, *archive.Archive, *archive.Runner) error) error {
	return app.withShelf(ctx, func(client *tusk.Client, a *archive.Archive) error {
		bucket, err := place.Open(ctx, app.flags.archive)
		if err != nil {
			return usage("", "%v", err)
		}
		defer bucket.Close()
		r, err := archive.NewRunner(archive.Options{Store: client.Store(), Bucket: bucket, ID: tusk.NewID(),
			NewID: tusk.NewID, Log: app.Log})
		if err != nil {
			return usage("", "%v", err)
		}
		return do(client, a, r)
	})
}

// audited records the result of a change to the archive in the audit log.
func (app *App) audited(ctx context.Context, client *tusk.Client, action, target string, failed error) error {
	return app.recorded(ctx, accounts.NewBook(client.Store()), action, target, failed)
}
