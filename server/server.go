// Package server provides Tusk over HTTP: the API for producers, operators, and workers in any language, the event
// stream, health checks, and the web UI.
//
// It may use a tusk.Client and the packages below it: access decides who may do what, feed watches the queues, ui has
// the pages.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/mask"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/feed"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/trend"
	"github.com/tuskqueue/tusk/server/ui"
)

// Config configures a server. The zero value requires a token or a login for everything, and answers only to loopback
// names.
type Config struct {
	// Dev makes every caller an admin. Use it only on loopback: Serve refuses any other address with it.
	Dev bool
	// Hosts are the names by which the server may be called in addition to localhost and loopback addresses, with or
	// without a port. Other names are refused, so that no web page can reach the server under a name of its own.
	Hosts []string
	// Prefix is the path under which the server is found; the default is none.
	Prefix string
	// HTTPS says that browsers reach the server by HTTPS. Cookies are then sent only by HTTPS.
	HTTPS bool
	// TrustProxy are the proxies whose X-Forwarded-For says where a request comes from. Without it, the login
	// throttle treats all requests through a proxy as one sender.
	TrustProxy access.Proxies
	// ReadOnly refuses all requests that would change something.
	ReadOnly bool
	// Mask hides values in args and outputs. Default: fields named like secrets.
	Mask *mask.Mask
	// MaxBody is the largest size of a request's body in bytes. Default: 8 MiB.
	MaxBody int64
	// Processors is the number of processors that the server shares out. Default: GOMAXPROCS.
	Processors int
	// Database is shown on the settings page, without a password.
	Database string
	// Environment is shown on every page, such as "production".
	Environment string
	// Provider logs people in with OpenID Connect. Nil means that no provider is used.
	Provider *access.Provider
	// PushAllow lists hosts, hosts with a port, and networks (10.1.0.0/16) that endpoints may have in addition to
	// public addresses, and without TLS.
	PushAllow []string
	// SMTP is the URL of the mail server for alerts; see notify.ParseMailServer. If it is empty, alerts send no mail.
	SMTP string
	// AlertEvery is how often alerts and ends of tasks are checked; the defaults are 5 s and 1 s.
	AlertEvery time.Duration
	// AlertPatience is how long the process that watches alerts, or reports ends, may be silent before another one
	// takes over; the default is 15 s.
	AlertPatience time.Duration
	// Archive has the finished tasks that have left the database. Nil means no archive.
	Archive *archive.Archive
	// Ready reports whether the database can be read, for /readyz. Default: whether its workers can be listed.
	Ready func(ctx context.Context) error
	// Drain is how long Serve still answers requests after its context has ended, while /readyz says that the server is
	// shutting down. Meanwhile, load balancers can turn to other servers. Default: 0.
	Drain time.Duration
	// Metrics answers /metrics for callers who may read everything. Nil means no metrics.
	Metrics http.Handler
	// Around wraps the handler of all requests, if it is not nil.
	Around func(http.Handler) http.Handler
	// NoUI leaves out the pages.
	NoUI bool
	// AccessLevel is the level of the access log's lines. Default: info.
	AccessLevel slog.Level
	// Logger gets the access log and errors. Default: slog.Default().
	Logger *slog.Logger
}

// Server answers requests. Make one with New, and run it with Run.
type Server struct {
	client *tusk.Client
	config settings
	log    *slog.Logger
	book   *access.Book
	gate   *access.Gate
	feed   *feed.Feed
	puller *tusk.Puller
	push   *push.Runner
	trend  *trend.Trend
	description
	rooms rooms
	readiness
	closing atomic.Bool
	ending  context.Context // ends when that of Run does: waiting requests are then answered
	end     context.CancelFunc
	handler http.Handler

	exportLimit int // ExportLimit; lower in tests

	archived atomic.Value // the archive's state, in a word

	endpoints *push.Book
	alerts    *alert.Book
	watch     *alert.Runner
	hooks     *hook.Book
	teller    *hook.Runner
}

// settings is a Config with its defaults.
type settings struct {
	Config
	Mask mask.Mask
}

