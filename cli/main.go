// Package cli is the tusk command, with one file per group of subcommands. All of them are thin: a command reads its
// flags, calls package tusk, and prints a struct as a table, as plain lines or as JSON.
//
// It may use package tusk, the engines (only database.go names them), the terminal and the configuration. Data goes
// to stdout, all messages go to stderr, and the exit status says how the command ended; see exit.go.
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
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/telemetry"
	"github.com/tuskqueue/tusk/telemetry/tracing"
)

// App is one run of the command: its streams, environment and settings. Each newXxxCommand gets it when the command
// tree is built, and may use the settings only when the command runs.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	Log      *slog.Logger // writes to Err, as --log-format and --log-level say

	env      map[string]string
	terminal bool // Out is a terminal: tables, colour
	watched  bool // Err is a terminal: progress bars
	asked    bool // In is a terminal: questions may be asked
	// patience is how long another archiving process may be silent before this one takes over; 0 means the default.
	patience time.Duration

	flags      globalFlags
	config     *config
	command    *cobra.Command // the command that runs; nil before it starts
	secrets    []string       // never printed
	ran        bool           // a command's own code was reached
	interrupts atomic.Bool

	metrics *telemetry.Telemetry // nil if the process reports no metrics
	tracer  *tracing.Tracer      // nil if the process sends no traces
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

// main runs until the first interrupt ends the context. A second interrupt ends the process at once, as the system
// does by default.
func (app *App) main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	forget := context.AfterFunc(ctx, func() {
		app.interrupts.Store(true)
		stop()
	})
	defer forget()
	// A write to a pipe without a reader must fail, but not end the process. Started commands still get the signal,
	// which they would not if it were ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	app.In = &patient{ctx: ctx, in: app.In}
	root := newRoot(app)
	root.SetArgs(append([]string{}, args...))
	return app.exit(root.ExecuteContext(ctx))
}
