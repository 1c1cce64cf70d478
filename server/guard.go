package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
)

// longest is how long a request that waits for nothing may take.
const longest = 20 * time.Second

// guard is the first handler of every request.
func (s *Server) guard(next http.Handler) http.Handler {
	next = s.crossOrigin(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := tusk.NewID().String()
		r = s.config.TrustProxy.Locate(r)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, id))
		rec := &recorder{ResponseWriter: w, connections: s.rooms.connections}
		rec.refused = func() { s.tell(r.Context(), rec.who.ID) }
		ui.SecurityHeaders(w.Header(), s.config.HTTPS)
		w.Header().Set("X-Request-Id", id)
		if s.closing.Load() {
			w.Header().Set("Connection", "close") // the next request may find another server
		}
		begun := time.Now()
		defer s.logAccess(r, rec, id, begun)
		defer s.recovered(rec, id)
		switch {
		case headBytes(r) > maxHead:
			problem(http.StatusRequestHeaderFieldsTooLarge, "head_too_large", "the headers and the path have more than %d bytes",
				maxHead).write(rec, id)
		case !s.knownHost(r.Host):
			problem(http.StatusMisdirectedRequest, "unknown_host",
				"this server is not called that: add the name with tusk serve --host").write(rec, id)
		case !cleanPath(r):
			problem(http.StatusNotFound, "not_found", "there is no such path").write(rec, id)
		default:
			next.ServeHTTP(rec, r)
		}
	})
}

// headBytes returns the approximate size of a request's first line and headers.
func headBytes(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// crossOrigin refuses requests that another site makes a browser send.
func (s *Server) crossOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem(http.StatusForbidden, "cross_origin", "the request comes from another site").write(w, requestID(r))
	}))
	return p.Handler(next)
}

func (s *Server) recovered(w *recorder, id string) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		s.log.Error("panic", "request", id, "panic", p, "stack", string(debug.Stack()))
		if w.status == 0 {
			problem(http.StatusInternalServerError, "internal",
				"something went wrong here; the log has it under the request id").write(w, id)
		}
	}
}

// logAccess does not log the query, which may contain secrets.
func (s *Server) logAccess(r *http.Request, w *recorder, id string, begun time.Time) {
	level := s.config.AccessLevel
	if strings.HasSuffix(r.URL.Path, "/healthz") || strings.HasSuffix(r.URL.Path, "/readyz") ||
		strings.HasSuffix(r.URL.Path, "/metrics") || strings.Contains(r.URL.Path, "/static/") {
		level = slog.LevelDebug
	}
	s.log.Log(r.Context(), level, "http", "method", r.Method, "path", cutPath(r.URL.Path), "status", w.status,
		"bytes", w.bytes, "took", time.Since(begun).Round(time.Microsecond), "from", access.Address(r), "who", w.who.Name,
		"request", id)
}

func cutPath(p string) string {
	if len(p) > 200 {
		return p[:200] + "…"
	}
	return p
}

// knownHost accepts loopback names and addresses, and the configured ones.
func (s *Server) knownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if ip, err := netip.ParseAddr(name); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return name == "localhost" || slices.ContainsFunc(s.config.Hosts, func(h string) bool {
		return strings.EqualFold(h, host) || strings.EqualFold(h, name)
	})
}

// cleanPath rejects paths that servers and proxies may interpret differently.
func cleanPath(r *http.Request) bool {
	p := r.URL.Path
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return p == clean && !strings.ContainsRune(p, '\\') && !strings.ContainsRune(p, 0)
}

// methods maps the methods of one path to their handlers.
type methods map[string]http.Handler

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := m[r.Method]
	if h == nil {
		w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(m)), ", "))
		problem(http.StatusMethodNotAllowed, "method_not_allowed", "this path knows other methods: see Allow").write(w,
			requestID(r))
		return
	}
	h.ServeHTTP(w, r)
}

// serve answers one route: it identifies the caller, checks permissions, runs the route and writes the audit log.
func (s *Server) serve(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Server: s, w: w, r: r, unlimited: r.Context(), over: func() {}, route: &route, id: requestID(r),
			status: statusOfRoute(route)}
		if !route.Stream {
			c.limit(longest)
		}
		defer func() { c.rest(); c.keep(0); c.takeBack(); c.over() }() // after the response was written, or in a panic
		answer, err := c.run()
		var p *Problem
		if err != nil {
			p = c.judge(err)
		}
		c.rest()
		if route.Audit != "" && c.who.Name != "" {
			c.note(p)
		}
		if p != nil {
			if p.cause != nil && p.Status >= 500 {
				s.log.Error("request failed", "request", c.id, "route", route.Path, "error", p.cause)
			}
			p.write(w, c.id)
			return
		}
		c.answer(answer)
	})
}

