package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/cron"
)

// scheduleRow is a schedule and the position of its cursor.
type scheduleRow struct {
	Name     string          `json:"name" col:"NAME"`
	Spec     string          `json:"spec" col:"SPEC"`
	Zone     string          `json:"zone" one:"ZONE"`
	Start    instant         `json:"start" one:"START"`
	Words    string          `json:"words" col:"WORDS"`
	Kind     string          `json:"kind" col:"KIND"`
	Queue    string          `json:"queue" col:"QUEUE"`
	Tenant   string          `json:"tenant" one:"TENANT"`
	Priority int16           `json:"priority" one:"PRIORITY"`
	Tags     []string        `json:"tags" one:"TAGS"`
	Args     json.RawMessage `json:"args" one:"ARGS"`
	Missed   string          `json:"missed" one:"MISSED"`
	Cap      int             `json:"cap" one:"CAP"`
	Overlap  string          `json:"overlap" one:"OVERLAP"`
	Jitter   seconds         `json:"jitter_seconds" one:"JITTER"`
	Paused   bool            `json:"paused" col:"PAUSED"`
	Next     instant         `json:"next" col:"NEXT"`
	Last     instant         `json:"last" col:"LAST"`
	LastTask string          `json:"last_task" one:"LAST_TASK"`
	Fired    int64           `json:"fired" col:"FIRED"`
	Skipped  int64           `json:"skipped" col:"SKIPPED"`
}

func newSchedulesCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "schedules",
		Short: "Enqueue tasks periodically",
		Long: `A schedule enqueues a task at each tick of a five-field cron expression, or of a fixed
period ("@every 15m"). The worker or server that leads fires it, once per tick.`,
	}
	c.AddCommand(newSchedulesListCommand(app), newSchedulesAddCommand(app),
		newSchedulesRemoveCommand(app),
		newScheduleSwitch(app, "pause", "Keep schedules from firing", (*tusk.Client).PauseSchedule),
		newScheduleSwitch(app, "resume", "End the pause of schedules: the next tick is the first after now",
			(*tusk.Client).ResumeSchedule),
		newSchedulesRunCommand(app), newSchedulesBackfillCommand(app), newSchedulesNextCommand(app),
		newSchedulesWhyCommand(app))
	return c
}

func newSchedulesListCommand(app *App) *cobra.Command {
	return newListCommand(app, "List the schedules by name", "there is no schedule",
		func(ctx context.Context, client *tusk.Client) ([]scheduleRow, error) {
			infos, err := client.Schedules(ctx)
			return rowsOf(infos, scheduleOf), err
		})
}

