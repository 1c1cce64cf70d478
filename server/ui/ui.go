// Package ui serves the web UI: HTML rendered on the server, forms that work without scripts, and a small script that
// keeps numbers and charts up to date.
//
// It may use a tusk.Client and the packages that package server also uses. Requests come from package server, or from
// a program that mounts Handler. Every page and form checks access first.
package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/mask"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/feed"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/trend"
)

//go:embed templates static
var files embed.FS

// Options configure the pages.
type Options struct {
	// Prefix is the path under which browsers find the pages; the default is none. Requests reach the handler without
	// it.
	Prefix string
	// Who identifies the sender of a request, for programs that mount the pages and have their own login. Either Who
	// or Gate is required: without them nobody gets in.
	Who func(r *http.Request) (access.Identity, error)
	// Gate logs people in. Book has tokens, users and the audit log.
	Gate *access.Gate
	Book *access.Book
	// Turn waits until the visitor has few enough running requests. Nil means no limit.
	Turn func(ctx context.Context, who access.Identity, page Route) (giveBack func(), err error)
	// Receive waits for the memory that a form of at most that many bytes takes, and may replace the request's body.
	// giveBack is nil for a small form. If Receive is nil there is no limit.
	Receive func(w http.ResponseWriter, r *http.Request, who access.Identity, most int64) (giveBack func(), err error)
	// Feed is shared with the API. By default the pages have their own.
	Feed *feed.Feed
	// Endpoints and Push are where the tasks of queues are sent. Nil means no such page.
	Endpoints *push.Book
	Push      *push.Runner
	// Alerts report problems. Nil means no such page.
	Alerts *alert.Book
	// Archive has the tasks that have left the database. Nil means no such page.
	Archive *archive.Archive
	// Hooks are notified when tasks end. If nil, the alerts page does not show them.
	Hooks *hook.Book

	Mask        mask.Mask
	ReadOnly    bool
	Environment string
	Settings    []Setting // contents of the settings page
	NoAPI       bool      // the API is not next to the pages, so do not link to it
	Log         *slog.Logger
}

type pages struct {
	Options
	client    *tusk.Client
	trend     *trend.Trend
	templates templates
	mux       *http.ServeMux
}

// Handler returns the pages, to mount in your own server:
//
//	h, err := ui.Handler(client, ui.Options{Prefix: "/admin/tusk", Who: myLogin})
//	mux.Handle("/admin/tusk/", http.StripPrefix("/admin/tusk", h))
//
// It sets the security headers that the pages need, and rejects cross-site
// requests that other sites make a browser send.
func Handler(client *tusk.Client, o Options) (http.Handler, error) {
	o.NoAPI = true
	pages, err := New(client, o)
	if err != nil {
		return nil, err
	}
	protected := http.NewCrossOriginProtection().Handler(pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SecurityHeaders(w.Header(), r.TLS != nil)
		protected.ServeHTTP(w, r)
	}), nil
}

// New returns the pages without security headers, for package server.
func New(client *tusk.Client, o Options) (http.Handler, error) {
	if client == nil {
		return nil, errors.New("ui: needs a client")
	}
	if o.Who == nil && o.Gate == nil {
		return nil, errors.New("ui: needs Who or Gate: without them nobody could get in")
	}
	if o.Who == nil {
		o.Who = o.Gate.Identify
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Feed == nil {
		o.Feed = feed.New(client, o.Log)
	}
	p := &pages{Options: o, client: client, trend: trend.New(client, o.Log), mux: http.NewServeMux()}
	var err error
	if p.templates, err = p.makeTemplates(); err != nil {
		return nil, fmt.Errorf("ui: %w", err)
	}
	for _, r := range Routes() {
		if r.has(p) {
			p.mux.Handle(r.Method+" "+r.Path, p.serve(r))
		}
	}
	static, err := fs.Sub(files, "static")
	if err != nil {
		return nil, fmt.Errorf("ui: %w", err)
	}
	p.mux.Handle("GET /static/", http.StripPrefix("/static", cached(http.FileServerFS(static))))
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v := &visit{pages: p, w: w, r: r}
		if who, err := p.Who(r); err == nil {
			v.who = who
		}
		p.fail(w, r, v.base(answer{}), failure(http.StatusNotFound, "There is no such page."))
	})
	return p.mux, nil
}

// SecurityHeaders sets headers that keep pages from being framed, and from running or loading anything from
// elsewhere.
func SecurityHeaders(h http.Header, https bool) {
	h.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
			"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for "+
			"'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	if https {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// cached lets browsers keep files for an hour, because their names do not change with their contents.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") || path.Ext(r.URL.Path) == ".md" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=3600")
		next.ServeHTTP(w, r)
	})
}

const (
	longest  = 15 * time.Second
	loginURL = "/login"
)

// visit is one request for a page.
type visit struct {
	*pages
	w   http.ResponseWriter
	r   *http.Request
	who access.Identity

	target, detail string // for the audit log
	leave          func() // gives back the turn, once
}

// answer is the result of a visit: a page, or a redirect.
type answer struct {
	page    string // name of the template
	title   string
	section string // of the navigation
	// watch is the address of the stream that reports changes of the page; empty if there is none.
	watch  string
	data   any
	status int
	to     string // redirect, without the prefix
	done   bool   // the response has been written
}

func goTo(to string, about ...string) answer {
	if len(about) > 0 {
		sign := "?"
		if strings.Contains(to, "?") {
			sign = "&"
		}
		to += sign + "note=" + url.QueryEscape(about[0])
	}
	return answer{to: to}
}

// Failure is an error that a page shows to its visitor.
type Failure struct {
	Status int
	Text   string
}

func (f *Failure) Error() string { return f.Text }

