package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/store"
)

// migrationRow is one step of a schema.
type migrationRow struct {
	Version int64  `json:"version" col:"VERSION"`
	Name    string `json:"name" col:"NAME"`
	// State is applied or pending; or up or down, for what was done or would be.
	State     string `json:"state" col:"STATE"`
	AppliedAt moment `json:"applied_at" col:"APPLIED"`
	SQL       string `json:"sql,omitempty"`
}

func newMigrateCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create, upgrade or revert the schema",
	}
	c.AddCommand(newMigrateUpCommand(app), newMigrateDownCommand(app), newMigrateStatusCommand(app))
	return c
}

// migrateFlags are the flags of up and down.
type migrateFlags struct {
	to      int
	showSQL bool
	consent consent
}

func (m *migrateFlags) addTo(cmd *cobra.Command, to string) {
	m.to = -1
	cmd.Flags().Var(&value[int]{into: &m.to, name: "version", parse: parseVersion}, "to", to)
	cmd.Flags().BoolVar(&m.showSQL, "show-sql", false, "print the statements of each step")
	m.consent.addTo(cmd)
}

func parseVersion(text string) (n int, err error) {
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n < 0 || fmt.Sprint(n) != text {
		return 0, fmt.Errorf("want a version of the schema: 0 or a number that tusk migrate status lists")
	}
	return n, nil
}

// divided is an engine whose tasks are spread over a number of ledgers.
type divided interface{ Divide(ledgers int) error }

// divide sets the number of ledgers; 0 means that it was not given.
func divide(m store.Migrator, ledgers int) error {
	if ledgers == 0 {
		return nil
	}
	d, ok := m.(divided)
	if !ok {
		return usage("name its servers: --db \"ledgers: postgres://host1/database postgres://host2/database\"",
			"--ledgers is for a database of many ledgers")
	}
	if err := d.Divide(ledgers); err != nil {
		return usage("leave --ledgers out to bring those that there are up to date", "%v", err)
	}
	return nil
}

func newMigrateUpCommand(app *App) *cobra.Command {
	var flags migrateFlags
	var ledgers int
	c := &cobra.Command{
		Use:   "up",
		Short: "Create the schema or bring it up to date",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a := creating
			if flags.consent.dryRun {
				a = planning
			}
			m, steps, closeStore, err := app.migrator(cmd.Context(), a, ledgers)
			if err != nil {
				return err
			}
			defer closeStore()
			if err := knownVersion(steps, flags.to); err != nil {
				return err
			}
			var todo []store.Migration
			for _, s := range steps {
				if s.AppliedAt.IsZero() && (flags.to < 0 || s.Version <= int64(flags.to)) {
					todo = append(todo, s)
				}
			}
			return app.migrate(cmd.Context(), m, int64(flags.to), todo, "up", &flags)
		},
	}
	flags.addTo(c, "stop at this version; default: the newest")
	c.Flags().IntVar(&ledgers, "ledgers", 0,
		"create this many ledgers in a database without any, or add ledgers up to this number")
	return c
}

func newMigrateDownCommand(app *App) *cobra.Command {
	var flags migrateFlags
	c := &cobra.Command{
		Use:   "down",
		Short: "Revert the last step of the schema, or all above a version, and delete its data",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, steps, closeStore, err := app.migrator(cmd.Context(), existing, 0)
			if err != nil {
				return err
			}
			defer closeStore()
			if err := knownVersion(steps, flags.to); err != nil {
				return err
			}
			todo, to := stepsDown(steps, int64(flags.to))
			if len(todo) == 0 {
				app.note("there is nothing to take back")
				return nil
			}
			if !flags.consent.dryRun {
				question := fmt.Sprintf("revert %s of the schema and delete its data", count(len(todo), "step"))
				if err := app.confirm(&flags.consent, question); err != nil {
					return err
				}
			}
			return app.migrate(cmd.Context(), m, to, todo, "down", &flags)
		},
	}
	flags.addTo(c, "go back to this version; default: the one before; 0: no schema")
	return c
}

