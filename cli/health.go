package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type healthFlags struct {
	url     string
	ready   bool
	timeout time.Duration
}

func newHealthCommand(app *App) *cobra.Command {
	h := healthFlags{timeout: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check the health of a running process, for containers",
		Long: `Ask a running tusk serve, dev or work --listen for its health: /healthz says that the process
answers, /readyz (--ready) that it can also use its database. The exit status is 0 if the
process is healthy, else 5. The command needs no shell, no login and no database.`,
		Example: `  tusk health
  tusk health --ready --url http://127.0.0.1:9090`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.health(cmd.Context(), &h) },
	}
	f := cmd.Flags()
	f.StringVar(&h.url, "url", "http://"+defaultAddr, "`URL` of the process, with its --prefix if it has one")
	f.BoolVar(&h.ready, "ready", false, "ask for /readyz instead of /healthz")
	f.Var(positiveFlag(&h.timeout), "timeout", "how long to wait for the answer")
	return cmd
}

func (app *App) health(ctx context.Context, h *healthFlags) error {
	if _, err := serverURL(h.url); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	path := "/healthz"
	if h.ready {
		path = "/readyz"
	}
	address := strings.TrimSuffix(h.url, "/") + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return &Problem{Code: "not_healthy", Exit: exitUnavailable, Text: fmt.Sprintf("no answer: %v", err),
			Hint: "is it running, and is --url right?", Err: err}
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if answer.StatusCode != http.StatusOK {
		return &Problem{Code: "not_healthy", Exit: exitUnavailable,
			Text: fmt.Sprintf("%s answers %s: %s", address, answer.Status, strings.TrimSpace(string(body)))}
	}
	if app.flags.json {
		_, err = fmt.Fprintln(app.Out, strings.TrimSpace(string(body)))
		return err
	}
	_, err = fmt.Fprintln(app.Out, "ok")
	return err
}

// serverURL parses the URL of a Tusk server.
func serverURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, usage("it looks like https://tusk.example.com or http://"+defaultAddr,
			"--url %s: not a URL of a server", quote(mask(text)))
	}
	return u, nil
}
