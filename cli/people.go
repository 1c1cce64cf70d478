package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/tuskqueue/tusk"
	accounts "github.com/tuskqueue/tusk/server/access"
)

// tokenRow is an API token.
type tokenRow struct {
	ID        string   `json:"id" col:"ID"`
	Name      string   `json:"name" col:"NAME"`
	Role      string   `json:"role" col:"ROLE"`
	Queues    []string `json:"queues" col:"QUEUES"`
	Tenants   []string `json:"tenants" col:"TENANTS"`
	CreatedAt instant  `json:"created_at" col:"CREATED"`
	UsedAt    instant  `json:"used_at" col:"USED"`
	ExpiresAt instant  `json:"expires_at" col:"EXPIRES"`
	RevokedAt instant  `json:"revoked_at" col:"REVOKED"`
}

// secretRow is a token that was just created. The secret is never shown again.
type secretRow struct {
	Secret string `json:"secret" col:"SECRET"`
	ID     string `json:"id" col:"ID"`
}

// bounds are the flags that say what a token or a user may do.
type bounds struct {
	role            string
	queues, tenants []string
}

func (b *bounds) add(f *pflag.FlagSet) {
	b.role = string(accounts.Viewer)
	names := make([]string, 0, len(accounts.Roles()))
	for _, r := range accounts.Roles() {
		names = append(names, string(r))
	}
	f.Var(oneOf(&b.role, names...), "role", "`role`: producer, worker, service, viewer, operator or admin")
	f.StringSliceVar(&b.queues, "queue", nil, "`queue`, or a prefix followed by *; repeatable; default: all")
	f.StringSliceVar(&b.tenants, "tenant", nil, "`tenant`, the same way; repeatable; default: all")
}

func newTokensCommand(app *App) *cobra.Command {
	c := &cobra.Command{Use: "tokens", Aliases: []string{"token"},
		Short: "Create, list and revoke tokens for the HTTP API"}
	var b bounds
	var expires time.Duration
	create := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a token and print its secret, which cannot be shown again",
		Example: `  tusk tokens create shop --role producer --queue 'shop.*' --expires-in 90d`,
		Args:    between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := accounts.Token{Name: args[0], Role: accounts.Role(b.role), Queues: b.queues, Tenants: b.tenants}
			if expires > 0 {
				t.ExpiresAt = time.Now().Add(expires).UTC()
			}
			return app.withBook(cmd.Context(), creating, func(book *accounts.Book) error {
				secret, made, err := book.CreateToken(cmd.Context(), t, login())
				var printed error
				if err == nil { // before the audit log, which may fail
					printed = printOne(app, secretRow{secret, made.ID})
				}
				if err := app.recorded(cmd.Context(), book, "tokens.create", t.Name, err); err != nil {
					return err
				}
				return printed
			})
		},
	}
	b.add(create.Flags())
	create.Flags().Var(positiveFlag(&expires), "expires-in", "`duration` after which it expires; default: never")
	c.AddCommand(create,
		&cobra.Command{Use: "list", Short: "List tokens, without their secrets", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return app.listTokens(cmd.Context()) }},
		&cobra.Command{Use: "revoke ID…", Short: "Revoke tokens, everywhere within two seconds",
			Args: between(1, -1, "ID"),
			RunE: func(cmd *cobra.Command, ids []string) error {
				return app.withBook(cmd.Context(), existing, func(book *accounts.Book) error {
					return app.eachNamed(ids, "revoked", func(id string) error {
						return app.recorded(cmd.Context(), book, "tokens.revoke", id, book.RevokeToken(cmd.Context(), id))
					})
				})
			}})
	return c
}

func (app *App) listTokens(ctx context.Context) error {
	return app.withBook(ctx, existing, func(book *accounts.Book) error {
		tokens, err := book.Tokens(ctx)
		if err != nil {
			return err
		}
		return list(app, rowsOf(tokens, tokenOf), "there is no token")
	})
}

func tokenOf(t accounts.Token) tokenRow {
	return tokenRow{t.ID, t.Name, string(t.Role), some(t.Queues), some(t.Tenants), instant(t.CreatedAt), instant(t.UsedAt),
		instant(t.ExpiresAt), instant(t.RevokedAt)}
}

// userRow is a user who logs in with a password.
type userRow struct {
	Name      string   `json:"name" col:"NAME"`
	Role      string   `json:"role" col:"ROLE"`
	Queues    []string `json:"queues" col:"QUEUES"`
	Tenants   []string `json:"tenants" col:"TENANTS"`
	CreatedAt instant  `json:"created_at" col:"CREATED"`
}