func scheduleOf(s tusk.ScheduleInfo) scheduleRow {
	row := scheduleRow{Name: s.Name, Spec: s.Spec, Zone: or(s.Zone, "UTC"), Start: instant(s.Start), Words: s.Words,
		Kind: s.Kind, Queue: s.Queue, Tenant: s.Tenant,
		Priority: s.Priority, Tags: s.Tags, Args: s.Args, Missed: or(string(s.Missed), string(tusk.MissedOnce)), Cap: s.Cap,
		Overlap: or(string(s.Overlap), string(tusk.OverlapSkip)), Jitter: seconds(s.Jitter), Paused: s.Paused,
		Next: instant(s.Next), Last: instant(s.Last), LastTask: s.LastTask, Fired: s.Fired, Skipped: s.Skipped}
	if row.Tags == nil {
		row.Tags = []string{}
	}
	return row
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func newSchedulesAddCommand(app *App) *cobra.Command {
	var (
		task            taskFlags
		s               tusk.Schedule
		missed, overlap string
	)
	c := &cobra.Command{
		Use:   "add NAME SPEC KIND [ARGS-JSON|-]",
		Short: "Create or change a schedule",
		Example: `  tusk schedules add nightly-report "30 2 * * 1-5" report '{"format":"pdf"}' --zone Europe/Berlin
  tusk schedules add sync "@every 15m" sync_accounts --overlap buffer
  tusk schedules add weekly "@every 7d" report --start 2026-03-02T06:30:00Z`,
		Args: between(3, 4, "NAME", "SPEC", "KIND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw := tusk.RawArgs{Name: args[2]}
			if len(args) == 4 {
				var err error
				if raw.JSON, err = app.argsJSON(args[3]); err != nil {
					return err
				}
			}
			options := task.complete()
			s.Name, s.Spec, s.Args, s.Options = args[0], args[1], raw, options
			s.Missed, s.Overlap = tusk.MissedPolicy(missed), tusk.OverlapPolicy(overlap)
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				if err := client.PutSchedule(cmd.Context(), s); err != nil {
					return firstProblem(err)
				}
				if spec, err := cron.ParseIn(s.Spec, or(s.Zone, "UTC")); err == nil {
					app.note("%s: %s", s.Name, spec.Words())
				}
				return printOne(app, doneRow{s.Name, "stored"})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&s.Zone, "zone", "", "time `zone` such as Europe/Berlin; default UTC")
	f.Var(instantFlag(&s.Start), "start",
		"first run of a period, from which the others count; no tick comes before it (RFC 3339)")
	f.Var(oneOf(&missed, "once", "skip", "all"), "missed",
		"ticks that nobody could fire: once (one run for all), skip or all; default once")
	f.Var(numberFlag(&s.Cap, 1, 10000), "cap", "the maximum number of missed ticks that --missed all runs; default 100")
	f.Var(oneOf(&overlap, "skip", "buffer", "allow"), "overlap",
		"a tick while the last one's task is unfinished: skip, buffer or allow; default skip")
	f.Var(durationFlag(&s.Jitter), "jitter", "delay each run by a random part of this")
	task.addTo(f)
	return c
}

func newScheduleSwitch(
	app *App, verb, short string, do scheduleChange,
) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NAME…",
		Short: short,
		Args:  between(1, -1, "NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "schedule", names, verb+"d", do.to)
		},
	}
}

// scheduleChange is a method of a client.
type scheduleChange func(*tusk.Client, context.Context, string, ...func(tusk.ScheduleInfo) error) error

func (do scheduleChange) to(c *tusk.Client, ctx context.Context, name string) error {
	return do(c, ctx, name)
}

func newSchedulesRemoveCommand(app *App) *cobra.Command {
	c := consent{hint: "pass --yes"}
	cmd := &cobra.Command{
		Use:   "remove NAME…",
		Short: "Remove schedules; tasks that they enqueued stay",
		Args:  between(1, -1, "NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := app.confirm(&c, "remove "+count(len(names), "schedule")); err != nil {
				return err
			}
			return app.forEach(cmd.Context(), "schedule", names, "removed",
				scheduleChange((*tusk.Client).RemoveSchedule).to)
		},
	}
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask for confirmation; required without a terminal")
	return cmd
}

func newSchedulesRunCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME",
		Short: "Enqueue a schedule's task now, outside its plan",
		Args:  between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tusk.ValidateName("schedule", args[0]); err != nil {
				return err
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				result, err := client.RunSchedule(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printOne(app, enqueuedRow{result.ID, result.Result.String()})
			})
		},
	}
}

// backfillRow sums up a backfill.
type backfillRow struct {
	Name    string  `json:"name" col:"NAME"`
	Ticks   int     `json:"ticks" col:"TICKS"`
	First   instant `json:"first" one:"FIRST"`
	Last    instant `json:"last" one:"LAST"`
	Added   int     `json:"added" col:"ADDED"`
	Skipped int     `json:"skipped" col:"SKIPPED"`
	DryRun  bool    `json:"dry_run" one:"DRY_RUN"`
}

func newSchedulesBackfillCommand(app *App) *cobra.Command {
	var (
		from, until time.Time
		dryRun      bool
	)
	c := &cobra.Command{
		Use:   "backfill NAME --from WHEN [--until WHEN]",
		Short: "Enqueue a schedule's task for each tick in a past time range",
		Long: `Enqueue a task of a schedule for each tick in a past time range, whatever its policies, and
even if it is paused. A tick whose backfilled task is unfinished is skipped. A tick that
was fired at its time is enqueued again.`,
		Example: `  tusk schedules backfill nightly-report --dry-run \
    --from 2026-03-01T00:00:00Z --until 2026-03-08T00:00:00Z`,
		Args: between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.backfill(cmd.Context(), args[0], from, until, dryRun)
		},
	}
	c.Flags().Var(whenFlag(&from, ""), "from", "from when on: 2h, 7d or RFC 3339")
	c.Flags().Var(whenFlag(&until, ""), "until", "up to when: 2h, 7d or RFC 3339; default: now")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "count the ticks, but enqueue nothing")
	_ = c.MarkFlagRequired("from")
	return c
}

