package cli

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// taskRow is a task as list and show print it.
type taskRow struct {
	ID          tusk.ID           `json:"id" col:"ID"`
	State       tusk.State        `json:"state" col:"STATE"`
	Queue       string            `json:"queue" col:"QUEUE"`
	Kind        string            `json:"kind" col:"KIND"`
	Tenant      string            `json:"tenant" one:"TENANT"`
	Priority    int16             `json:"priority" col:"PRIORITY"`
	Attempt     int               `json:"attempt" col:"ATTEMPT"`
	MaxAttempts int               `json:"max_attempts" one:"MAX_ATTEMPTS"`
	Crashes     int               `json:"crashes" one:"CRASHES"`
	EnqueuedAt  instant           `json:"enqueued_at" col:"ENQUEUED"`
	RunAt       instant           `json:"run_at" col:"RUN_AT"`
	ExpiresAt   instant           `json:"expires_at" one:"EXPIRES"`
	Deadline    instant           `json:"deadline" one:"DEADLINE"`
	ClaimedAt   instant           `json:"claimed_at" one:"CLAIMED"`
	FinishedAt  instant           `json:"finished_at" one:"FINISHED"`
	Key         string            `json:"key" col:"KEY"`
	Tags        []string          `json:"tags" one:"TAGS"`
	Reason      string            `json:"reason" col:"REASON"`
	Worker      string            `json:"worker" one:"WORKER"`
	Timeout     seconds           `json:"timeout_seconds" one:"TIMEOUT"`
	Stall       seconds           `json:"stall_timeout_seconds" one:"STALL_TIMEOUT"`
	Backoff     string            `json:"backoff" one:"BACKOFF"`
	Schedule    string            `json:"schedule" one:"SCHEDULE"`
	Tick        instant           `json:"tick" one:"TICK"`
	Metadata    map[string]string `json:"metadata" one:"METADATA"`
	Args        json.RawMessage   `json:"args" one:"ARGS"`
}

func rowOf(t tusk.TaskInfo) taskRow {
	row := taskRow{ID: t.ID, State: t.State, Queue: t.Queue, Kind: t.Kind, Tenant: t.Tenant, Priority: t.Priority,
		Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Crashes: t.Crashes,
		EnqueuedAt: instant(t.EnqueuedAt), RunAt: instant(t.RunAt), ExpiresAt: instant(t.ExpiresAt),
		Deadline:  instant(t.Deadline),
		ClaimedAt: instant(t.ClaimedAt), FinishedAt: instant(t.FinishedAt),
		Key: t.Key, Tags: t.Tags, Reason: t.Reason, Timeout: seconds(t.Timeout), Stall: seconds(t.StallTimeout),
		Backoff:  backoffText(t.Backoff),
		Schedule: t.Schedule, Tick: instant(t.Tick), Metadata: t.Metadata, Args: t.Args}
	if !t.Worker.IsZero() {
		row.Worker = t.Worker.String()
	}
	if row.Tags == nil {
		row.Tags = []string{}
	}
	if row.Metadata == nil {
		row.Metadata = map[string]string{}
	}
	return row
}

func newTasksCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "tasks",
		Short: "Find, show and change tasks",
		Long: `Find, show and change tasks: by their ids, or all that match the filter flags. A command
that changes tasks first says how many match. cancel (by filter) and delete ask for
confirmation; without a terminal they require --yes.`,
	}
	c.AddCommand(newTasksListCommand(app), newTasksShowCommand(app), newTasksWhyCommand(app),
		newTasksWaitCommand(app),
		newTasksContentCommand(app, "args", "args", (*tusk.Client).ArgsOf),
		newTasksContentCommand(app, "output", "output", outputOf))
	for _, e := range editCommands {
		c.AddCommand(newEditCommand(app, e))
	}
	return c
}

func newTasksListCommand(app *App) *cobra.Command {
	filter := filterFlags{limit: 100}
	var inArgs string
	c := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Example: `  tusk tasks list --state retryable,discarded --queue mail --since 24h
  tusk tasks list --args order.id=17 --since 2h`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := filter.filter()
			if err != nil {
				return firstProblem(err)
			}
			if inArgs != "" {
				return app.searchArgs(cmd.Context(), f, inArgs, filter)
			}
			if filter.all {
				filter.limit = 0
			}
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			var rows []taskRow
			found := false
			err = eachPage(cmd.Context(), client, f, filter.limit, func(page []tusk.TaskInfo) error {
				for _, t := range page {
					rows = append(rows, rowOf(t))
				}
				found = true
				if app.terminal { // a table has one set of widths
					return nil
				}
				defer func() { rows = nil }()
				return printList(app, rows)
			})
			if err != nil || !app.terminal && found {
				return err
			}
			return list(app, rows, "no tasks match")
		},
	}
	filter.addTo(c)
	c.Flags().StringVar(&inArgs, "args", "",
		"with this `text` in their args, or this value at a path (order.id=17); needs --since")
	return c
}

// searchArgs lists tasks by the contents of their args. No index helps with that, so it reads the tasks of a time
// window.
func (app *App) searchArgs(ctx context.Context, f tusk.Filter, text string, flags filterFlags) error {
	q := query.Of(f)
	q.Args = text
	if _, err := q.Filter(); err != nil {
		text := err.Error()
		if bad := (*query.Error)(nil); errors.As(err, &bad) {
			text = bad.Text // its field is the server's name of a flag
		}
		return usage("such as --since 24h", "--args: %s", text)
	}
	if flags.all {
		flags.limit = 1 << 30
	}
	return app.withClient(ctx, func(client *tusk.Client) error {
		rows, looked := []taskRow{}, 0
		for more := true; more && len(rows) < flags.limit; {
			f.Limit = min(flags.limit-len(rows), store.MaxPage)
			page, err := q.Find(ctx, client, query.Everything, f, func(args []byte) []byte { return args })
			if err != nil {
				return err
			}
			for _, t := range page.Tasks {
				rows = append(rows, rowOf(t))
			}
			looked += page.Looked
			f.Before, more = page.More, !page.More.IsZero()
		}
		app.note("%s looked through", count(looked, "task"))
		return list(app, rows, "no tasks match")
	})
}

// firstProblem returns the first of several joined errors: one mistake at a time is enough.
func firstProblem(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()[0]
	}
	return err
}
