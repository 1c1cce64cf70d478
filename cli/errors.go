package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// groupRow is a group of similar errors.
type groupRow struct {
	Fingerprint string  `json:"fingerprint" col:"FINGERPRINT"`
	Queue       string  `json:"queue" col:"QUEUE"`
	Kind        string  `json:"kind" col:"KIND"`
	Count       int64   `json:"count" col:"COUNT"`
	Waiting     int64   `json:"waiting" col:"RETRYABLE"`
	Dead        int64   `json:"dead" col:"DISCARDED"`
	First       instant `json:"first" col:"FIRST"`
	Last        instant `json:"last" col:"LAST"`
	SampleTask  tusk.ID `json:"sample_task" one:"SAMPLE_TASK"`
	Sample      string  `json:"sample" col:"SAMPLE"`
}

func groupOf(g store.ErrorGroup) groupRow {
	return groupRow{g.Fingerprint, g.Queue, g.Kind, g.Count, g.Waiting, g.Dead, instant(g.First), instant(g.Last),
		g.SampleTask, g.Sample}
}

// groupFlags select groups.
type groupFlags struct {
	queue, kind string
	since       time.Time
	limit       int
}

func (g *groupFlags) addTo(cmd *cobra.Command) {
	g.limit = 100
	cmd.Flags().StringVar(&g.queue, "queue", "", "queue `name`")
	cmd.Flags().StringVar(&g.kind, "kind", "", "kind `name`")
	cmd.Flags().Var(whenFlag(&g.since, ""), "since", "last seen at or after: 2h, 7d or RFC 3339")
	cmd.Flags().Var(numberFlag(&g.limit, 1, query.MostGroups), "limit", "the maximum number of groups, latest first")
}

func (g *groupFlags) filter() (store.ErrorFilter, error) {
	return store.ErrorFilter{Queue: g.queue, Kind: g.kind, Since: g.since, Limit: g.limit}, validNames(g.queue, g.kind)
}

// validNames checks the names in a filter that are set.
func validNames(queue, kind string) error {
	if queue != "" {
		if err := tusk.ValidateName("queue", queue); err != nil {
			return err
		}
	}
	if kind != "" {
		return tusk.ValidateName("kind", kind)
	}
	return nil
}

func newErrorsCommand(app *App) *cobra.Command {
	var flags groupFlags
	c := &cobra.Command{
		Use:   "errors",
		Short: "Group similar failures, and retry a group",
		Long: `Group failed attempts by fingerprint: the same kind, and the same error text apart from
numbers, ids and quoted parts. Without a subcommand, list the groups.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.listErrors(cmd.Context(), &flags) },
	}
	flags.addTo(c)
	c.AddCommand(newErrorsListCommand(app), newErrorsShowCommand(app), newErrorsRetryCommand(app))
	return c
}

func newErrorsListCommand(app *App) *cobra.Command {
	var flags groupFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List groups of similar errors, latest first",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return app.listErrors(cmd.Context(), &flags) },
	}
	flags.addTo(c)
	return c
}

func (app *App) listErrors(ctx context.Context, flags *groupFlags) error {
	filter, err := flags.filter()
	if err != nil {
		return err
	}
	return app.withClient(ctx, func(client *tusk.Client) error {
		groups, more, err := query.LatestGroups(ctx, client, filter)
		if err != nil {
			return err
		}
		if more {
			app.note("the latest %s: there are older ones; --limit shows up to %d, --since, --queue and --kind narrow them",
				count(len(groups), "group"), query.MostGroups)
		}
		return list(app, rowsOf(groups, groupOf), "no errors")
	})
}

func newErrorsShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show FINGERPRINT",
		Short: "Show a group: its counts and its latest error in full",
		Args:  between(1, 1, "FINGERPRINT"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			groups, err := findGroups(ctx, client, args[0])
			if err != nil {
				return err
			}
			for _, g := range groups {
				if err := printOne(app, groupOf(g)); err != nil {
					return err
				}
			}
			app.note("tusk tasks list --fingerprint %s lists its tasks", args[0])
			return nil
		}),
	}
}

// findGroups returns the groups with a fingerprint, one for each queue where it was seen.
func findGroups(ctx context.Context, client *tusk.Client, fingerprint string) ([]store.ErrorGroup, error) {
	found, err := query.Groups(ctx, client, fingerprint)
	if errors.Is(err, tusk.ErrNotFound) {
		return nil, &Problem{Code: "not_found", Exit: exitNotFound, Hint: "tusk errors lists the groups",
			Text: strings.TrimSuffix(err.Error(), ": "+tusk.ErrNotFound.Error()), Err: err}
	}
	return found, err
}

func newErrorsRetryCommand(app *App) *cobra.Command {
	var (
		change changeFlags
		agreed consent
		how    operationFlags
	)
	c := &cobra.Command{
		Use:   "retry FINGERPRINT",
		Short: "Retry the failed tasks of a group, now or later",
		Example: `  tusk errors retry 2c001d9bb7e038aa --dry-run
  tusk errors retry 2c001d9bb7e038aa --in 30m`,
		Args: between(1, 1, "FINGERPRINT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := app.withClient(cmd.Context(), func(client *tusk.Client) error {
				_, err := findGroups(cmd.Context(), client, args[0])
				return err
			})
			if err != nil {
				return err
			}
			e := &edit{app: app, editCommand: editCommand{name: "retry", op: store.Retry},
				change: change.change(store.Retry), consent: agreed, operationFlags: how}
			return e.matching(cmd.Context(), tusk.Filter{Fingerprint: args[0]}, 0)
		},
	}
	change.addWhen(c)
	agreed.addTo(c)
	how.addTo(c)
	return c
}
