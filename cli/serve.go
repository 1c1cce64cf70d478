package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

const defaultAddr = "127.0.0.1:8787"

func newServeCommand(app *App) *cobra.Command {
	var addr string
	var c tusk.WorkerConfig
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Do the chores that one process does for all, and answer health checks",
		Long: `Do the leader's chores, when this process gets to lead: make due tasks available,
rescue the tasks of dead workers, fire schedules, prune what is past its retention.
It runs no tasks; workers can do the chores, too, unless they are told --never-lead.

GET /healthz answers 200 while the process is up, GET /readyz while the database
can be reached and has this program's schema. serve has no authentication, so it
only listens on loopback.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.serve(cmd.Context(), addr, c) },
	}
	cmd.Flags().StringVar(&addr, "addr", defaultAddr, "`address` of the health checks, on loopback")
	addRetentionFlags(cmd.Flags(), &c.Retention)
	return cmd
}

func (app *App) serve(ctx context.Context, addr string, c tusk.WorkerConfig) error {
	if err := errors.Join(checkLoopback(addr), checkRetention(c.Retention)); err != nil {
		return err
	}
	client, closeStore, err := app.Client(ctx, creating)
	if err != nil {
		return err
	}
	defer closeStore()
	listener, err := listen(ctx, addr)
	if err != nil {
		return err
	}
	health := app.startHealth(ctx, listener, client.Store())
	defer health.stop()
	defer exitAtSecondSignal()()
	app.Log.Info("serve", "health", "http://"+listener.Addr().String()+"/healthz", "db", mask(app.flags.db))
	if err := client.Lead(ctx, &c); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	app.Log.Info("serve: stopped")
	return nil
}

// checkLoopback refuses an address that other machines could reach.
func checkLoopback(addr string) error {
	const hint = "use 127.0.0.1:8787 or [::1]:8787"
	host, port, err := net.SplitHostPort(addr)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		return usage(hint, "--addr %s: want host:port, with a port from 0 to 65535", quote(addr))
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	p := usage(hint, "--addr %s: serve has no authentication, so it only listens on loopback", quote(addr))
	p.Code = "not_loopback"
	return p
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &Problem{Code: "address_in_use", Exit: exitUsage, Text: "--addr " + quote(addr) + ": another process listens there",
			Hint: "choose another port with --addr", Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() { // what localhost was resolved to
		listener.Close()
		return nil, checkLoopback(net.JoinHostPort(ip.String(), "0"))
	}
	return listener, nil
}

// healthServer answers health checks until it is stopped.
type healthServer struct {
	app      *App
	store    store.Store
	server   *http.Server
	stopping atomic.Bool
}

// startHealth serves on the listener, and says that it is not ready from the
// moment the context ends.
func (app *App) startHealth(ctx context.Context, listener net.Listener, s store.Store) *healthServer {
	h := &healthServer{app: app, store: s}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, h.ready(r.Context())) })
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	context.AfterFunc(ctx, func() { h.stopping.Store(true) })
	go func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			app.Log.Error("health", "error", err)
		}
	}()
	return h
}

func (h *healthServer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		h.server.Close()
	}
}

// ready tells what keeps the process from doing its work.
func (h *healthServer) ready(ctx context.Context) error {
	if h.stopping.Load() {
		return errors.New("stopping")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.app.readySchema(ctx, h.store, false); err != nil {
		return err
	}
	_, err := h.store.Workers(ctx)
	return err
}

func answer(w http.ResponseWriter, problem error) {
	body := map[string]string{"status": "ok"}
	status := http.StatusOK
	if problem != nil {
		body = map[string]string{"status": "unavailable", "detail": mask(problem.Error())}
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked may have gone
}
