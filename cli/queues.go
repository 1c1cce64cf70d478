package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/server/query"
)

// queueRow is a queue with its depth.
type queueRow struct {
	Name      string  `json:"name" col:"NAME"`
	Paused    bool    `json:"paused" col:"PAUSED"`
	Available int64   `json:"available" col:"AVAILABLE"`
	Running   int64   `json:"running" col:"RUNNING"`
	Scheduled int64   `json:"scheduled" col:"SCHEDULED"`
	Retryable int64   `json:"retryable" col:"RETRYABLE"`
	Pending   int64   `json:"pending" col:"PENDING"`
	Oldest    seconds `json:"oldest_seconds" col:"OLDEST"` // how long the oldest available task has been due

	KeepCompleted keeping `json:"keep_completed,omitempty"` // empty means the default
	KeepCancelled keeping `json:"keep_cancelled,omitempty"`
	KeepDiscarded keeping `json:"keep_discarded,omitempty"`
}

// keeping is a retention: a duration or forever.
type keeping string

func newKeeping(d time.Duration) keeping {
	switch d {
	case 0:
		return ""
	case tusk.Forever:
		return "forever"
	}
	return keeping(duration.Text(d))
}

func newQueuesCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "queues",
		Short: "List, pause, resume and remove queues; set aging and retention",
	}
	c.AddCommand(
		newListCommand(app, "List the queues with their unfinished tasks by state",
			"there is no queue yet: one appears with its first task",
			func(ctx context.Context, client *tusk.Client) ([]queueRow, error) {
				queues, err := client.Queues(ctx)
				return rowsOf(queues, queueOf), err
			}),
		app.meant(newQueueSwitch(app, "pause", "Keep workers from claiming tasks of queues; running tasks go on",
			(*tusk.Client).PauseQueue)),
		newQueuesRemoveCommand(app),
		onlyKnown(app, newQueueSwitch(app, "resume", "End the pause of queues", (*tusk.Client).ResumeQueue)),
		app.meant(newQueuesAgeCommand(app)),
		app.meant(newQueuesKeepCommand(app)))
	return c
}

func queueOf(q tusk.Queue) queueRow {
	n := q.Tasks
	return queueRow{q.Name, q.Paused, n[tusk.StateAvailable], n[tusk.StateRunning], n[tusk.StateScheduled],
		n[tusk.StateRetryable], n[tusk.StatePending], seconds(q.Oldest),
		newKeeping(q.Retention.Completed), newKeeping(q.Retention.Cancelled), newKeeping(q.Retention.Discarded)}
}

// doneRow says what was done to a named thing.
type doneRow struct {
	Name   string `json:"name" col:"NAME"`
	Result string `json:"result" col:"RESULT"`
}

func newQueuesAgeCommand(app *App) *cobra.Command {
	var a tusk.Aging
	var off bool
	c := &cobra.Command{
		Use:   "age QUEUE…",
		Short: "Raise the priority of tasks while they wait",
		Long: `Raise the priority of the tasks of queues while they wait, so that no task starves behind
more urgent ones: after each --every, a waiting task moves half the remaining distance to
the priority --to. Each time, the leader reads the waiting tasks.`,
		Example: `  tusk queues age reports --every 5m
  tusk queues age reports --off`,
		Args: between(1, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			result := "ages"
			switch {
			case off:
				a, result = tusk.Aging{}, "does not age"
			case a.Every == 0:
				return usage("", "--every is missing: how long a task waits for each rise, or --off")
			}
			return app.forEach(cmd.Context(), "queue", names, result,
				func(c *tusk.Client, ctx context.Context, name string) error {
					return c.SetAging(ctx, name, a)
				})
		},
	}
	c.Flags().Var(positiveFlag(&a.Every), "every", "how long a task waits for each rise; at least 1s")
	c.Flags().Var(numberFlag(&a.To, -32768, 32767), "to", "the priority that tasks rise to; default 0")
	c.Flags().BoolVar(&off, "off", false, "tasks no longer age")
	c.MarkFlagsMutuallyExclusive("every", "off")
	return c
}

