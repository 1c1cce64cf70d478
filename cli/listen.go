package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	accounts "github.com/tuskqueue/tusk/server/access"
)

// listenFlags say where a worker reports its state.
type listenFlags struct {
	addr     string
	insecure bool
}

func (l *listenFlags) add(f *pflag.FlagSet) {
	f.StringVar(&l.addr, "listen", "",
		"answer /metrics, /healthz and /readyz at this `address`; beyond loopback /metrics asks for a token")
	f.BoolVar(&l.insecure, "insecure-http", false,
		"allow --listen beyond loopback: tokens of scrapers can be read on the way")
}

// check rejects an address where others could listen in on the traffic.
func (l *listenFlags) check() error {
	if l.addr == "" {
		return nil
	}
	ip, err := checkAddr(l.addr)
	if err != nil || ip.IsLoopback() || l.insecure {
		return err
	}
	p := usage("allow it with --insecure-http, or listen on loopback",
		"--listen %s: tokens of scrapers could be read on the way", quote(l.addr))
	p.Code = "not_loopback"
	return p
}

// serve answers requests until ctx ends.
func (l *listenFlags) serve(ctx context.Context, listener net.Listener, app *App, client *tusk.Client) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if _, err := client.Store().Workers(ctx); err != nil {
			app.Log.Warn("not ready", "error", err)
			http.Error(w, `{"status":"not ready"}`, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, `{"status":"ok"}`)
	})
	metrics := app.metrics.Handler()
	if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		metrics = readersOnly(&accounts.Gate{Book: accounts.NewBook(client.Store())}, metrics)
	}
	mux.Handle("GET /metrics", metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 20 * time.Second,
		IdleTimeout:  time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() {
		parting, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		if server.Shutdown(parting) != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// readersOnly admits callers who may read everything.
func readersOnly(gate *accounts.Gate, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := gate.Identify(r)
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send a valid token: Authorization: Bearer tusk_…", http.StatusUnauthorized)
		case !who.May(accounts.Read) || who.Bounded():
			http.Error(w, "metrics tell of all queues and tenants: use a token of the role viewer without bounds",
				http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