func (app *App) backfill(ctx context.Context, name string, from, until time.Time, dryRun bool) error {
	s, err := app.findSchedule(ctx, name)
	if err != nil {
		return err
	}
	return app.withClient(ctx, func(client *tusk.Client) error {
		now, err := client.Now(ctx)
		if err != nil {
			return err
		}
		if until.IsZero() {
			until = now
		}
		if until.After(now) {
			return usage("", "--until is to come by the database's clock: the schedule fires those ticks itself")
		}
		ticks, err := s.Between(from, until)
		if err != nil {
			return err
		}
		row := backfillRow{Name: s.Name, Ticks: len(ticks), DryRun: dryRun}
		if len(ticks) > 0 {
			row.First, row.Last = instant(ticks[0]), instant(ticks[len(ticks)-1])
		}
		if !dryRun {
			err = row.enqueue(ctx, client, from, until)
		}
		if err != nil {
			return err
		}
		return printOne(app, row)
	})
}

// enqueue enqueues the ticks and counts what became of them.
func (row *backfillRow) enqueue(ctx context.Context, client *tusk.Client, from, until time.Time) error {
	results, err := client.BackfillSchedule(ctx, row.Name, from, until)
	for _, r := range results {
		if r.Result == tusk.Added {
			row.Added++
		} else {
			row.Skipped++
		}
	}
	return err
}

// tickRow is a future run.
type tickRow struct {
	At    instant `json:"at" col:"IN"`
	Local string  `json:"local" col:"AT"`
}

func newSchedulesNextCommand(app *App) *cobra.Command {
	var (
		spec, zone string
		number     = 5
	)
	c := &cobra.Command{
		Use:   "next NAME | --spec SPEC",
		Short: "Show when a schedule fires next, in words and times",
		Example: `  tusk schedules next nightly-report
  tusk schedules next --spec "30 2 * * 1-5" --zone Europe/Berlin`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s := tusk.ScheduleInfo{}
			s.Spec, s.Zone = spec, zone
			if len(args) == 1 {
				var err error
				if s, err = app.findSchedule(cmd.Context(), args[0]); err != nil {
					return err
				}
				if s.Paused {
					app.note("%s is paused", s.Name)
				}
			}
			plan, err := s.Parse()
			if err != nil {
				return &Problem{Code: "invalid_cron", Exit: exitUsage, Err: err,
					Text: "--spec: " + strings.TrimPrefix(err.Error(), "cron: ")}
			}
			app.note("%s", plan.Words())
			var rows []tickRow
			for t := plan.Next(time.Now()); !t.IsZero() && len(rows) < number; t = plan.Next(t) {
				rows = append(rows, tickRow{instant(t), t.Format("Mon 2006-01-02 15:04:05 MST")})
			}
			return printList(app, rows)
		},
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("spec") {
			return between(0, 0)(cmd, args)
		}
		return between(1, 1, "NAME")(cmd, args)
	}
	c.Flags().StringVar(&spec, "spec", "", "a cron `expression` to try instead of a stored schedule")
	c.Flags().StringVar(&zone, "zone", "", "time `zone` of --spec; default UTC")
	c.Flags().VarP(numberFlag(&number, 1, 1000), "number", "n", "how many")
	return c
}

func (app *App) findSchedule(ctx context.Context, name string) (info tusk.ScheduleInfo, err error) {
	if err := tusk.ValidateName("schedule", name); err != nil {
		return info, err
	}
	err = app.withClient(ctx, func(client *tusk.Client) error {
		info, err = client.Schedule(ctx, name)
		return err
	})
	return info, err
}