func newQueuesKeepCommand(app *App) *cobra.Command {
	var r tusk.QueueRetention
	var off bool
	c := &cobra.Command{
		Use:   "keep QUEUE…",
		Short: "Set how long the finished tasks of queues are kept",
		Long: `Set how long the finished tasks of queues are kept. The default is the setting of
--keep-completed and similar flags of tusk work and tusk serve. The setting also applies to
tasks that have already ended, and replaces the previous one: an outcome that you leave out
follows the default.`,
		Example: `  tusk queues keep audit --completed forever --discarded forever
  tusk queues keep thumbnails --completed 10m
  tusk queues keep audit --off`,
		Args: between(1, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			result := "keeps"
			switch {
			case off:
				result = "keeps like others"
			case r == tusk.QueueRetention{}:
				return usage("", "how long is missing: --completed, --cancelled or --discarded, or --off")
			}
			return app.forEach(cmd.Context(), "queue", names, result,
				func(c *tusk.Client, ctx context.Context, name string) error {
					return c.SetRetention(ctx, name, r)
				})
		},
	}
	c.Flags().BoolVar(&off, "off", false, "use the default retention")
	for _, flag := range []struct {
		name string
		into *time.Duration
	}{{"completed", &r.Completed}, {"cancelled", &r.Cancelled}, {"discarded", &r.Discarded}} {
		c.Flags().Var(keepFlag(flag.into), flag.name, "how long "+flag.name+" tasks are kept: a `duration`, or forever")
		c.MarkFlagsMutuallyExclusive(flag.name, "off")
	}
	return c
}

// meant makes a command whose arguments are queues reject unknown ones, unless --create is given.
func (app *App) meant(c *cobra.Command) *cobra.Command {
	return app.meantQueues(c, func(args []string) []string { return args })
}

// meantQueues is meant for a command that names queues elsewhere.
func (app *App) meantQueues(c *cobra.Command, queues func(args []string) []string) *cobra.Command {
	create, do := false, c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		names := queues(args)
		if create || len(names) == 0 {
			return do(cmd, args)
		}
		err := app.knownQueues(cmd.Context(), names, orCreate)
		if err != nil {
			return err
		}
		return do(cmd, args)
	}
	c.Flags().BoolVar(&create, "create", false, "accept unknown queues")
	return c
}

// orCreate is the hint of commands that have the --create flag.
const orCreate = "pass --create to use it anyway"

// knownQueues rejects names if one of them is probably misspelt.
func (app *App) knownQueues(ctx context.Context, names []string, hint string) error {
	for _, name := range names {
		if err := tusk.ValidateName("queue", name); err != nil {
			return err
		}
	}
	return app.withClient(ctx, func(client *tusk.Client) error {
		for _, name := range names {
			if err := knownQueue(ctx, client, name, hint); err != nil {
				return err
			}
		}
		return nil
	})
}

// knownQueue rejects a name that is probably misspelt, with a hint.
func knownQueue(ctx context.Context, client *tusk.Client, name, hint string) error {
	known, err := query.KnowsQueue(ctx, client, name)
	if err != nil || known {
		return err
	}
	names, err := client.QueueNames(ctx)
	if err != nil {
		return err
	}
	if near := words.Nearest(name, names); near != "" {
		hint = strings.TrimSpace("did you mean " + near + "? " + hint)
	}
	return &Problem{Code: "unknown_queue", Exit: exitNotFound,
		Text: "queue " + name + ": no task, worker, schedule or setting has it", Hint: hint}
}

func newQueuesRemoveCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "remove QUEUE…",
		Short: "Remove queues from the list, with their settings",
		Long: `Remove queues from the list with their settings: pause, aging, limits and retention.
Finished tasks stay. A queue that has unfinished tasks, a schedule or a worker is refused.
The next task of a queue brings it back.`,
		Args: between(1, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "queue", names, "removed", (*tusk.Client).RemoveQueue)
		},
	}
}

// onlyKnown makes a command reject unknown queues before it does anything, because a misspelt name would leave the
// intended queue as it is.
func onlyKnown(app *App, c *cobra.Command) *cobra.Command {
	do := c.RunE
	c.RunE = func(cmd *cobra.Command, names []string) error {
		if err := app.knownQueues(cmd.Context(), names, ""); err != nil {
			return err
		}
		return do(cmd, names)
	}
	return c
}

func newQueueSwitch(app *App, verb, short string, do func(*tusk.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " QUEUE…",
		Short: short,
		Args:  between(1, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "queue", names, verb+"d", do)
		},
	}
}

// forEach does one thing to each of several named things. It checks all names before it touches the first.
func (app *App) forEach(
	ctx context.Context, what string, names []string, result string, do func(*tusk.Client, context.Context, string) error,
) error {
	for _, name := range names {
		if err := tusk.ValidateName(what, name); err != nil {
			return err
		}
	}
	return app.withClient(ctx, func(client *tusk.Client) error {
		for _, name := range names {
			if err := do(client, ctx, name); err != nil {
				return err
			}
			if err := printList(app, []doneRow{{name, result}}); err != nil {
				return err
			}
		}
		return nil
	})
}
