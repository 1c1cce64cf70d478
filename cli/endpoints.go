package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/server/push"
)

// endpointRow is where the tasks of a queue are sent.
type endpointRow struct {
	Queue       string  `json:"queue" col:"QUEUE"`
	URL         string  `json:"url" col:"URL"`
	Concurrency int     `json:"concurrency" col:"CONCURRENCY"`
	Timeout     seconds `json:"timeout_seconds" col:"TIMEOUT"`
	CreatedAt   instant `json:"created_at" col:"CREATED"`
	CreatedBy   string  `json:"created_by" col:"BY"`
	RotatedAt   instant `json:"rotated_at" col:"ROTATED"`
	Failed      instant `json:"failed" col:"FAILED"`
	Error       string  `json:"error" col:"ERROR"`
	Lasts       bool    `json:"lasts" col:"LASTS"`
}

// endpointSecretRow is a secret that was just created. It is never shown again.
type endpointSecretRow struct {
	Secret string `json:"secret" col:"SECRET"`
	Queue  string `json:"queue" col:"QUEUE"`
}

func newEndpointsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "endpoints",
		Short: "Send the tasks of a queue to a URL, as signed webhooks",
		Long: `Send the tasks of a queue to a URL, as signed webhooks: any program that can be reached by
HTTP is a worker. tusk serve and tusk dev make the calls. A response from 200 to 299
completes the task; any other is a failed attempt. After 429 and 503, the header
Retry-After says when to call again.`,
	}
	c.AddCommand(newEndpointsPutCommand(app),
		&cobra.Command{Use: "list", Short: "List endpoints, without their secrets", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return app.listEndpoints(cmd.Context()) }},
		&cobra.Command{Use: "rotate QUEUE", Short: "Print a new secret; the previous one keeps signing for a day",
			Args: between(1, 1, "QUEUE"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return app.withEndpoints(cmd.Context(), existing, nil, func(book *push.Book) error {
					secret, _, err := book.Rotate(cmd.Context(), args[0])
					if err != nil {
						return err
					}
					return printOne(app, endpointSecretRow{secret, args[0]})
				})
			}},
		&cobra.Command{Use: "remove QUEUE…", Short: "Remove the endpoints of queues", Args: between(1, -1, "QUEUE"),
			RunE: func(cmd *cobra.Command, names []string) error {
				return app.withEndpoints(cmd.Context(), existing, nil, func(book *push.Book) error {
					return app.eachNamed(names, "removed", func(name string) error { return book.Remove(cmd.Context(), name) })
				})
			}})
	return c
}

func newEndpointsPutCommand(app *App) *cobra.Command {
	var e push.Endpoint
	var allow []string
	c := &cobra.Command{
		Use:   "put QUEUE",
		Short: "Register the endpoint of a queue and print its secret, or change it",
		Long: `Register the endpoint of a queue, or change it. The secret of a new endpoint is printed
once and cannot be shown again. The URL must be an https URL of a public address, or of a
host that --allow-host names here and --push-allow names for tusk serve.`,
		Example: `  tusk endpoints put mail --url https://app.example.com/tusk --concurrency 20`,
		Args:    between(1, 1, "QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if e.URL == "" {
				return usage("such as --url https://app.example.com/tusk", "--url is missing")
			}
			e.Queue = args[0]
			return app.withEndpoints(cmd.Context(), creating, allow, func(book *push.Book) error {
				secret, stored, err := book.Put(cmd.Context(), e, login())
				if err != nil {
					return err
				}
				if secret == "" {
					return printOne(app, doneRow{stored.Queue, "changed"})
				}
				return printOne(app, endpointSecretRow{secret, stored.Queue})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&e.URL, "url", "", "`URL` that is called")
	f.Var(numberFlag(&e.Concurrency, 1, push.MaxConcurrency), "concurrency",
		"concurrent calls of each server; default: 10")
	f.Var(durationFlag(&e.Timeout), "timeout", "`duration` of a call, unless the task says otherwise; default: 1m")
	f.StringSliceVar(&allow, "allow-host", nil, "private `host`, host:port or network that the URL may have; repeatable")
	return c
}

func (app *App) listEndpoints(ctx context.Context) error {
	return app.withEndpoints(ctx, existing, nil, func(book *push.Book) error {
		all, err := book.List(ctx)
		if err != nil {
			return err
		}
		return list(app, rowsOf(all, endpointOf), "no queue has an endpoint")
	})
}

func endpointOf(e push.Endpoint) endpointRow {
	return endpointRow{e.Queue, e.URL, e.Concurrency, seconds(e.Timeout), instant(e.CreatedAt), e.CreatedBy,
		instant(e.RotatedAt), instant(e.State.Failed), e.State.Error, e.State.Fails()}
}

// withEndpoints opens the database for endpoints.
func (app *App) withEndpoints(
	ctx context.Context, a access, allow []string, do func(*push.Book) error,
) error {
	client, closeStore, err := app.Client(ctx, a)
	if err != nil {
		return err
	}
	defer closeStore()
	book, err := push.NewBook(client.Store(), client.KeyRing(), allow...)
	if err != nil {
		return usage("", "--allow-host: %v", err)
	}
	return do(book)
}
