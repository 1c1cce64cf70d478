package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/store"
)

func newDBCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "db",
		Short: "Check a database, create its roles, or make a restored one usable",
	}
	c.AddCommand(newDBCheckCommand(app), newDBRebaseCommand(app), newDBRolesCommand(app))
	return c
}

// finding is something that weakens Tusk's promises.
type finding struct {
	Warning string `json:"warning" col:"WARNING"`
}

func newDBCheckCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Report what in the database breaks or weakens what Tusk promises",
		Long: `Report whatever in the database breaks a promise of Tusk (an error) or weakens it (a
warning): settings and version of the server, the schema, and whether it was restored
from another server. tusk serve and tusk work make the same checks when they start.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, closeStore, err := app.Store(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			var found []finding
			if c, ok := store.As[store.Checker](s); ok {
				warnings, err := c.Check(cmd.Context())
				if err != nil {
					return fmt.Errorf("database: %w", err)
				}
				for _, warning := range warnings {
					found = append(found, finding{warning})
				}
			}
			return list(app, found, "the database keeps what Tusk promises")
		},
	}
}

// rebaseReport is what tusk db rebase did or would do.
type rebaseReport struct {
	Tasks  int64 `json:"tasks" col:"TASKS"` // that can then be claimed
	DryRun bool  `json:"dry_run" col:"DRY_RUN"`
}

func newDBRebaseCommand(app *App) *cobra.Command {
	var (
		agreed      consent
		keepArchive bool
	)
	c := &cobra.Command{
		Use:   "rebase",
		Short: "Make a database usable that was restored from another server",
		Long: `Make a PostgreSQL database usable after a restore from a dump or a logical copy. Its
tables name transactions of the server that they come from. Until the database is
rebased, nothing is enqueued and nothing is claimed. Tasks that were running at the time
of the copy become available again. Stop all servers and workers first.

A rebased database no longer owns the archive of the original. Pass --keep-archive if it
replaces the original; this also works later, with a database that is already rebased.
Never run two databases that own one archive: each deletes args and outputs that only
the other one refers to.`,
		Example: `  tusk db rebase --dry-run
  tusk db rebase --yes
  tusk db rebase --yes --keep-archive`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, closeStore, err := app.Store(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			return app.rebase(cmd.Context(), s, &agreed, keepArchive)
		},
	}
	agreed.addTo(c)
	c.Flags().BoolVar(&keepArchive, "keep-archive", false, "go on with the archive: this database replaces the original")
	return c
}

func (app *App) rebase(ctx context.Context, s store.Store, agreed *consent, keepArchive bool) error {
	r, ok := store.As[store.Rebaser](s)
	if !ok {
		return fmt.Errorf("db rebase: %w: its databases can be restored anywhere as they are", store.ErrUnsupported)
	}
	if c, ok := store.As[store.Checker](s); ok {
		switch _, err := c.Check(ctx); {
		case err == nil && keepArchive && !agreed.dryRun:
			return app.keepArchive(ctx, s, agreed)
		case err == nil:
			app.note(nothingToRebase)
			return nil
		case !errors.Is(err, store.ErrMoved):
			return fmt.Errorf("database: %w", err)
		}
	}
	tasks, err := r.Rebase(ctx, true)
	if err != nil {
		return err
	}
	if !agreed.dryRun {
		if err := app.confirm(agreed, fmt.Sprintf("rebase the database, with %s that can be claimed then",
			count(int(tasks), "task"))); err != nil {
			return err
		}
		if tasks, err = r.Rebase(ctx, false); err != nil {
			return err
		}
		if keepArchive {
			if _, err := archive.Keep(ctx, s); err != nil {
				return fmt.Errorf("the database is rebased, but does not own the archive: "+
					"repeat tusk db rebase --keep-archive: %w", err)
			}
		}
	}
	return printOne(app, rebaseReport{Tasks: tasks, DryRun: agreed.dryRun})
}

const nothingToRebase = "the database is this server's own: there is nothing to do"

// keepArchive gives a database that was rebased before the archive of the original.
func (app *App) keepArchive(ctx context.Context, s store.Store, agreed *consent) error {
	if err := app.confirm(agreed, "let this database replace the original, and own its archive"); err != nil {
		return err
	}
	switch kept, err := archive.Keep(ctx, s); {
	case err != nil:
		return fmt.Errorf("keep the archive: %w", err)
	case kept:
		app.note("the database owns the archive of the original")
	default:
		app.note(nothingToRebase)
	}
	return nil
}

func newDBRolesCommand(app *App) *cobra.Command {
	var prefix string
	var apply bool
	c := &cobra.Command{
		Use:   "roles",
		Short: "Print or run the SQL that creates roles with only the rights they need",
		Long: `Print the SQL that creates the database roles or updates their rights; with --apply, run
it. PREFIX_migrate owns the tables. PREFIX_work is for tusk work, tusk serve and programs
with the library. PREFIX_enqueue (PostgreSQL) may only call tusk.enqueue. PREFIX_read may
only read. No role can log in until you allow it. Run the command again after each tusk
migrate up.`,
		Example: `  tusk db roles
  tusk db roles --apply`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, closeStore, err := app.Store(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			g, ok := store.As[store.Granter](s)
			if !ok {
				return fmt.Errorf("db roles: %w: who may use the file may use the database", store.ErrUnsupported)
			}
			statements, err := g.Roles(cmd.Context(), prefix, apply)
			if err != nil {
				return err
			}
			for _, text := range statements {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), text+";"); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "tusk", "prefix of the role names")
	c.Flags().BoolVar(&apply, "apply", false, "run the SQL as well")
	return c
}
