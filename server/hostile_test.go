package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"github.com/tuskqueue/tusk/mask"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/feed"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

var maskAll = &mask.Mask{All: true}

// safeBuffer is a log for several concurrent writers.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *safeBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// TestNoPageTakesTextForMarkup parses every page. Scripts and styles must come from the server itself; handlers and
// javascript: URLs must not exist.
func TestNoPageTakesTextForMarkup(t *testing.T) {
	s, f := filled(t)
	paths := pagesOf(f)
	for _, h := range fixture.Hostile {
		q := strings.NewReplacer("%", "%25", "&", "%26", "#", "%23", "+", "%2B", " ", "%20", "\"", "%22", "<", "%3C", ">",
			"%3E", "\\", "%5C", "{", "%7B", "}", "%7D").Replace(h)
		for _, name := range []string{"queue", "kind", "tag", "key", "fingerprint", "from", "state", "before", "note",
			"range", "window", "all"} {
			paths = append(paths, "/tasks?"+name+"="+q, "/errors?"+name+"="+q)
		}
		paths = append(paths, "/login?next="+q, "/audit?who="+q, "/"+q, "/tasks/"+q, "/schedules/"+q)
	}
	for _, path := range paths {
		a := s.do("GET", path, nil)
		if strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			checkMarkup(t, path, a.body)
		} else if a.status != 303 && !strings.Contains(a.header.Get("Content-Type"), "json") {
			t.Errorf("%s: %d %s", path, a.status, a.header.Get("Content-Type"))
		}
	}
}

func checkMarkup(t *testing.T, path, body string) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(body))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := z.Token()
			if tag.Data == "img" || tag.Data == "iframe" || tag.Data == "style" || tag.Data == "object" {
				t.Errorf("%s: a tag %s", path, tag.Data)
			}
			for _, a := range tag.Attr {
				value := strings.ToLower(strings.TrimSpace(a.Val))
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc" ||
					(a.Key == "href" || a.Key == "src" || a.Key == "action") && !strings.HasPrefix(value, "/") &&
						!strings.HasPrefix(value, "?") && !strings.HasPrefix(value, "#") {
					t.Errorf("%s: <%s %s=%q>", path, tag.Data, a.Key, a.Val)
				}
				if tag.Data == "script" && a.Key == "src" && !strings.HasPrefix(value, "/static/") {
					t.Errorf("%s: a script from %q", path, a.Val)
				}
			}
			if tag.Data == "script" && z.Next() == html.TextToken && strings.TrimSpace(string(z.Text())) != "" {
				t.Errorf("%s: an inline script", path)
			}
		}
	}
}

func TestABrowserRunsNothingOfATask(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a browser")
	}
	s, f := filled(t, func(c *server.Config) { c.Dev = true })
	b := openBrowser(t, s.URL)
	for _, path := range []string{"/tasks/" + f.Hostile.String(), "/tasks?kind=hostile", "/errors", "/",
		"/tasks/new?of=" + f.Hostile.String()} {
		b.open(path)
		b.quiet(path)
	}
}

func TestSlowSendersAreCutOff(t *testing.T) {
	s := start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := s.server.HTTP()
	if h.ReadHeaderTimeout > 5*time.Second || h.ReadTimeout > 30*time.Second || h.IdleTimeout > time.Minute ||
		h.MaxHeaderBytes > 64<<10 {
		t.Error(h)
	}
	h.ReadHeaderTimeout = 300 * time.Millisecond // so that the test need not wait five seconds
	go func() { _ = h.Serve(listener) }()
	defer h.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if text, err := io.ReadAll(conn); err != nil || strings.Contains(string(text), "200 OK") {
		t.Errorf("a header without an end is waited for: %q %v", text, err)
	}
}

// counting counts the queries of the feed.
type counting struct {
	*memory.Store
	counts, workers, stats atomic.Int64
}

func (c *counting) Count(ctx context.Context) ([]store.Count, error) {
	c.counts.Add(1)
	return c.Store.Count(ctx)
}

func (c *counting) Workers(ctx context.Context) ([]store.Worker, error) {
	c.workers.Add(1)
	return c.Store.Workers(ctx)
}

func (c *counting) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	c.stats.Add(1)
	return c.Store.Stats(ctx, f)
}

