package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/notify"
)

// alertRow is an alert with its state.
type alertRow struct {
	Name      string   `json:"name" col:"NAME"`
	Kind      string   `json:"kind" col:"KIND"`
	Queue     string   `json:"queue" col:"QUEUE"`
	Schedule  string   `json:"schedule" one:"SCHEDULE"`
	Over      seconds  `json:"over_seconds" one:"OVER"`
	Rate      int64    `json:"rate" one:"RATE"`
	For       seconds  `json:"for_seconds" one:"FOR"`
	Repeat    seconds  `json:"repeat_seconds" one:"REPEAT"`
	State     string   `json:"state" col:"STATE"`
	Since     instant  `json:"since" col:"SINCE"`
	Text      string   `json:"text" col:"FOUND"`
	Receivers []string `json:"receivers" col:"RECEIVERS"`
	Muted     instant  `json:"muted_until" one:"MUTED_UNTIL"`
	Told      instant  `json:"told" one:"TOLD"`
	Sent      instant  `json:"sent" one:"SENT"`
	Waiting   int      `json:"waiting" one:"WAITING"`
	Dropped   int64    `json:"dropped" one:"DROPPED"`
	Failed    instant  `json:"failed" one:"FAILED"`
	Error     string   `json:"error" one:"ERROR"`
}

// alertSecretRow is the secret of webhooks that were just created. It is never shown again.
type alertSecretRow struct {
	Secret string `json:"secret" col:"SECRET"`
	Alert  string `json:"alert" col:"ALERT"`
}

func alertOf(a alert.Alert) alertRow {
	row := alertRow{Name: a.Name, Kind: string(a.Kind), Queue: a.Queue, Schedule: a.Schedule, Over: seconds(a.Over),
		Rate: a.Rate, For: seconds(a.For),
		Repeat: seconds(a.Repeat), State: a.Stands(), Since: instant(a.Since), Text: a.Text, Muted: instant(a.MutedUntil),
		Told: instant(a.Told),
		Sent: instant(a.Arrived), Waiting: len(a.Owed), Dropped: a.Dropped, Failed: instant(a.Failed), Error: a.Error}
	for i := range a.To {
		row.Receivers = append(row.Receivers, string(a.To[i].Via)+" "+a.To[i].Shown())
	}
	return row
}

func newAlertsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "alerts",
		Short: "Notify Slack, a webhook or people by email when something is wrong",
		Long: `An alert watches a queue, a schedule or the leader every few seconds. When its
condition has lasted long enough, its receivers are notified once, and once more when
the condition is over. One tusk serve or tusk dev process at a time does this; one must
be running.`,
	}
	named := func(use, short, verb string, do func(ctx context.Context, book *alert.Book,
		name string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: between(1, -1, "NAME"),
			RunE: func(cmd *cobra.Command, names []string) error {
				return app.withAlerts(cmd.Context(), nil, func(book *alert.Book) error {
					return app.eachNamed(names, verb, func(name string) error { return do(cmd.Context(), book, name) })
				})
			}}
	}
	span := time.Hour
	mute := named("mute NAME…", "Keep alerts from telling that something began, for a while", "muted",
		func(ctx context.Context, book *alert.Book, name string) error { return book.Mute(ctx, name, span) })
	mute.Example = "  tusk alerts mute slow-mail --for 2h\n  tusk alerts mute slow-mail --for 0s   # end it"
	mute.Flags().Var(durationFlag(&span), "for", "`duration` of the mute; 0s ends it")
	c.AddCommand(newAlertsPutCommand(app),
		&cobra.Command{Use: "list", Short: "List alerts and their status", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return app.withAlerts(cmd.Context(), nil, func(book *alert.Book) error {
					return listWatched(cmd.Context(), app, book, alertOf, "there is no alert")
				})
			}},
		&cobra.Command{Use: "show NAME", Short: "Show an alert", Args: between(1, 1, "NAME"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return app.withAlerts(cmd.Context(), nil, func(book *alert.Book) error {
					a, err := book.Get(cmd.Context(), args[0])
					if err != nil {
						return err
					}
					return printOne(app, alertOf(a))
				})
			}},
		named("remove NAME…", "Remove alerts", "removed", func(ctx context.Context, book *alert.Book, name string) error {
			return book.Remove(ctx, name)
		}),
		named("test NAME…", "Send a test to each receiver, and say what became of it", "arrived", app.testAlert), mute)
	return c
}

