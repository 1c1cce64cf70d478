package cli

import (
	"context"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	accounts "github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/server/push"
)

// showOff puts something on every page, and then generates a load until ctx ends.
func showOff(ctx context.Context, client *tusk.Client, site *server.Server) error {
	if _, err := fixture.Enqueue(ctx, client, false); err != nil {
		return err
	}
	book, err := push.NewBook(client.Store(), nil)
	if err != nil {
		return err
	}
	if _, _, err := book.Put(ctx, push.Endpoint{Queue: "hooks", URL: "https://app.example.com/tusk"}, "demo"); err != nil {
		return err
	}
	_, token, err := site.Book().CreateToken(ctx, accounts.Token{Name: "demo", Role: accounts.Viewer}, "demo")
	if err != nil {
		return err
	}
	if err := site.Book().Record(ctx, tusk.NewID(), accounts.Entry{Who: "demo", Via: "cli", Role: accounts.Admins,
		Action: "tokens.create",
		Target: token.Name, Detail: string(token.Role), Result: "ok"}); err != nil {
		return err
	}
	if _, err := client.StartOperation(ctx, tusk.Filter{Kinds: []string{"archive_files"}},
		tusk.Change{Op: tusk.OpReprioritize, Priority: 5},
		&tusk.OperationOptions{By: "demo", Via: "cli"}); err != nil {
		return err
	}
	return fixture.Load(ctx, client)
}
