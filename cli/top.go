package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/cli/top"
)

type topFlags struct {
	url, token, tokenFile string
	insecure, once        bool
}

func newTopCommand(app *App) *cobra.Command {
	t := topFlags{}
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch queues, kinds, workers, errors and running tasks; pause, inspect, retry",
		Long: `Watch queues, kinds, workers, errors and running tasks, refreshed every second, or less often
if the database is slow. Keys pause a queue, open its tasks, show why one does not run, and
retry it; ? lists them. Changes ask for confirmation.

The command queries the database (--db), or a server (--url) with an API token. Without a
terminal, or with --once, it prints everything once: as text, or with --json as an object.`,
		Example: `  tusk top
  tusk top --url https://tusk.example.com --token-file token
  tusk top --once --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.top(cmd.Context(), &t) },
	}
	f := c.Flags()
	f.StringVar(&t.url, "url", "", "`URL` of a server to query instead of a database, with its --prefix if it has one")
	f.StringVar(&t.tokenFile, "token-file", "", "`file` with an API token of the server")
	f.StringVar(&t.token, "token", "", "API `token` of the server; better: --token-file or TUSK_TOP_TOKEN")
	markSecret(f, "token")
	f.BoolVar(&t.insecure, "insecure-http", false,
		"send the token to another machine without TLS: it can be read on the way")
	f.BoolVar(&t.once, "once", false, "print everything once and exit")
	return c
}

func (app *App) top(ctx context.Context, t *topFlags) error {
	source, where, closeSource, err := app.topSource(ctx, t)
	if err != nil {
		return err
	}
	defer closeSource()
	text := top.Text{Clean: app.clean, Words: inWords, Colour: app.coloured()}
	if t.once || app.flags.json || !app.terminal || !app.asked || app.env["TERM"] == "dumb" {
		f, err := top.Look(ctx, source)
		if err != nil {
			return serverProblem(err)
		}
		if app.flags.json {
			return app.newEncoder(app.Out).Encode(f)
		}
		return f.Print(app.Out, where, text)
	}
	var env []string
	for name, value := range app.env {
		env = append(env, name+"="+value)
	}
	return top.Run(ctx, source, where, text, top.Terminal{In: app.keyboard(), Out: app.screen(), Env: env})
}

// keyboard returns stdin itself, so that the settings of a terminal can be changed.
func (app *App) keyboard() io.Reader {
	if p, ok := app.In.(*patient); ok {
		return p.in
	}
	return app.In
}

// topSource returns the server or the database that the flags name.
func (app *App) topSource(
	ctx context.Context, t *topFlags,
) (source top.Source, where string, closeSource func(), err error) {
	if app.config.source["db"] == sourceFlag && app.config.source["top.url"] != sourceFlag {
		t.url = "" // the command line takes precedence over a variable
	}
	if t.url == "" {
		if app.config.source["top.token_file"] == sourceFlag {
			return nil, "", nil, usage("", "--token-file is for --url, which is missing")
		}
		client, closeStore, err := app.Client(ctx, existing)
		if err != nil {
			return nil, "", closeStore, err
		}
		return top.Database(client), hideDSN(app.flags.db), closeStore, nil
	}
	if app.config.source["db"] == sourceFlag {
		return nil, "", nil, usage("", "only one can be given: --url or --db")
	}
	token, err := t.secret()
	if err != nil {
		return nil, "", nil, err
	}
	if token != "" {
		app.secrets = append(app.secrets, token)
	}
	u, err := serverURL(t.url)
	if err != nil {
		return nil, "", nil, err
	}
	if u.User != nil {
		return nil, "", nil, usage("use --token-file or TUSK_TOP_TOKEN", "--url: a login does not belong into the URL")
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) && !t.insecure {
		return nil, "", nil, usage("use https, or --insecure-http where nobody can listen",
			"--url: a token would cross the network without TLS")
	}
	u.RawQuery, u.Fragment, u.Path = "", "", strings.TrimSuffix(u.Path, "/")
	return top.API(u.String(), token), u.String(), func() {}, nil
}

// serverProblem turns a server's error into a problem; others stay as they are.
func serverProblem(err error) error {
	if unreachable := (*url.Error)(nil); errors.As(err, &unreachable) {
		return &Problem{Code: "unavailable", Exit: exitUnavailable, Text: err.Error(),
			Hint: "is it running, and is --url right?", Err: err}
	}
	refused := (*top.Refused)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	p := &Problem{Code: refused.Code, Exit: exitError, Text: err.Error(), Err: err}
	switch refused.Status {
	case http.StatusUnauthorized:
		p.Exit, p.Hint = exitUsage, "make a token with tusk tokens create, and pass it by --token-file or TUSK_TOP_TOKEN"
	case http.StatusForbidden:
		p.Exit, p.Hint = exitConflict, "use a token that sees all tenants"
	case http.StatusNotFound:
		p.Exit, p.Hint = exitNotFound, "is --url right, with the server's --prefix?"
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		p.Exit = exitUnavailable
	}
	return p
}

// secret returns the token. A file named on the command line overrides TUSK_TOP_TOKEN.
func (t *topFlags) secret() (string, error) {
	if t.tokenFile == "" {
		return t.token, nil
	}
	text, err := os.ReadFile(t.tokenFile)
	if err != nil {
		return "", usage("", "--token-file: %v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
