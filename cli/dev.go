package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/fixture"
)

const devDatabase = "sqlite:tusk-dev.db"

type devFlags struct {
	addr             string
	port             int
	reset, ephemeral bool
	demo             bool
	pushAllow        []string
	kinds            kindFlags
	worker           tusk.WorkerConfig
}

func newDevCommand(app *App) *cobra.Command {
	d := devFlags{kinds: kindFlags{exec: true}}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, to try things out",
		Long: `Run a worker, the leader's chores, the web UI and the HTTP API in one process, without a
login and on loopback only. It uses its own SQLite file, tusk-dev.db, and creates it if
it is missing. The kinds echo, http and exec are enabled. Other databases are used only
if the flag --db names them.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.dev(cmd.Context(), &d) },
	}
	f := cmd.Flags()
	f.StringVar(&d.addr, "addr", defaultAddr,
		"`address` of the web UI, on loopback; if the default's port is in use, the next free one")
	f.Var(numberFlag(&d.port, 1, 65535), "port", "`port` of the web UI on 127.0.0.1, instead of --addr")
	f.BoolVar(&d.demo, "demo", false, "a demo load that fills every page; best with --ephemeral")
	f.BoolVar(&d.reset, "reset", false, "delete the SQLite file first, with all its tasks")
	f.BoolVar(&d.ephemeral, "ephemeral", false, "use a temporary file and delete it at the end")
	f.StringSliceVar(&d.worker.Queues, "queue", []string{tusk.DefaultQueue}, "take tasks of this `queue`; repeatable")
	f.StringSliceVar(&d.pushAllow, "push-allow", nil,
		"private `host`, host:port or network that endpoints may have, without TLS, too, as --allow-host; repeatable")
	d.kinds.add(f)
	cmd.MarkFlagsMutuallyExclusive("addr", "port")
	return cmd
}

func (app *App) dev(ctx context.Context, d *devFlags) error {
	if d.port != 0 {
		d.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port))
	}
	if err := checkLoopback(d.addr); err != nil {
		return err
	}
	mux, err := d.kinds.mux()
	if err != nil {
		return err
	}
	if d.demo {
		fixture.Register(mux, ctx.Done())
		for _, queue := range fixture.Queues() {
			if !slices.Contains(d.worker.Queues, queue) {
				d.worker.Queues = append(d.worker.Queues, queue)
			}
		}
	}
	cleanUp, err := app.devDatabase(d)
	if err != nil {
		return err
	}
	defer cleanUp()
	stopTelemetry, err := app.startTelemetry(ctx, true)
	if err != nil {
		return err
	}
	defer stopTelemetry()
	client, closeStore, err := app.Standing(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	d.worker.Concurrency = 10
	if app.tracer != nil {
		d.worker.Tracer = app.tracer
	}
	worker, err := tusk.NewWorker(client, mux, &d.worker)
	if err != nil {
		return err
	}
	open := listen
	if d.addr == defaultAddr {
		open = listenNearby
	}
	listener, err := open(ctx, d.addr)
	if err != nil {
		return err
	}
	app.metrics.Watch(client)
	app.metrics.Loops(worker.Health)
	app.metrics.Hung(worker.Hung)
	config := server.Config{Dev: true, Database: hideDSN(app.flags.db), Logger: app.Log,
		PushAllow: append(d.pushAllow, d.kinds.allowHosts...), AccessLevel: slog.LevelDebug,
		Ready: func(ctx context.Context) error { return app.readySchema(ctx, client.Store(), false) }}
	app.observeServer(&config)
	site, err := server.New(client, config)
	if err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	defer exitAtSecondSignal()()
	app.welcome(listener.Addr().String(), mux.Kinds(), d)
	stopTelling := app.tell(worker)
	defer stopTelling()
	parts := []func(context.Context) error{worker.Run, func(ctx context.Context) error {
		return site.Serve(ctx, listener, nil, false)
	}}
	if d.demo {
		parts = append(parts, func(ctx context.Context) error { return showOff(ctx, client, site) })
	}
	err = together(ctx, parts...)
	if err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	return nil
}

// devDatabase chooses the database and prepares it for opening.
func (app *App) devDatabase(d *devFlags) (cleanUp func(), err error) {
	cleanUp = func() {}
	named := app.config.source["db"] == sourceFlag
	if named && app.config.source["dev.ephemeral"] != sourceFlag {
		d.ephemeral = false // the command line takes precedence over a variable
	}
	switch {
	case d.ephemeral && (named || d.reset):
		return nil, usage("", "--ephemeral goes with neither --db nor --reset")
	case d.ephemeral:
		folder, err := os.MkdirTemp("", "tusk-dev-")
		if err != nil {
			return nil, fmt.Errorf("dev: %w", err)
		}
		app.flags.db = "sqlite:" + filepath.Join(folder, "tusk.db")
		cleanUp = func() { os.RemoveAll(folder) }
	case !named:
		app.flags.db = devDatabase
	}
	app.flags.autoMigrate = true
	if d.reset {
		err = app.deleteFile()
	}
	return cleanUp, err
}

// deleteFile deletes the SQLite file and the files that belong to it.
func (app *App) deleteFile() error {
	where, err := parseDSN(app.flags.db)
	if err != nil {
		return err
	}
	if where.engine != "sqlite" {
		return usage("drop the database with its own tools", "--reset deletes SQLite files only")
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(where.path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}

// listenNearby listens on the address, or on the next free port.
func listenNearby(ctx context.Context, addr string) (listener net.Listener, err error) {
	const tries = 20
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text)
	for i := range tries {
		listener, err = listen(ctx, net.JoinHostPort(host, strconv.Itoa(port+i)))
		if p := (*Problem)(nil); err == nil || !errors.As(err, &p) || p.Code != "address_in_use" {
			return listener, err
		}
	}
	return nil, err
}

func (app *App) welcome(addr string, kinds []string, d *devFlags) {
	app.note("tusk dev: a worker for queues %v and kinds %v, and the web UI", d.worker.Queues, kinds)
	app.note("  database  %s", hideDSN(app.flags.db))
	app.note("  web UI    http://%s/", addr)
	app.note("  API       http://%s/api/v1/  http://%s/openapi.json", addr, addr)
	app.note("  metrics   http://%s/metrics", addr)
	app.note("  health    http://%s/healthz  http://%s/readyz", addr, addr)
	app.note("")
	app.note("try in another terminal:")
	if url := anywhere(app.flags.db); hideDSN(url) == url {
		app.note("  export TUSK_DATABASE_URL=%s", shellWord(url))
	} else {
		app.note("  # set TUSK_DATABASE_URL to the URL that you gave with --db: its password is not shown")
	}
	app.note(`  tusk enqueue echo '{"hello":"world"}'`)
	app.note(`  tusk enqueue exec '{"command":["date"]}'`)
	app.note(`  tusk enqueue http '{"url":"https://example.com"}'`)
	app.note("  tusk tasks list")
	app.note("")
	app.note("Ctrl-C stops it.")
}

// shellWord quotes a text for a shell if it needs quotes.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,="
	if strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// anywhere returns the URL of a database in a form that works from other folders.
func anywhere(url string) string {
	path, isFile := strings.CutPrefix(url, "sqlite:")
	if !isFile || filepath.IsAbs(path) || strings.HasPrefix(path, "//") {
		return url
	}
	path, options, _ := strings.Cut(path, "?")
	full, err := filepath.Abs(path)
	if err != nil {
		return url
	}
	if options != "" {
		full += "?" + options
	}
	return "sqlite:" + full
}

// tell logs the result of each task.
func (app *App) tell(w *tusk.Worker) (stop func()) {
	events, cancel := w.Subscribe(tusk.EventCompleted, tusk.EventSnoozed, tusk.EventCancelled,
		tusk.EventRescued, tusk.EventLost)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			about := []any{"task", e.Task.ID, "kind", e.Task.Kind, "attempt", e.Task.Attempt, "ran",
				e.Ran.Round(time.Microsecond)}
			if e.Error != "" {
				about = append(about, "error", e.Error)
			}
			app.Log.Info(string(e.Kind), about...)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
