package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Client is Store, wrapped in a client.
func (app *App) Client(ctx context.Context, a access) (*tusk.Client, func(), error) {
	s, closeStore, err := app.Store(ctx, a)
	if err != nil {
		return nil, closeStore, err
	}
	ring, err := keyRing(app.flags.keyRing)
	if err != nil {
		closeStore()
		return nil, func() {}, err
	}
	payloads, closePlace, err := app.payloads(ctx, a, s)
	if err != nil {
		closeStore()
		return nil, func() {}, err
	}
	closeAll := func() { closePlace(); closeStore() }
	client, err := tusk.NewClient(app.observed(s), &tusk.ClientConfig{Logger: app.Log, KeyRing: ring, Payloads: payloads})
	if err != nil {
		closeAll()
		return nil, func() {}, err
	}
	return client, closeAll, nil
}

// Standing is Client for long-running processes. It first checks whether the database keeps Tusk's promises.
func (app *App) Standing(ctx context.Context) (*tusk.Client, func(), error) {
	client, closeStore, err := app.Client(ctx, creating)
	if err != nil {
		return nil, closeStore, err
	}
	if c, ok := store.As[store.Checker](client.Store()); ok {
		warnings, err := c.Check(ctx)
		switch {
		case errors.Is(err, store.ErrUnavailable): // the schema was read just now, so only a part of it is away
			app.Log.Warn("database: some of it is away", "error", err)
		case err != nil:
			closeStore()
			return nil, func() {}, fmt.Errorf("database: %w", err)
		}
		for _, warning := range warnings {
			app.Log.Warn("database: " + warning)
		}
	}
	return client, closeStore, nil
}

// withClient calls do with a client of an existing database.
func (app *App) withClient(ctx context.Context, do func(*tusk.Client) error) error {
	client, closeStore, err := app.Client(ctx, existing)
	if err != nil {
		return err
	}
	defer closeStore()
	return do(client)
}

// withArgs makes a command function from do, which gets such a client and the arguments.
func (app *App) withArgs(
	do func(ctx context.Context, client *tusk.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return app.withClient(cmd.Context(), func(client *tusk.Client) error { return do(cmd.Context(), client, args) })
	}
}