// New returns a server. The error says which part of the configuration is invalid.
func New(client *tusk.Client, config Config) (*Server, error) {
	if client == nil {
		return nil, errors.New("server: needs a client")
	}
	full, err := complete(config)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{client: client, config: full, log: full.Logger, exportLimit: ExportLimit,
		rooms: newRooms(full.MaxBody, cmp.Or(full.Processors, runtime.GOMAXPROCS(0)))}
	s.ending, s.end = context.WithCancel(context.Background())
	s.book = access.NewBook(client.Store())
	s.gate = &access.Gate{Book: s.book, Dev: full.Dev, Secure: full.HTTPS, Path: full.Prefix + "/",
		Provider: full.Provider}
	s.feed = feed.New(client, s.log)
	s.trend = trend.New(client, s.log)
	s.puller = client.NewPuller()
	if s.endpoints, err = push.NewBook(client.Store(), client.KeyRing(), full.PushAllow...); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.push = push.New(s.endpoints, s.puller, s.log)
	sender, err := notify.New(full.PushAllow, full.SMTP, full.Environment)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.alerts = alert.NewBook(client.Store(), client.KeyRing(), sender)
	s.watch = alert.New(s.alerts, client, s.log, full.AlertEvery, full.AlertPatience)
	s.hooks = hook.NewBook(client.Store(), client.KeyRing(), sender)
	s.teller = hook.New(s.hooks, s.log, full.AlertEvery, full.AlertPatience)
	if s.description = describeAPI(Routes()); s.description.err != nil {
		return nil, fmt.Errorf("server: %w", s.description.err)
	}
	if s.handler, err = s.assemble(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if full.Around != nil {
		s.handler = full.Around(s.handler)
	}
	return s, nil
}

func complete(c Config) (settings, error) {
	full := settings{Config: c, Mask: mask.Mask{Names: mask.Default}}
	if c.Mask != nil {
		full.Mask = *c.Mask
	}
	if full.MaxBody == 0 {
		full.MaxBody = 8 << 20
	}
	if full.Logger == nil {
		full.Logger = slog.Default()
	}
	if c.Provider != nil {
		if err := c.Provider.Check(); err != nil {
			return full, err
		}
	}
	full.Prefix = strings.TrimSuffix(c.Prefix, "/")
	if full.Prefix != "" && (!strings.HasPrefix(full.Prefix, "/") || strings.ContainsAny(full.Prefix, "{}?#% ") ||
		strings.Contains(full.Prefix, "//")) {
		return full, fmt.Errorf("prefix %q: want a path like /admin/tusk", c.Prefix)
	}
	return full, nil
}

// Book returns the book with tokens, users and the audit log.
func (s *Server) Book() *access.Book { return s.book }

// Handler answers all requests. Run has to be running at the same time.
func (s *Server) Handler() http.Handler { return s.handler }

// Run does the background work until ctx ends: it sends beats for the workers that lease tasks here, calls the
// endpoints of queues, watches for alerts, reports ends of tasks, records how often errors happen, and continues bulk
// operations. Then it ends event streams, answers waiting requests and hands back leased tasks.
func (s *Server) Run(ctx context.Context) error {
	var behind sync.WaitGroup
	behind.Go(func() { s.client.CarryOperations(ctx) })
	behind.Go(func() { s.tidy(ctx) })
	if s.config.Archive != nil {
		behind.Go(func() { s.watchArchive(ctx) })
	}
	if !s.config.ReadOnly {
		behind.Go(func() { s.trend.Run(ctx) })
		behind.Go(func() { s.watch.Run(ctx) })
		behind.Go(func() { s.teller.Run(ctx) })
		if s.config.Archive != nil {
			behind.Go(func() { s.carrier().Run(ctx) })
		}
	}
	stop := context.AfterFunc(ctx, func() {
		s.closing.Store(true)
		s.end()
		s.feed.Close()
	})
	defer stop()
	// Calls in progress may still report how they ended.
	lending, last := context.WithCancel(context.WithoutCancel(ctx))
	behind.Go(func() {
		defer last()
		if !s.config.ReadOnly {
			s.push.Run(ctx)
		}
		<-ctx.Done()
	})
	err := s.puller.Run(lending)
	behind.Wait()
	return err
}

// assemble builds the table of routes. A route without a permission, or one that occurs twice, is an error.
func (s *Server) assemble() (http.Handler, error) {
	mux := http.NewServeMux()
	byPath := map[string]methods{}
	for _, r := range Routes() {
		if !known(r.Need) {
			return nil, fmt.Errorf("route %s %s has no permission", r.Method, r.Path)
		}
		if byPath[r.Path] == nil {
			byPath[r.Path] = methods{}
		}
		if byPath[r.Path][r.Method] != nil {
			return nil, fmt.Errorf("route %s %s comes twice", r.Method, r.Path)
		}
		byPath[r.Path][r.Method] = s.serve(r)
		if r.Method == http.MethodGet && (!r.Stream || r.Gives) { // a stream would be read for its headers alone
			byPath[r.Path][http.MethodHead] = byPath[r.Path][r.Method]
		}
	}
	for path, m := range byPath {
		mux.Handle(path, m)
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		problem(http.StatusNotFound, "not_found", "there is no such route").write(w, requestID(r))
	})
	if !s.config.NoUI {
		pages, err := ui.New(s.client, ui.Options{Prefix: s.config.Prefix, Gate: s.gate, Turn: s.turn, Receive: s.receiveForm,
			Book: s.book, Feed: s.feed, Endpoints: s.endpoints, Push: s.push, Alerts: s.alerts, Hooks: s.hooks,
			Archive: s.config.Archive, Mask: s.config.Mask, ReadOnly: s.config.ReadOnly, Environment: s.config.Environment,
			Settings: s.config.tell(), Log: s.log})
		if err != nil {
			return nil, err
		}
		mux.Handle("/", pages)
	}
	var h http.Handler = mux
	if s.config.Prefix != "" {
		outer := http.NewServeMux()
		outer.Handle(s.config.Prefix+"/", http.StripPrefix(s.config.Prefix, mux))
		h = outer
	}
	return s.guard(h), nil
}

func known(need access.Permission) bool {
	for _, p := range access.Permissions() {
		if p == need {
			return true
		}
	}
	return false
}