// stepsDown returns the applied steps above a version (-1 means only the last one), newest first, and the version
// that remains.
func stepsDown(steps []store.Migration, to int64) ([]store.Migration, int64) {
	var applied []store.Migration
	for _, s := range slices.Backward(steps) {
		if !s.AppliedAt.IsZero() {
			applied = append(applied, s)
		}
	}
	if to < 0 {
		to = 0
		for _, s := range applied {
			if s.Version < applied[0].Version { // several steps may belong to one version
				to = s.Version
				break
			}
		}
	}
	end := slices.IndexFunc(applied, func(s store.Migration) bool { return s.Version <= to })
	if end >= 0 {
		applied = applied[:end]
	}
	return applied, to
}

func newMigrateStatusCommand(app *App) *cobra.Command {
	var showSQL bool
	c := &cobra.Command{
		Use:   "status",
		Short: "List the steps of the schema, applied or not",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, steps, closeStore, err := app.migrator(cmd.Context(), existing, 0)
			if err != nil {
				return err
			}
			defer closeStore()
			return app.printSteps(steps, "", showSQL)
		},
	}
	c.Flags().BoolVar(&showSQL, "show-sql", false, "print the statements of each step")
	return c
}

// migrator opens the store, whatever its schema, and lists its steps. ledgers is how many there are to be; 0 means that
// this was not given.
func (app *App) migrator(
	ctx context.Context, a access, ledgers int,
) (store.Migrator, []store.Migration, func(), error) {
	_, s, closeStore, err := app.open(ctx, a)
	if err != nil {
		return nil, nil, closeStore, err
	}
	m, ok := store.As[store.Migrator](s)
	if !ok {
		closeStore()
		return nil, nil, func() {}, fmt.Errorf("migrate: %w: it has no schema", store.ErrUnsupported)
	}
	if err := divide(m, ledgers); err != nil {
		closeStore()
		return nil, nil, func() {}, err
	}
	steps, err := m.Migrations(ctx)
	if err != nil && (len(steps) == 0 || !errors.Is(err, store.ErrSchemaMissing)) {
		closeStore()
		return nil, nil, func() {}, fmt.Errorf("migrate: %w", err)
	}
	return m, steps, closeStore, nil
}

func knownVersion(steps []store.Migration, version int) error {
	if version <= 0 || len(steps) == 0 || slices.ContainsFunc(steps, func(s store.Migration) bool {
		return s.Version == int64(version)
	}) {
		return nil
	}
	return usage("tusk migrate status lists them", "the schema has no version %d", version)
}

// migrate applies the steps, or only lists them with --dry-run.
func (app *App) migrate(
	ctx context.Context, m store.Migrator, to int64, todo []store.Migration, direction string, flags *migrateFlags,
) error {
	if flags.consent.dryRun {
		return app.printSteps(todo, "would go "+direction, flags.showSQL)
	}
	done, err := m.Migrate(ctx, to)
	if err != nil {
		return err
	}
	return app.printSteps(done, direction, flags.showSQL)
}

func (app *App) printSteps(steps []store.Migration, state string, showSQL bool) error {
	if len(steps) == 0 {
		app.note("there is nothing to do")
		return nil
	}
	rows := make([]migrationRow, len(steps))
	for i, s := range steps {
		rows[i] = migrationRow{Version: s.Version, Name: s.Name, State: state, AppliedAt: moment(s.AppliedAt)}
		if state == "" {
			rows[i].State = map[bool]string{true: "pending", false: "applied"}[s.AppliedAt.IsZero()]
		}
		if showSQL {
			rows[i].SQL = s.SQL
		}
	}
	if err := printList(app, rows); err != nil || !showSQL || app.flags.json {
		return err
	}
	for _, s := range steps {
		fmt.Fprintf(app.Out, "\n-- %d %s\n%s\n", s.Version, s.Name, strings.TrimSpace(s.SQL))
	}
	return nil
}
