package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify"
)

// hookRow is a hook with its delivery status.
type hookRow struct {
	Name    string   `json:"name" col:"NAME"`
	URL     string   `json:"url" col:"URL"`
	Events  []string `json:"events" col:"EVENTS"`
	Queues  []string `json:"queues" one:"QUEUES"`
	Keep    seconds  `json:"keep_seconds" one:"KEEP"`
	Told    int64    `json:"told" col:"TOLD"`
	Dropped int64    `json:"dropped" col:"DROPPED"`
	Success instant  `json:"success" col:"ARRIVED"`
	Waiting instant  `json:"waiting_since" col:"WAITING_SINCE"`
	Failed  instant  `json:"failed" one:"FAILED"`
	Error   string   `json:"error" col:"ERROR"`
	Next    instant  `json:"next" one:"NEXT"`
}

// hookSecretRow is the secret of a hook that was just created. It is never shown again.
type hookSecretRow struct {
	Secret string `json:"secret" col:"SECRET"`
	Hook   string `json:"hook" col:"HOOK"`
}

func hookOf(h hook.Status) hookRow {
	return hookRow{h.Name, h.URL, h.Events, h.Queues, seconds(h.Keep), h.Count, h.Dropped, instant(h.Arrived),
		instant(h.Waits),
		instant(h.Failed), h.Error, instant(h.Next)}
}

func newHooksCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "hooks",
		Short: "Notify programs of tasks that have ended, by signed webhooks",
		Long: `A hook notifies a program of tasks that were completed, discarded, cancelled or rescued: at
least once, and in order for each task. tusk serve or tusk dev sends the notifications.`,
	}
	c.AddCommand(newHooksPutCommand(app),
		&cobra.Command{Use: "list", Short: "List hooks and their status", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return app.withHooks(cmd.Context(), nil, func(book *hook.Book) error {
					return listWatched(cmd.Context(), app, book, hookOf, "there is no hook")
				})
			}},
		&cobra.Command{Use: "show NAME", Short: "Show a hook", Args: between(1, 1, "NAME"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return app.withHooks(cmd.Context(), nil, func(book *hook.Book) error {
					h, err := book.Get(cmd.Context(), args[0])
					if err != nil {
						return err
					}
					return printOne(app, hookOf(h))
				})
			}},
		&cobra.Command{Use: "remove NAME…", Short: "Remove hooks", Args: between(1, -1, "NAME"),
			RunE: func(cmd *cobra.Command, names []string) error {
				return app.withHooks(cmd.Context(), nil, func(book *hook.Book) error {
					return app.eachNamed(names, "removed", func(name string) error { return book.Remove(cmd.Context(), name) })
				})
			}})
	return c
}

func newHooksPutCommand(app *App) *cobra.Command {
	var h hook.Hook
	var allow, events []string
	c := &cobra.Command{
		Use:   "put NAME",
		Short: "Create a hook and print its secret, or change it",
		Example: `  tusk hooks put crm --url https://app.example.com/tusk-events \
    --event completed --event discarded --queue orders`,
		Args: between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if h.Name = args[0]; h.URL == "" {
				return usage("such as --url https://app.example.com/tusk-events", "--url is missing")
			}
			h.Events = nil
			for _, e := range events {
				h.Events = append(h.Events, "task."+e)
			}
			return app.withHooks(cmd.Context(), allow, func(book *hook.Book) error {
				secret, stored, err := book.Put(cmd.Context(), h, login())
				if err != nil {
					return err
				}
				if secret == "" {
					return printOne(app, doneRow{stored.Name, "changed"})
				}
				return printOne(app, hookSecretRow{secret, stored.Name})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&h.URL, "url", "", "`URL` that is called")
	f.StringSliceVar(&events, "event", nil,
		"`event` to send: completed, discarded, cancelled or rescued; repeatable; default: discarded")
	f.StringSliceVar(&h.Queues, "queue", nil, "`queue` whose tasks it is notified of; repeatable; default: all")
	f.Var(durationFlag(&h.Keep), "keep", "drop events that could not be sent for this long; default: 24h")
	f.StringSliceVar(&allow, "allow-host", nil, "private `host`, host:port or network that the URL may have; repeatable")
	return app.meantQueues(c, func([]string) []string { return h.Queues })
}

// withHooks opens the database for hooks.
func (app *App) withHooks(ctx context.Context, allow []string, do func(*hook.Book) error) error {
	return app.withSender(ctx, allow, func(client *tusk.Client, sender *notify.Sender) error {
		return do(hook.NewBook(client.Store(), client.KeyRing(), sender))
	})
}
