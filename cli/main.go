// Package cli is the tusk command: one file per group of subcommands, all of them
// thin. A command reads its flags, asks package tusk, and prints one struct as a
// table, as plain lines or as JSON.
//
// It may touch package tusk, the engines (database.go alone names them), the
// terminal and the configuration. Data goes to stdout, everything said about it
// to stderr, and the exit status says how it ended; see exit.go.
package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/telemetry"
	"github.com/tuskqueue/tusk/telemetry/tracing"
)

// App is one run of the command: its streams, its environment, its settings. Each
// newXxxCommand is given it when the command tree is built, and may use what comes
// from settings only when it runs.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	Log      *slog.Logger // to Err, as --log-format and --log-level say

	env      map[string]string
	terminal bool // Out is one: tables, colour
	watched  bool // Err is one: progress bars
	asked    bool // In is one: questions may be asked

	flags      globalFlags
	config     *config
	command    *cobra.Command // the one that runs; nil: none does yet
	secrets    []string       // never to be printed
	ran        bool           // a command's own code was reached
	interrupts atomic.Bool

	metrics *telemetry.Telemetry // of a process that tells them; nil: it does not
	tracer  *tracing.Tracer      // of a process that sends traces; nil: it does not
}

// Main runs the command and returns the exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	return newApp(stdin, stdout, stderr, env).main(args)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env []string) *App {
	app := &App{In: stdin, Out: output{stdout}, Err: stderr, Log: slog.New(slog.DiscardHandler),
		env: map[string]string{}}
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			app.env[name] = value
		}
	}
	app.terminal, app.watched, app.asked = isTerminal(stdout), isTerminal(stderr), isTerminal(stdin)
	return app
}

// main runs until the first interrupt ends the context; a second one ends the
// process at once, as the system does by itself.
func (app *App) main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	forget := context.AfterFunc(ctx, func() {
		app.interrupts.Store(true)
		stop()
	})
	defer forget()
	// A write to a pipe that nobody reads fails, and does not end the process. Commands that it starts get the signal
	// as usual, which they would not if it were ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	app.In = &patient{ctx: ctx, in: app.In}
	root := newRoot(app)
	root.SetArgs(append([]string{}, args...))
	return app.exit(root.ExecuteContext(ctx))
}