// limit sets how long the request may still take, instead of any earlier limit.
func (c *call) limit(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.unlimited, d)
	c.r = c.r.WithContext(ctx)
	c.over()
	c.over = cancel
}

func (c *call) run() ([]byte, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	if c.heavy = c.route.Large; c.heavy {
		if err := c.take(answerCost); err != nil {
			return nil, err
		}
	}
	return c.route.run(c)
}

// admit identifies the caller and checks permissions.
func (c *call) admit() error {
	if c.route.Need == access.Open {
		return c.seen(access.Anonymous(c.r))
	}
	who, err := c.gate.Identify(c.r)
	if errors.Is(err, access.ErrUnauthenticated) || errors.Is(err, access.ErrTooMany) {
		if full := c.seen(access.Anonymous(c.r)); full != nil {
			return full
		}
	}
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		return problem(http.StatusUnauthorized, "unauthenticated", "send a valid token: Authorization: Bearer tusk_…")
	case errors.Is(err, access.ErrTooMany):
		p := problem(http.StatusTooManyRequests, "rate_limited", "too many bad tokens from this address")
		p.retryAfter = 6
		return p
	case err != nil:
		return err
	}
	c.who = who
	if err := c.seen(who); err != nil {
		return err
	}
	switch {
	case !who.May(c.route.Need):
		return problem(http.StatusForbidden, "forbidden", "the role %s does not have the permission %s", who.Role,
			c.route.Need)
	case c.route.Need == access.Admin && len(who.Queues)+len(who.Tenants) > 0:
		return problem(http.StatusForbidden, "forbidden", "only an admin without bounds may do that")
	case c.route.Aggregate && !who.SeesAllTenants():
		return problem(http.StatusForbidden, "forbidden", "your %s is bound to tenants, and this tells of all", who.Via)
	case c.route.Whole && !who.SeesAllOf(""):
		return problem(http.StatusForbidden, "forbidden", "your %s is bound to queues or tenants, and this tells of all",
			who.Via)
	case c.config.ReadOnly && c.r.Method != http.MethodGet && c.r.Method != http.MethodHead:
		return problem(http.StatusForbidden, "read_only", "this server changes nothing")
	}
	return nil
}

// seen counts the connection for an identity.
func (c *call) seen(who access.Identity) error {
	if rec, ok := c.w.(*recorder); ok {
		return rec.Seen(c.r, who)
	}
	return nil
}

// note writes the audit log. The action cannot be undone, so an entry that cannot be written is reported in the log
// of the process.
func (c *call) note(failed *Problem) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), 5*time.Second)
	defer cancel()
	e := access.Entry{Who: c.who.Name, WhoID: c.who.ID, Via: c.who.Via, Role: c.who.Role, Action: c.route.Audit,
		Target: c.target, Detail: c.detail,
		Result: "ok", Request: c.id, Address: access.Address(c.r)}
	if failed != nil {
		e.Result = failed.Code
	}
	if err := c.book.Record(ctx, tusk.NewID(), e); err != nil {
		c.log.Error("audit log", "entry", fmt.Sprintf("%+v", e), "error", err)
	}
}

func (c *call) answer(body []byte) {
	if body == nil {
		if !c.route.Stream {
			c.w.WriteHeader(http.StatusNoContent)
		}
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	c.w.WriteHeader(c.status)
	gone := c.r.Context().Err()
	err := c.send(body)
	if err == nil {
		err = c.send([]byte{'\n'})
	}
	if c.unsent == nil {
		return // the client may have gone
	}
	if err == nil {
		err = http.NewResponseController(c.w).Flush()
	}
	if gone == nil && (err == nil || errors.Is(err, http.ErrNotSupported)) {
		c.unsent = nil
	}
}

// takeBack undoes what an unsent response was going to give away.
func (c *call) takeBack() {
	if c.unsent != nil {
		c.unsent()
	}
}

type requestKey struct{}

func requestID(r *http.Request) string {
	id, _ := r.Context().Value(requestKey{}).(string)
	return id
}

// recorder records the response.
type recorder struct {
	http.ResponseWriter
	status  int
	bytes   int64
	who     access.Identity
	refused func() // waits before a refusal is sent

	connections *room
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		if status == http.StatusForbidden {
			w.refused()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController access.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
