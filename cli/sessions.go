package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	accounts "github.com/tuskqueue/tusk/server/access"
)

// newPasswordCommand returns a command that changes a password and leaves the role and the bounds alone.
func newPasswordCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "password NAME",
		Short: "Change a user's password, which is read from stdin",
		Long: `Change a user's password: the first line of stdin, of at least 10 characters and at most
72 bytes. The role, the queues and the tenants stay; the user's sessions end. People can
also change their own password on their account page.`,
		Example: `  printf '%s\n' "$PASSWORD" | tusk users password ada`,
		Args:    between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			password, err := app.readPassword("password")
			if err != nil {
				return err
			}
			return app.withBook(cmd.Context(), existing, func(book *accounts.Book) error {
				return app.eachNamed(names, "changed", func(name string) error {
					return app.recorded(cmd.Context(), book, "users.password", name, book.SetPassword(cmd.Context(), name, password))
				})
			})
		},
	}
}

// personRow is somebody who is logged in.
type personRow struct {
	Identity  string  `json:"identity" col:"IDENTITY"`
	Name      string  `json:"name" col:"NAME"`
	Role      string  `json:"role" col:"ROLE"`
	Sessions  int     `json:"sessions" col:"SESSIONS"`
	ExpiresAt instant `json:"expires_at" col:"LAST_ENDS"`
}

func personOf(p accounts.Person) personRow {
	return personRow{p.ID, p.Name, string(p.Role), p.Sessions, instant(p.ExpiresAt)}
}

func newSessionsCommand(app *App) *cobra.Command {
	c := &cobra.Command{Use: "sessions", Short: "List who is logged in to the web UI, and log people out"}
	c.AddCommand(
		&cobra.Command{Use: "list", Short: "List the people who are logged in", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return app.withBook(cmd.Context(), existing, func(book *accounts.Book) error {
					people, err := book.People(cmd.Context())
					if err != nil {
						return err
					}
					return list(app, rowsOf(people, personOf), "nobody is logged in")
				})
			}},
		&cobra.Command{Use: "end WHO…", Short: "Log people out everywhere, within two seconds: by identity, or by name",
			Args: between(1, -1, "WHO"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return app.withBook(cmd.Context(), existing, func(book *accounts.Book) error {
					return app.eachNamed(args, "logged out", func(who string) error {
						return app.endSessions(cmd.Context(), book, who)
					})
				})
			}})
	return c
}

func (app *App) endSessions(ctx context.Context, book *accounts.Book, who string) error {
	people, err := book.People(ctx)
	if err != nil {
		return err
	}
	var meant []string
	for _, p := range people {
		if p.ID == who {
			meant = []string{who}
			break
		}
		if p.Name == who {
			meant = append(meant, p.ID)
		}
	}
	switch len(meant) {
	case 0:
		return fmt.Errorf("sessions of %s: %w", who, accounts.ErrNotFound)
	case 1:
		return app.recorded(ctx, book, "sessions.end", meant[0], book.EndSessions(ctx, meant[0]))
	default:
		return usage("", "%s is the name of several people: say which identity: %s", quote(who), strings.Join(meant, ", "))
	}
}
