package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/server"
)

const defaultAddr = "127.0.0.1:8787"

func newServeCommand(app *App) *cobra.Command {
	s := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the web UI and the HTTP API, and do the leader's chores",
		Long: `Serve the web UI, the HTTP API and health checks. When this process leads, it does the
leader's chores: make due tasks available, rescue the tasks of dead workers, fire
schedules, prune what is past its retention. It runs no tasks. With --archive it moves
finished tasks of archived queues there (tusk archive).

Every request needs a login or a token. Create the first with tusk users put NAME --role
admin, or tusk tokens create NAME --role admin. Beyond loopback, the command requires TLS,
by itself (--tls-cert, --tls-key) or by a proxy (--https), and its host names (--host).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.serve(cmd.Context(), s) },
	}
	s.add(cmd.Flags())
	return cmd
}

func (app *App) serve(ctx context.Context, s *serveFlags) error {
	config, err := s.config(app)
	if err = errors.Join(err, s.check(config)); err != nil {
		return err
	}
	defer boundMemory()()
	config.Processors = runtime.GOMAXPROCS(0)
	defer switchSooner()()
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
	leader, err := client.NewLeader(&s.chores)
	if err != nil {
		return err
	}
	archiver, closeArchive, err := app.archiver(ctx, client.Store(), leader)
	if err != nil {
		return err
	}
	defer closeArchive()
	chores := []func(context.Context) error{leader.Run}
	if archiver != nil {
		chores = append(chores, archiver.Run)
		config.Archive = archiver.Archive()
	}
	app.metrics.Watch(client)
	app.metrics.Loops(func() map[string]time.Duration {
		ages := leader.Health()
		if archiver != nil {
			maps.Copy(ages, archiver.Health())
		}
		return ages
	})
	app.observeServer(&config)
	config.Database = hideDSN(app.flags.db)
	config.Ready = func(ctx context.Context) error { return app.readySchema(ctx, client.Store(), false) }
	site, err := server.New(client, config)
	if err != nil {
		return usage("", "%v", err)
	}
	listener, err := listen(ctx, s.addr)
	if err != nil {
		return err
	}
	defer exitAtSecondSignal()()
	scheme := "http://"
	if s.cert() != nil {
		scheme = "https://"
	}
	url := scheme + listener.Addr().String() + config.Prefix
	app.Log.Info("serve", "url", url+"/", "health", url+"/healthz", "db", hideDSN(app.flags.db))
	app.warnOfNobody(ctx, site)
	serve := func(ctx context.Context) error { return site.Serve(ctx, listener, s.cert(), s.insecure) }
	err = together(ctx, append(chores, serve)...)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	app.Log.Info("serve: stopped")
	return nil
}

// serveMemory is how much memory a server should use: what large requests and two thousand waiting workers may take,
// with room for garbage.
const serveMemory = 256 << 20

// boundMemory makes the runtime collect garbage more often as memory approaches serveMemory, unless GOMEMLIMIT is
// set.
func boundMemory() (undo func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(serveMemory)
	return func() { debug.SetMemoryLimit(before) }
}

// leastThreads is the smallest number of goroutines that a server runs at once.
const leastThreads = 4

// switchSooner makes the operating system share out the processors if there are few, unless GOMAXPROCS is set. On its
// own the runtime switches after 10 ms, so two computing requests delay all others by as much. The operating system
// switches sooner, and prefers threads that have waited.
func switchSooner() (undo func()) {
	before := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") != "" || before >= leastThreads {
		return func() {}
	}
	runtime.GOMAXPROCS(leastThreads)
	return func() { runtime.GOMAXPROCS(before) }
}

// collectMoreOften makes the runtime collect garbage when there is half as much of it as memory in use, unless GOGC
// is set. Archiving creates much garbage and uses little memory at a time.
func collectMoreOften() (undo func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(50)
	return func() { debug.SetGCPercent(before) }
}

// together runs the parts of a process until ctx ends or one of them does.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	var err error
	for range parts {
		err = errors.Join(err, <-ended)
		cancel()
	}
	return err
}

// checkAddr splits an address and returns its IP if that is certain. A name could be any IP.
func checkAddr(addr string) (net.IP, error) {
	host, port, err := net.SplitHostPort(addr)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		return nil, usage("use 127.0.0.1:8787 or [::1]:8787", "--addr %s: want host:port, with a port from 0 to 65535",
			quote(addr))
	}
	if host == "localhost" {
		return net.IPv4(127, 0, 0, 1), nil
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip, nil
	}
	return net.IPv4zero, nil
}

// checkLoopback rejects an address that other machines could reach.
func checkLoopback(addr string) error {
	ip, err := checkAddr(addr)
	if err != nil || ip.IsLoopback() {
		return err
	}
	p := usage("use 127.0.0.1:8787 or [::1]:8787", "--addr %s: there is no login here, so it only listens on loopback",
		quote(addr))
	p.Code = "not_loopback"
	return p
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &Problem{Code: "address_in_use", Exit: exitUsage, Text: "--addr " + quote(addr) +
			": another process listens there",
			Hint: "choose another port with --addr", Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}