func newAlertsPutCommand(app *App) *cobra.Command {
	var r alert.Rule
	var kind string
	var slack, webhooks, mail, allow []string
	c := &cobra.Command{
		Use:   "put NAME",
		Short: "Create or change an alert",
		Long: `Create an alert, or change the alert of that name. What it watches, by --kind:

  oldest     the oldest available task of a queue has been due for longer than --over
  stalled    tasks run or wait in a queue, and no attempt has ended for --over
  discarded  more than --rate tasks of a queue were discarded in a minute
  missed     a schedule is late by more than --over
  no_worker  a queue has available tasks, and no worker or endpoint takes from it
  no_leader  no process does the leader's chores

Without any receiver, the existing receivers stay. The secret that signs its webhooks is
printed once. The Slack URL is a secret: TUSK_ALERTS_PUT_SLACK_FILE
names a file that contains it.`,
		Example: `  tusk alerts put slow-mail --kind oldest --queue mail --over 10m --for 2m \
    --webhook https://app.example.com/alerts
  tusk alerts put dead --kind discarded --rate 20 --mail ops@example.com --repeat 4h`,
		Args: between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if kind == "" {
				return usage("such as --kind oldest", "--kind is missing")
			}
			r.Name, r.Kind, r.To = args[0], alert.Kind(kind), notify.Receivers(slack, webhooks, mail)
			return app.withAlerts(cmd.Context(), allow, func(book *alert.Book) error {
				secret, stored, err := book.Put(cmd.Context(), r, login())
				if err != nil {
					return err
				}
				if secret == "" {
					return printOne(app, doneRow{stored.Name, "stored"})
				}
				return printOne(app, alertSecretRow{secret, stored.Name})
			})
		},
	}
	var words []string
	for _, k := range alert.Kinds() {
		words = append(words, string(k))
	}
	f := c.Flags()
	f.Var(oneOf(&kind, words...), "kind", "what it watches")
	// The flag exists, so this cannot fail.
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&r.Queue, "queue", "", "`queue` that it watches; default: all")
	f.StringVar(&r.Schedule, "schedule", "", "`schedule` that it watches; default: all")
	f.Var(durationFlag(&r.Over), "over", "how old, how long without an end, or how late; default: 5m, for missed 1m")
	f.Int64Var(&r.Rate, "rate", 0, "`tasks` per minute; it fires above that")
	f.Var(durationFlag(&r.For), "for", "how long it must last before receivers are notified; default: no wait")
	f.Var(durationFlag(&r.Repeat), "repeat", "how often receivers are notified again while it lasts; default: never")
	addReceiverFlags(f, &slack, &webhooks, &mail)
	f.StringSliceVar(&allow, "allow-host", nil, "private `host`, host:port or network that URLs may have; repeatable")
	return app.meantQueues(c, func([]string) []string {
		if r.Queue == "" {
			return nil
		}
		return []string{r.Queue}
	})
}

func addReceiverFlags(f *pflag.FlagSet, slack, webhooks, mail *[]string) {
	f.StringSliceVar(slack, "slack", nil, "`URL` of a Slack incoming webhook; repeatable")
	markSecret(f, "slack")
	f.StringSliceVar(webhooks, "webhook", nil, "`URL` that is called with a signed webhook; repeatable")
	f.StringSliceVar(mail, "mail", nil, "email `address`; repeatable")
}

// watchedBook holds alerts or hooks, which a server checks.
type watchedBook[T any] interface {
	List(ctx context.Context) ([]T, error)
	Watched(ctx context.Context) (time.Time, error)
}

func listWatched[T, Row any](ctx context.Context, app *App, book watchedBook[T], row func(T) Row, none string) error {
	all, err := book.List(ctx)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		watched, err := book.Watched(ctx)
		if err != nil {
			return err
		}
		app.noteWatched(watched)
	}
	return list(app, rowsOf(all, row), none)
}

// noteWatched warns if no server has checked alerts or hooks for a while. A server checks the first one a few seconds
// after it was created.
func (app *App) noteWatched(at time.Time) {
	if at.IsZero() {
		app.note("no server has checked them yet: tusk serve does, every few seconds")
	} else if ago := time.Since(at); ago > time.Minute {
		app.note("no server has checked them for %s: start tusk serve", duration.Text(ago.Round(time.Second)))
	}
}

// testAlert tests an alert and waits for the process that sends the messages.
func (app *App) testAlert(ctx context.Context, book *alert.Book, name string) error {
	const patience = 45 * time.Second
	id, err := book.Test(ctx, name)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		over, trouble, err := book.Arrived(ctx, name, id)
		late := time.Since(began) > patience
		switch {
		case err != nil:
			return err
		case trouble != "" && (over || late):
			return &Problem{Code: "not_told", Exit: exitError, Text: app.clean(trouble)}
		case over:
			return nil
		case late:
			return &Problem{Code: "nobody_watches", Exit: exitUnavailable, Text: "no process has sent it within " +
				duration.Text(patience), Hint: "start tusk serve"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 2):
		}
	}
}

// withAlerts opens the database for alerts.
func (app *App) withAlerts(ctx context.Context, allow []string, do func(*alert.Book) error) error {
	return app.withSender(ctx, allow, func(client *tusk.Client, sender *notify.Sender) error {
		return do(alert.NewBook(client.Store(), client.KeyRing(), sender))
	})
}

// withSender opens the database for a command that may name URLs to call.
func (app *App) withSender(ctx context.Context, allow []string, do func(*tusk.Client, *notify.Sender) error) error {
	client, closeStore, err := app.Client(ctx, existing)
	if err != nil {
		return err
	}
	defer closeStore()
	sender, err := notify.New(allow, "", "")
	if err != nil {
		return usage("", "--allow-host: %v", err)
	}
	return do(client, sender)
}
