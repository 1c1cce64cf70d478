package ui

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob/memblob"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/mask"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestVendoredFilesAreTheOnesThatWereChecked(t *testing.T) {
	list, err := os.ReadFile("static/vendor/VENDOR.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\S+\.(?:js|css)) .*\| (\S{64}) \|$`).FindAllSubmatch(list, -1)
	if len(rows) != 2 {
		t.Fatalf("%d files", len(rows))
	}
	for _, r := range rows {
		text, err := os.ReadFile("static/vendor/" + string(r[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha512.Sum384(text)
		if base64.StdEncoding.EncodeToString(sum[:]) != string(r[2]) {
			t.Errorf("%s was changed", r[1])
		}
	}
}

func newClient(t *testing.T, s store.Store) *tusk.Client {
	t.Helper()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestEveryPageIsWellFormed(t *testing.T) {
	all, err := (&pages{}).makeTemplates()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Errorf("%d pages", len(all))
	}
	for name, page := range all {
		if _, err := page(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnotherProgramMountsThePages(t *testing.T) {
	client := newClient(t, memory.New())
	f, stop, err := fixture.Fill(t.Context(), client, true)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	who := access.Identity{Name: "ada", Via: "program", Role: access.Operator}
	h, err := Handler(client, Options{Prefix: "/admin/tusk", Mask: mask.Mask{Names: mask.Default},
		Who: func(r *http.Request) (access.Identity, error) {
			if r.Header.Get("X-User") == "" {
				return access.Identity{}, access.ErrUnauthenticated
			}
			return who, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	outer := http.StripPrefix("/admin/tusk", h)
	get := func(method, path, user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/admin/tusk"+path, nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		outer.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/", "/tasks", "/tasks/" + f.Completed.String(), "/schedules", "/queues",
		"/static/app.css"} {
		w := get("GET", path, "ada")
		if w.Code != 200 || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d", path, w.Code)
		}
		for _, link := range regexp.MustCompile(`(?:href|action|src)="(/[^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			if !strings.HasPrefix(link[1], "/admin/tusk") || strings.Contains(link[1], "//") ||
				strings.Contains(link[1], "/api/") {
				t.Errorf("%s: a link to %s", path, link[1])
			}
		}
	}
	if w := get("GET", "/tasks", ""); w.Code != 401 {
		t.Error("nobody gets in:", w.Code)
	}
	for _, path := range []string{"/audit", "/access", "/login"} { // there is no book and no gate
		if w := get("GET", path, "ada"); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get("POST", "/queues/mail/pause", "ada"); w.Code != 303 ||
		w.Header().Get("Location") != "/admin/tusk/queues?note=paused" {
		t.Error(w.Code, w.Header())
	}
	changed := "<dt>Changed</dt><dd>reprioritized "
	if body := get("GET", "/tasks/"+f.Retryable.String(), "ada").Body.String(); strings.Contains(body, changed) {
		t.Error("a task tells of a change before there is one")
	}
	if _, err := client.Edit(t.Context(), []tusk.ID{f.Retryable},
		tusk.Change{Op: tusk.OpReprioritize, Priority: 9}); err != nil {
		t.Error(err)
	}
	if body := get("GET", "/tasks/"+f.Retryable.String(), "ada").Body.String(); !strings.Contains(body, changed) {
		t.Error("a task does not tell that it was changed")
	}
	who.Role = access.Viewer
	if w := get("POST", "/queues/mail/resume", "ada"); w.Code != 403 {
		t.Error("a viewer resumes a queue:", w.Code)
	}
	for _, path := range []string{"/tasks", "/tasks/" + f.Retryable.String(), "/queues", "/errors", "/schedules"} {
		if body := get("GET", path, "ada").Body.String(); strings.Count(body, `method="post"`) != 1 { // the colours
			t.Errorf("%s offers a viewer forms", path)
		}
	}
	if _, err := Handler(client, Options{}); err == nil {
		t.Error("pages without Who are made")
	}
}

// broken fails in every way that a store can.
type broken struct {
	store.Store
	err error
}

func (b broken) List(context.Context, store.Filter) ([]store.Task, error) { return nil, b.err }
func (b broken) Count(context.Context) ([]store.Count, error)             { return nil, b.err }

func TestAFailingStoreGetsAPageThatSaysSo(t *testing.T) {
	for err, status := range map[error]int{store.ErrUnavailable: 503, store.ErrReadOnly: 503, store.ErrFull: 507,
		store.ErrSchemaOld: 503,
		access.ErrFull:     503, context.DeadlineExceeded: 503, errors.New("secret detail"): 500} {
		h, problem := Handler(newClient(t, broken{memory.New(), err}),
			Options{Log: slog.New(slog.DiscardHandler), Who: func(*http.Request) (access.Identity, error) {
				return access.Identity{Name: "ada", Role: access.Admins}, nil
			}})
		if problem != nil {
			t.Fatal(problem)
		}
		for _, path := range []string{"/", "/queues", "/tasks", "/tasks/" + tusk.NewID().String()} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != status || strings.Contains(w.Body.String(), "secret detail") ||
				!strings.Contains(w.Body.String(), "<h1>") {
				t.Errorf("%s with %v: %d", path, err, w.Code)
			}
			soon := ""
			if errors.Is(err, store.ErrUnavailable) {
				soon = "5"
			}
			if again := w.Header(); again.Get("Refresh") != soon || again.Get("Retry-After") != soon ||
				strings.Contains(w.Body.String(), "tries again by itself") != (soon != "") {
				t.Errorf("%s with %v is asked for again after %q", path, err, again.Get("Refresh"))
			}
		}
	}
}

func TestAnEmptyStoreHasFriendlyPages(t *testing.T) {
	client := newClient(t, memory.New())
	book := access.NewBook(client.Store())
	endpoints, err := push.NewBook(client.Store(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := notify.New(nil, "", "")
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(client, Options{Gate: &access.Gate{Book: book, Dev: true}, Book: book, Endpoints: endpoints,
		Alerts: alert.NewBook(client.Store(), nil, sender), Archive: archive.New(memblob.OpenBucket(nil), ""),
		Push: push.New(endpoints, client.NewPuller(), slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Routes() {
		// The gate requires no permission.
		if r.Method != "GET" || strings.Contains(r.Path, "{id}") || strings.Contains(r.Path, "{name}") ||
			strings.Contains(r.Path, "{tenant}") || strings.Contains(r.Path, "{queue}") || strings.Contains(r.Path, "{kind}") ||
			strings.Contains(r.Path, "{worker}") || r.Stream || strings.HasPrefix(r.Path, "/login") || r.Path == "/account" {
			continue
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", strings.TrimSuffix(r.Path, "{$}"), nil))
		if w.Code != 200 {
			t.Errorf("%s: %d %s", r.Path, w.Code, w.Body)
		}
	}
}

func TestNumbersTimesAndJSONAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", 300 * time.Microsecond: "300 µs",
		45 * time.Millisecond: "45 ms", 1300 * time.Millisecond: "1.3 s",
		42 * time.Second: "42 s", 90 * time.Second: "1 min 30 s", time.Hour: "1 h", 49*time.Hour + 5*time.Minute: "2 d 1 h",
		-time.Minute: "-1 min"} {
		if got := dur(d); got != want {
			t.Errorf("%d: got %q, want %q", d, got, want)
		}
	}
	if got := num(-1234567); got != "-1\u202f234\u202f567" {
		t.Errorf("%q", got)
	}
	p := &pages{}
	if s := p.code([]byte(`{"n":12345678901234567890,"s":"`+strings.Repeat("x", 9000)+`"}`), false); !strings.Contains(
		s.Text, "12345678901234567890") || s.Cut == 0 || len(s.Text) > shownBytes {
		t.Error(len(s.Text), s.Cut)
	}
	p.Prefix = "/p"
	if got := p.url("queues", `a/b.c <x>`); got != "/p/queues/a%2Fb.c%20%3Cx%3E" {
		t.Error(got)
	}
	v := url.Values{"state": {"running"}, "queue": {"a"}}
	if got := swap(v, "state", ""); got != "queue=a" || v.Get("state") == "" {
		t.Error(got, v)
	}
}