func newUsersCommand(app *App) *cobra.Command {
	c := &cobra.Command{Use: "users", Short: "Create, list and remove users of the web UI, and change their passwords"}
	var b bounds
	put := &cobra.Command{
		Use:   "put NAME",
		Short: "Create a user, or change the role and the password, which is read from stdin",
		Long: `Create a user of the web UI, or change the user of that name. The password is the first
line of stdin, of at least 10 characters and at most 72 bytes. The user's sessions end.`,
		Example: `  printf '%s\n' "$PASSWORD" | tusk users put ada --role admin`,
		Args:    between(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := app.readPassword("put")
			if err != nil {
				return err
			}
			return app.withBook(cmd.Context(), creating, func(book *accounts.Book) error {
				u := accounts.User{Name: args[0], Role: accounts.Role(b.role), Queues: b.queues, Tenants: b.tenants}
				return app.eachNamed(args, "saved", func(name string) error {
					return app.recorded(cmd.Context(), book, "users.put", name, book.PutUser(cmd.Context(), u, password))
				})
			})
		},
	}
	b.add(put.Flags())
	c.AddCommand(put, newPasswordCommand(app),
		&cobra.Command{Use: "list", Short: "List users by name", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return app.listUsers(cmd.Context()) }},
		&cobra.Command{Use: "remove NAME…", Short: "Remove users and end their sessions", Args: between(1, -1, "NAME"),
			RunE: func(cmd *cobra.Command, names []string) error {
				return app.withBook(cmd.Context(), existing, func(book *accounts.Book) error {
					return app.eachNamed(names, "removed", func(name string) error {
						return app.recorded(cmd.Context(), book, "users.remove", name, book.RemoveUser(cmd.Context(), name))
					})
				})
			}})
	return c
}

func (app *App) listUsers(ctx context.Context) error {
	return app.withBook(ctx, existing, func(book *accounts.Book) error {
		users, err := book.Users(ctx)
		if err != nil {
			return err
		}
		return list(app, rowsOf(users, userOf), "there is no user")
	})
}

func userOf(u accounts.User) userRow {
	return userRow{u.Name, string(u.Role), some(u.Queues), some(u.Tenants), instant(u.CreatedAt)}
}

func some(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// readPassword reads a line from stdin, so that no password shows in a process list.
func (app *App) readPassword(command string) (string, error) {
	line, err := app.passwordLine()
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usage(`printf '%s\n' "$PASSWORD" | tusk users `+command+` NAME`, "no password on stdin")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	app.secrets = append(app.secrets, line)
	return line, nil
}

// passwordLine does not echo a password that is typed on a terminal.
func (app *App) passwordLine() (string, error) {
	if f, ok := app.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(app.Err, "password: ")
		text, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(app.Err)
		return string(text), err
	}
	return bufio.NewReader(io.LimitReader(app.In, 1<<10)).ReadString('\n')
}

// withBook opens the database for tokens and users.
func (app *App) withBook(ctx context.Context, a access, do func(*accounts.Book) error) error {
	client, closeStore, err := app.Client(ctx, a)
	if err != nil {
		return err
	}
	defer closeStore()
	err = do(accounts.NewBook(client.Store()))
	if errors.Is(err, accounts.ErrInvalid) {
		return usage("", "%v", err)
	}
	return err
}

// recorded records the result of a change to access rights in the audit log.
func (app *App) recorded(ctx context.Context, book *accounts.Book, action, target string, failed error) error {
	e := accounts.Entry{Who: login(), WhoID: login(), Via: "cli", Role: accounts.Admins, Action: action, Target: target,
		Result: "ok"}
	if failed != nil {
		e.Result = "failed"
	}
	if err := book.Record(ctx, tusk.NewID(), e); failed == nil {
		return err
	}
	return failed
}

// eachNamed does something for each name until it fails, and prints for which names it was done.
func (app *App) eachNamed(names []string, result string, do func(name string) error) (err error) {
	rows := make([]doneRow, 0, len(names))
	for _, name := range names {
		if err = do(name); errors.Is(err, accounts.ErrNotFound) {
			err = &Problem{Code: "not_found", Exit: exitNotFound, Text: quote(name) + ": not found", Err: err}
		}
		if err != nil {
			break
		}
		rows = append(rows, doneRow{name, result})
	}
	if len(rows) > 0 {
		if printed := printList(app, rows); err == nil {
			err = printed
		}
	}
	return err
}

func login() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "cli:" + u.Username
	}
	return "cli"
}