// TestOneQueryFeedsAllWatchers lets 200 browsers watch for three ticks. The database is queried once per tick,
// however many watch.
func TestOneQueryFeedsAllWatchers(t *testing.T) {
	const watchers, ticks = 200, 3
	asked := &counting{Store: memory.New()}
	s := startOn(t, newClient(t, asked))
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: watchers}}
	t.Cleanup(client.CloseIdleConnections)
	var wait, ready sync.WaitGroup
	ready.Add(watchers)
	var tokens []string
	for i := range watchers / feed.OwnWatchers * 2 {
		tokens = append(tokens, s.tokenFor(access.Token{Name: fmt.Sprint("viewer-", i), Role: access.Viewer}))
	}
	for i := range watchers {
		token := tokens[i%len(tokens)]
		path := map[bool]string{true: "/live", false: "/api/v1/events"}[i%2 == 0]
		wait.Go(func() {
			var once sync.Once
			defer once.Do(ready.Done)
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
			a, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			lines := bufio.NewScanner(a.Body)
			lines.Buffer(nil, 1<<20)
			for events := 0; lines.Scan(); {
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				if !ok {
					continue
				}
				if !json.Valid([]byte(data)) {
					t.Errorf("not JSON: %s", data)
				}
				if events++; events == 1 {
					once.Do(ready.Done)
					ready.Wait() // all watch at the same time
				}
				if events == ticks+1 {
					return
				}
			}
			t.Error("the stream ended early")
		})
	}
	ready.Wait()
	begun := time.Now()
	before := asked.counts.Load() + asked.workers.Load() + asked.stats.Load()
	wait.Wait()
	most := 3 * (int64(time.Since(begun)/time.Second) + 2) // counts, workers and statistics, once per second
	if n := asked.counts.Load() + asked.workers.Load() + asked.stats.Load() - before; n < 3 || n > most {
		t.Errorf("%d watchers in %v took %d queries, want at most %d", watchers, time.Since(begun), n, most)
	}
}

// TestNothingThatIsSentBreaksTheServer sends random requests to every route. No response is a 5xx, and every refusal
// is a problem with a code.
func TestNothingThatIsSentBreaksTheServer(t *testing.T) {
	s, f := filled(t)
	scalars := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), toAny), rapid.Map(rapid.Int64(), toAny),
		rapid.Map(rapid.Float64(), toAny), rapid.Map(rapid.String(), toAny),
		rapid.Map(rapid.SampledFrom(append([]string{"default", "mail", "retry", "cancel", "1h", "-1s", "2026-01-01T00:00:00Z",
			f.Completed.String(), f.Running.String(), "*", "@every 1s", "* * * * *", "UTC"}, fixture.Hostile...)), toAny))
	values := rapid.OneOf(scalars, rapid.Map(rapid.SliceOfN(scalars, 0, 4), toAny),
		rapid.Map(rapid.MapOfN(rapid.StringN(0, 8, 20), scalars, 0, 4), toAny))
	names := []string{"kind", "args", "queue", "tenant", "priority", "tags", "run_at", "delay", "key", "on_conflict",
		"backoff", "tasks", "ids", "action", "filter", "state", "reason",
		"spec", "zone", "missed", "overlap", "queues", "max", "wait", "lease", "lease_id", "items", "error", "retry_in",
		"name", "role", "password", "metadata", "max_attempts", "timeout",
		"partition", "weight", "deadline", "deadline_in", "ephemeral", "per_worker", "concurrency", "rate", "tenants",
		"every", "to", "from", "until"}
	var routes []server.Route
	for _, r := range server.Routes() {
		if r.Path != "/api/v1/events" {
			routes = append(routes, r)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := rapid.SampledFrom(routes).Draw(rt, "route")
		path := filledPath(r.Path)
		if rapid.Bool().Draw(rt, "known") {
			path = strings.NewReplacer("{id}", f.Retryable.String(), "{queue}", "mail", "{name}", "sweep-carts", "{fingerprint}",
				"x").Replace(r.Path)
		}
		var body any
		if r.Method != "GET" {
			doc := rapid.MapOfN(rapid.SampledFrom(names), values, 0, 6).Draw(rt, "body")
			delete(doc, "wait") // do not wait
			body = doc
		} else if name := rapid.SampledFrom([]string{"", "limit", "cursor", "state", "from", "bucket", "count", "since",
			"format", "nonsense"}).Draw(rt, "parameter"); name != "" {
			path += "?" + name + "=" + escape(rapid.String().Draw(rt, "value"))
		}
		a := s.do(r.Method, path, body)
		if a.status >= 500 {
			rt.Fatalf("%s %s %v: %d %s", r.Method, path, body, a.status, a.body)
		}
		if a.status >= 400 {
			var p server.Problem
			if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Code == "" || p.RequestID == "" {
				rt.Fatalf("%s %s: %d %s", r.Method, path, a.status, a.body)
			}
		}
	})
}

func toAny[T any](v T) any { return v }

func escape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

func TestTheDescriptionInTheDocumentationIsThisOne(t *testing.T) {
	const path = "../docs/openapi.json"
	want, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("TUSK_WRITE") != "" {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the routes say: run TUSK_WRITE=1 go test -run Documentation ./server (%v)", path, err)
	}
}