func failure(status int, text string, args ...any) error {
	return &Failure{status, fmt.Sprintf(text, args...)}
}

func (p *pages) serve(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.Stream && r.Method == http.MethodHead { // it would run in full
			w.Header().Set("Allow", route.Method)
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		if !route.Stream {
			ctx, cancel := context.WithTimeout(r.Context(), longest)
			defer cancel()
			r = r.WithContext(ctx)
		}
		v := &visit{pages: p, w: w, r: r}
		if v.turnedAway(route) != nil {
			if route.Audit != "" && v.who.Name != "" {
				v.note(route.Audit, true)
			}
			return
		}
		giveBack, err := v.readForm(route)
		if giveBack != nil {
			defer giveBack()
		}
		if err != nil {
			p.fail(w, r, v.base(answer{}), err)
			return
		}
		route := route
		route.Large = route.Large || giveBack != nil
		a, err := v.inTurn(route)
		if route.Audit != "" && (err != nil || a.page != "confirm") { // that page only asks
			v.note(route.Audit, err != nil || a.status >= http.StatusBadRequest)
		}
		switch {
		case err != nil:
			p.fail(w, r, v.base(answer{section: a.section}), err)
		case a.done:
		case a.to != "":
			http.Redirect(w, r, p.Prefix+a.to, http.StatusSeeOther)
		default:
			p.render(w, a, v.base(a))
		}
	})
}

var errBusy = failure(http.StatusServiceUnavailable, "You have too many requests under way. Try again.")

// inTurn shows a page once the visitor has few enough running requests.
func (v *visit) inTurn(route Route) (answer, error) {
	v.leave = func() {}
	if !route.Stream && route.Need != access.Open {
		giveBack, err := v.turn(route)
		if err != nil {
			return answer{}, err
		}
		v.leave = sync.OnceFunc(giveBack)
		defer v.leave()
	}
	return route.show(v)
}

func (v *visit) turn(route Route) (giveBack func(), err error) {
	if v.Turn == nil {
		return func() {}, nil
	}
	if giveBack, err = v.Turn(v.r.Context(), v.who, route); err != nil {
		return nil, errBusy
	}
	return giveBack, nil
}

// seer is a ResponseWriter that notes who sent a request, or refuses it because that identity has too many
// connections.
type seer interface {
	Seen(r *http.Request, who access.Identity) error
}

// turnedAway responds to visitors who may not see a route.
func (v *visit) turnedAway(route Route) error {
	who, err := v.Who(v.r)
	seen := access.Anonymous(v.r)
	if err == nil {
		v.who, seen = who, who
	}
	told := err == nil || errors.Is(err, access.ErrUnauthenticated) || errors.Is(err, access.ErrTooMany)
	if rec, ok := v.w.(seer); ok && told && rec.Seen(v.r, seen) != nil {
		err = failure(http.StatusServiceUnavailable, "You have too many connections. Close some pages, and try again.")
	} else if route.Need == access.Open {
		return nil
	}
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		if v.r.Method == http.MethodGet && v.Gate != nil && !route.Stream {
			http.Redirect(v.w, v.r, v.Prefix+loginURL+"?next="+url.QueryEscape(v.r.URL.RequestURI()), http.StatusSeeOther)
			return err
		}
		err = failure(http.StatusUnauthorized, "You are not logged in.")
	case errors.Is(err, access.ErrTooMany):
		err = failure(http.StatusTooManyRequests, "Too many failed logins from your address. Try again in a minute.")
	case err != nil || route.Need == access.Open:
	case !who.May(route.Need):
		err = failure(http.StatusForbidden, "Your role (%s) does not have the permission that this takes (%s).",
			who.Role, route.Need)
	case route.Need == access.Admin && len(who.Queues)+len(who.Tenants) > 0:
		err = failure(http.StatusForbidden, "Only an admin without bounds may do that.")
	case route.Aggregate && !who.SeesAllTenants():
		err = failure(http.StatusForbidden,
			"You are bound to tenants, and this page tells of all. Your tasks are under Tasks.")
	case route.Whole && !who.SeesAllOf(""):
		err = failure(http.StatusForbidden,
			"You are bound to queues or tenants, and this page tells of all. Your tasks are under Tasks.")
	case v.ReadOnly && v.r.Method != http.MethodGet && v.r.Method != http.MethodHead:
		err = failure(http.StatusForbidden, "This server is read-only.")
	}
	switch {
	case err == nil:
	case route.Stream: // no person sees this response
		f := failureOf(err)
		http.Error(v.w, f.Text, f.Status)
	default:
		v.fail(v.w, v.r, v.base(answer{}), err)
	}
	return err
}

func (p *pages) render(w http.ResponseWriter, a answer, base page) {
	var out bytes.Buffer
	t, err := p.templates[a.page]()
	if err == nil {
		err = t.ExecuteTemplate(&out, "layout", base)
	}
	if err != nil {
		p.Log.Error("page", "page", a.page, "error", err)
		http.Error(w, "this page could not be made", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = out.WriteTo(w) // the client may have gone
}

func (v *visit) note(action string, failed bool) {
	if v.Book == nil || v.who.Name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), 5*time.Second)
	defer cancel()
	e := access.Entry{Who: v.who.Name, WhoID: v.who.ID, Via: v.who.Via, Role: v.who.Role, Action: action, Target: v.target,
		Detail: v.detail, Result: "ok",
		Request: v.w.Header().Get("X-Request-Id"), Address: access.Address(v.r)}
	if failed {
		e.Result = "failed"
	}
	if err := v.Book.Record(ctx, tusk.NewID(), e); err != nil {
		v.Log.Error("audit log", "entry", fmt.Sprintf("%+v", e), "error", err)
	}
}
