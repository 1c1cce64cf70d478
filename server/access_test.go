package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
	"github.com/tuskqueue/tusk/store"
)

// filledPath puts something into the places of a path.
func filledPath(path string) string {
	return strings.NewReplacer("{id}", tusk.NewID().String(), "{queue}", "default", "{name}", "nothing", "{fingerprint}", "f", "{action}", "retry", "{tenant}", "acme", "{$}", "").Replace(path)
}

// want says, from the role alone, whether a permission is granted: written out
// once more here, so that a slip in the table of the code shows.
var granted = map[access.Role]string{
	access.Producer: "enqueue", access.Worker: "work", access.Viewer: "read", access.Operator: "read operate enqueue",
	access.Admins: "read operate enqueue work admin",
}

func TestEveryAPIRouteAsksForItsPermission(t *testing.T) {
	s := start(t)
	tokens := map[access.Role]string{"": ""}
	for _, role := range access.Roles() {
		tokens[role] = s.tokenFor(access.Token{Name: string(role), Role: role})
	}
	n := 0
	for _, r := range server.Routes() {
		if r.Path == "/api/v1/events" { // has no end: see TestEveryStreamAsksForItsPermission
			continue
		}
		for role, token := range tokens {
			var body any
			if r.Method != "GET" && r.Method != "DELETE" {
				body = "{}"
			}
			a := s.as(token, r.Method, filledPath(r.Path), body)
			may := r.Need == access.Open || slices.Contains(strings.Fields(granted[role]), string(r.Need))
			refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
			if may == refused || role == "" && !may && a.status != http.StatusUnauthorized {
				t.Errorf("%s %s as %q: %d, granted: %v", r.Method, r.Path, role, a.status, may)
			}
			n++
		}
	}
	if n < 250 {
		t.Errorf("only %d combinations", n)
	}
}

func TestEveryPageAsksForItsPermission(t *testing.T) {
	s := start(t)
	for _, r := range ui.Routes() {
		if r.Stream {
			continue
		}
		for _, role := range append(access.Roles(), "") {
			token := ""
			if role != "" {
				token = s.tokenFor(access.Token{Name: string(role), Role: role})
			}
			a := s.as(token, r.Method, filledPath(r.Path), nil)
			may := r.Need == access.Open || slices.Contains(strings.Fields(granted[role]), string(r.Need))
			refused := a.status == 401 || a.status == 403 || a.status == 303 && strings.HasPrefix(a.header.Get("Location"), "/login?next=")
			if r.Path != "/login" && r.Path != "/logout" && may == refused {
				t.Errorf("%s %s as %q: %d %s, granted: %v", r.Method, r.Path, role, a.status, a.header.Get("Location"), may)
			}
		}
	}
}

// watch opens a stream and returns its answer, with the data of the first event when
// there is one.
func (s *site) watch(token, path string) (status int, first string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		return a.StatusCode, ""
	}
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return a.StatusCode, data
		}
	}
	s.t.Fatalf("%s ended without an event: %v", path, lines.Err())
	return 0, ""
}

// streams are the streams of server-sent events, which have no end: one of the API,
// one of the pages.
func streams(t *testing.T) (paths []string) {
	for _, r := range server.Routes() {
		if r.Stream && r.Method == "GET" && r.Path != "/api/v1/tasks/export" {
			paths = append(paths, r.Path)
		}
	}
	for _, r := range ui.Routes() {
		if r.Stream {
			paths = append(paths, r.Path)
		}
	}
	if !slices.Equal(paths, []string{"/api/v1/events", "/live"}) {
		t.Fatalf("other streams than those that are known: %v", paths)
	}
	return paths
}

func TestEveryStreamAsksForItsPermission(t *testing.T) {
	s := start(t)
	for _, queue := range []string{"mine", "theirs"} {
		s.enqueue(object{"kind": "k", "queue": queue})
	}
	for _, path := range streams(t) {
		for _, role := range append(access.Roles(), "") {
			token, may := "", strings.Contains(granted[role], "read")
			if role != "" {
				token = s.tokenFor(access.Token{Name: string(role), Role: role})
			}
			status, first := s.watch(token, path)
			if want := map[bool]int{true: 200, false: 403}[may]; status != want && (role != "" || status != 401) || may && !strings.Contains(first, "theirs") {
				t.Errorf("%s as %q: %d %s", path, role, status, first)
			}
		}
		bound := s.tokenFor(access.Token{Name: "bound", Role: access.Viewer, Queues: []string{"mine"}})
		if status, first := s.watch(bound, path); status != 200 || !strings.Contains(first, "mine") || strings.Contains(first, "theirs") {
			t.Errorf("%s: %d, and beyond the bounds: %s", path, status, first)
		}
		tenant := s.tokenFor(access.Token{Name: "tenant", Role: access.Viewer, Tenants: []string{"acme"}})
		if status, _ := s.watch(tenant, path); status != 403 {
			t.Errorf("%s tells a tenant of all: %d", path, status)
		}
	}
}

func TestARevocationEndsBothStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a beat of a stream: 15 s")
	}
	t.Parallel()
	s := start(t)
	var made server.NewToken
	s.do("POST", "/api/v1/tokens", object{"name": "soon", "role": "viewer"}).want(t, 201, &made)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ends []*bufio.Scanner
	for _, path := range streams(t) {
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+made.Secret)
		a, err := http.DefaultClient.Do(r)
		if err != nil || a.StatusCode != 200 {
			t.Fatal(path, a, err)
		}
		defer a.Body.Close()
		ends = append(ends, bufio.NewScanner(a.Body))
	}
	s.do("DELETE", "/api/v1/tokens/"+made.Token.ID, nil).want(t, 204, nil)
	for i, lines := range ends {
		for lines.Scan() {
		}
		if lines.Err() != nil {
			t.Errorf("%s goes on: %v", streams(t)[i], lines.Err())
		}
	}
}

func TestNoBodyIsReadBeyondItsLimit(t *testing.T) {
	s := start(t, func(c *server.Config) { c.MaxBody = 1 << 10 })
	stranger := s.tokenFor(access.Token{Name: "viewer", Role: access.Viewer})
	text, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ RequestBody any }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	large, n := `{"x":"`+strings.Repeat("x", 2<<10)+`"}`, 0
	for _, r := range server.Routes() {
		if doc.Paths[r.Path][strings.ToLower(r.Method)].RequestBody == nil {
			continue
		}
		n++
		s.do(r.Method, filledPath(r.Path), large).problem(t, 413, "body_too_large")
		s.as(stranger, r.Method, filledPath(r.Path), large).problem(t, 403, "forbidden") // and not read
		s.as("", r.Method, filledPath(r.Path), large).problem(t, 401, "unauthenticated")
	}
	if n < 25 {
		t.Errorf("only %d routes have bodies", n)
	}
	large = "x=" + strings.Repeat("x", 4<<20) // hardly too large, so that the sender is not cut off while it sends
	for _, r := range ui.Routes() {
		if r.Method != "POST" {
			continue
		}
		if a := s.post(filledPath(r.Path), large); a.status != 413 {
			t.Errorf("%s: %d", r.Path, a.status)
		}
	}
}

func TestTenantsAndQueuesAreWalls(t *testing.T) {
	s := start(t)
	enqueue := func(queue, tenant string) string {
		var e server.EnqueuedTask
		s.do("POST", "/api/v1/tasks", object{"kind": "k", "queue": queue, "tenant": tenant}).want(t, 201, &e)
		return e.ID
	}
	mine, theirs, none := enqueue("a.x", "acme"), enqueue("a.x", "umbrella"), enqueue("b", "acme")
	token := s.tokenFor(access.Token{Name: "acme", Role: access.Operator, Queues: []string{"a.*"}, Tenants: []string{"acme"}})
	do := func(method, path string, body any) answer { return s.as(token, method, path, body) }

	var page server.TaskPage
	do("GET", "/api/v1/tasks", nil).want(t, 200, &page)
	if len(page.Tasks) != 1 || page.Tasks[0].ID != mine {
		t.Errorf("%+v", page)
	}
	for _, id := range []string{theirs, none} {
		do("GET", "/api/v1/tasks/"+id, nil).problem(t, 404, "not_found")
		do("GET", "/tasks/"+id, nil).want(t, 404, nil)
		do("GET", "/tasks/new?of="+id, nil).want(t, 404, nil)
		do("POST", "/api/v1/tasks/"+id+"/cancel", nil).problem(t, 404, "not_found")
		do("DELETE", "/api/v1/tasks/"+id, nil).problem(t, 404, "not_found")
		do("POST", "/tasks/"+id+"/cancel", nil).want(t, 404, nil)
	}
	var results server.EditResults
	do("POST", "/api/v1/tasks/edit", object{"ids": []string{theirs, mine, none}, "action": "reprioritize", "priority": 3}).want(t, 200, &results)
	if got := fmt.Sprint(results.Results[0].Result, " ", results.Results[1].Result, " ", results.Results[2].Result); got != "missing changed missing" {
		t.Error(got)
	}
	form := url.Values{"id": {theirs, none}, "action": {"cancel"}}
	s.as(token, "POST", "/tasks/selected", form.Encode(), "Content-Type", "application/x-www-form-urlencoded").want(t, 303, nil)
	var o server.Bulk
	do("POST", "/api/v1/bulk", object{"filter": object{}, "action": "cancel"}).want(t, 202, &o)
	eventually(t, func() bool { do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o); return o.State == "done" })
	if o.Seen != 1 {
		t.Errorf("%+v", o)
	}
	for _, id := range []string{theirs, none} {
		if d := s.task(id); d.State != "available" || d.Priority != 0 {
			t.Errorf("a wall has a hole: %+v", d)
		}
	}
	if body := do("GET", "/api/v1/tasks/export", nil).want(t, 200, nil).body; strings.Contains(body, theirs) || strings.Contains(body, none) {
		t.Error(body)
	}
	if body := do("GET", "/tasks", nil).want(t, 200, nil).body; strings.Contains(body, theirs) || strings.Contains(body, none) || !strings.Contains(body, mine) {
		t.Error("the page shows what it must not")
	}
	do("POST", "/api/v1/tasks", object{"kind": "k", "queue": "a.x", "tenant": "umbrella"}).problem(t, 403, "forbidden")
	do("POST", "/api/v1/tasks", object{"kind": "k", "queue": "b", "tenant": "acme"}).problem(t, 403, "forbidden")
	do("POST", "/api/v1/tasks/batch", object{"tasks": []object{{"kind": "k", "queue": "a.x", "tenant": "acme"}, {"kind": "k", "queue": "b", "tenant": "acme"}}}).problem(t, 403, "forbidden")
	do("POST", "/api/v1/tasks/"+mine+"/move", object{"queue": "b"}).problem(t, 403, "forbidden")
	do("PUT", "/api/v1/schedules/x", object{"spec": "@daily", "kind": "k", "queue": "b"}).problem(t, 403, "forbidden")
	for _, path := range []string{"/api/v1/queues", "/api/v1/stats", "/api/v1/errors", "/api/v1/workers", "/api/v1/events", "/", "/queues", "/errors", "/workers", "/live", "/series.json"} {
		if a := do("GET", path, nil); a.status != 403 {
			t.Errorf("%s tells a tenant of all: %d", path, a.status)
		}
	}
	do("POST", "/api/v1/queues/a.x/pause", nil).problem(t, 403, "forbidden")
	bound := s.tokenFor(access.Token{Name: "half-admin", Role: access.Admins, Queues: []string{"a.*"}})
	s.as(bound, "POST", "/api/v1/tokens", object{"name": "all", "role": "admin"}).problem(t, 403, "forbidden")
	s.as(bound, "GET", "/audit", nil).want(t, 403, nil)
	var queues server.QueueList
	s.as(bound, "GET", "/api/v1/queues", nil).want(t, 200, &queues)
	if len(queues.Queues) != 1 || queues.Queues[0].Name != "a.x" {
		t.Error(queues)
	}
}

func TestTokensExpireAndAreRevoked(t *testing.T) {
	s := start(t)
	var made server.NewToken
	s.do("POST", "/api/v1/tokens", object{"name": "ci", "role": "viewer"}).want(t, 201, &made)
	s.as(made.Secret, "GET", "/api/v1/me", nil).want(t, 200, nil)
	for _, bad := range []string{made.Secret + "0", made.Secret[:len(made.Secret)-1], "tusk__", "tusk_" + made.Token.ID + "_", strings.ToUpper(made.Secret), "x", "tusk_a_b_c"} {
		s.as(bad, "GET", "/api/v1/me", nil).problem(t, 401, "unauthenticated")
	}
	s.do("GET", "/api/v1/me?token="+made.Secret, nil).problem(t, 400, "unknown_parameter")
	if body := s.do("GET", "/api/v1/tokens", nil).want(t, 200, nil).body; strings.Contains(body, made.Secret) || strings.Contains(body, "hash") {
		t.Error("secrets are listed")
	}
	records, err := s.client.Store().Records(t.Context(), "token")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if strings.Contains(string(r.Body), made.Secret) {
			t.Error("the secret is stored")
		}
	}
	s.do("DELETE", "/api/v1/tokens/"+made.Token.ID, nil).want(t, 204, nil)
	s.as(made.Secret, "GET", "/api/v1/me", nil).problem(t, 401, "unauthenticated")
	s.do("DELETE", "/api/v1/tokens/nothing", nil).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/tokens", object{"name": "x", "role": "root"}).problem(t, 400, "invalid")
	s.do("POST", "/api/v1/tokens", object{"name": "x", "role": "viewer", "queues": []string{"A*B"}}).problem(t, 400, "invalid")
	short := s.tokenFor(access.Token{Name: "short", Role: access.Viewer, ExpiresAt: time.Now().Add(time.Second)})
	s.as(short, "GET", "/api/v1/me", nil).want(t, 200, nil)
	eventually(t, func() bool { return s.as(short, "GET", "/api/v1/me", nil).status == 401 })
	// Guessing is slowed down.
	var last answer
	for range 15 {
		last = s.as("tusk_0000000000000000_00", "GET", "/api/v1/me", nil)
	}
	if last.problem(t, 429, "rate_limited"); last.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestPeopleLogInAndOut(t *testing.T) {
	s := start(t)
	s.do("PUT", "/api/v1/users/ada", object{"password": "short", "role": "viewer"}).problem(t, 400, "invalid")
	s.do("PUT", "/api/v1/users/ada", object{"password": strings.Repeat("x", 73), "role": "viewer"}).problem(t, 400, "invalid")
	s.do("PUT", "/api/v1/users/ada", object{"password": "correct horse", "role": "viewer"}).want(t, 200, nil)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	person := &http.Client{Jar: jar}
	post := func(path string, form url.Values) (int, string) {
		r, err := person.PostForm(s.URL+path, form)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode, r.Request.URL.Path
	}
	if status, _ := post("/login", url.Values{"name": {"ada"}, "password": {"wrong horse"}}); status != 401 {
		t.Error(status)
	}
	if status, _ := post("/login", url.Values{"name": {"nobody"}, "password": {"wrong horse"}}); status != 401 {
		t.Error(status)
	}
	if status, at := post("/login", url.Values{"name": {"ada"}, "password": {"correct horse"}, "next": {"/tasks?queue=a"}}); status != 200 || at != "/tasks" {
		t.Error(status, at)
	}
	if status, _ := post("/tasks/new", url.Values{"kind": {"k"}, "args": {"{}"}}); status != 403 {
		t.Error("a viewer enqueues:", status)
	}
	for _, next := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "javascript:alert(1)"} {
		if status, at := post("/login", url.Values{"name": {"ada"}, "password": {"correct horse"}, "next": {next}}); status != 200 || at != "/" {
			t.Error(next, status, at)
		}
	}
	u, _ := url.Parse(s.URL)
	for _, c := range jar.Cookies(u) {
		if records, err := s.client.Store().Records(t.Context(), "session"); err != nil || strings.Contains(fmt.Sprintf("%q", bodies(records)), c.Value) {
			t.Error("the cookie is stored", err)
		}
	}
	s.do("DELETE", "/api/v1/users/ada", nil).want(t, 204, nil) // ends the sessions, too
	r, err := person.Get(s.URL + "/tasks")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.Request.URL.Path != "/login" {
		t.Error("a removed user is let in:", r.Request.URL)
	}
	for range 12 {
		post("/login", url.Values{"name": {"eve"}, "password": {"guess"}})
	}
	if status, _ := post("/login", url.Values{"name": {"eve"}, "password": {"guess"}}); status != 429 {
		t.Error("guessing goes on:", status)
	}
}

func TestWhatOperatorsDoIsWrittenDown(t *testing.T) {
	s := start(t)
	var e server.EnqueuedTask
	s.do("POST", "/api/v1/tasks", object{"kind": "k"}).want(t, 201, &e)
	s.do("POST", "/api/v1/tasks/"+e.ID+"/cancel", nil).want(t, 200, nil)
	s.do("POST", "/api/v1/tasks/"+e.ID+"/cancel", nil).problem(t, 409, "invalid_state")
	viewer := s.tokenFor(access.Token{Name: "eve", Role: access.Viewer})
	s.as(viewer, "POST", "/api/v1/queues/default/pause", nil).problem(t, 403, "forbidden")
	var log server.AuditList
	s.do("GET", "/api/v1/audit", nil).want(t, 200, &log)
	got := ""
	for _, a := range log.Entries {
		got += a.Who + " " + a.Action + " " + a.Result + "; "
		if a.Action == "tasks.cancel" && (a.Target != e.ID || a.Request == "" || a.Address == "") {
			t.Errorf("%+v", a)
		}
	}
	if got != "eve queues.pause forbidden; test-admin tasks.cancel invalid_state; test-admin tasks.cancel ok; " {
		t.Error(got)
	}
	s.do("GET", "/api/v1/audit?who=eve", nil).want(t, 200, &log)
	if len(log.Entries) != 1 {
		t.Error(log)
	}
}

func TestAReadOnlyServerChangesNothing(t *testing.T) {
	s := start(t, func(c *server.Config) { c.ReadOnly = true })
	for _, r := range server.Routes() {
		if r.Method == "GET" || r.Need == access.Open {
			continue
		}
		s.do(r.Method, filledPath(r.Path), "{}").problem(t, 403, "read_only")
	}
	for _, r := range ui.Routes() {
		if r.Method == "POST" && r.Need != access.Open {
			if a := s.do("POST", filledPath(r.Path), nil); a.status != 403 {
				t.Errorf("%s: %d", r.Path, a.status)
			}
		}
	}
	s.do("GET", "/api/v1/tasks", nil).want(t, 200, nil)
}

func TestOtherSitesAndOtherNamesAreRefused(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Hosts = []string{"tusk.example.com"}; c.Dev = true })
	for _, path := range []string{"/api/v1/queues/default/pause", "/queues/default/pause", "/login"} {
		s.do("POST", path, nil, "Sec-Fetch-Site", "cross-site").problem(t, 403, "cross_origin")
		s.do("POST", path, nil, "Sec-Fetch-Site", "same-site").problem(t, 403, "cross_origin")
		s.do("POST", path, nil, "Origin", "https://evil.example").problem(t, 403, "cross_origin")
		s.do("POST", path, nil, "Origin", "null").problem(t, 403, "cross_origin")
	}
	s.do("POST", "/api/v1/queues/default/pause", nil, "Sec-Fetch-Site", "same-origin").want(t, 200, nil)
	for host, status := range map[string]int{"localhost": 200, "localhost:80": 200, "127.0.0.1": 200, "127.0.0.9:1": 200, "[::1]:80": 200, "tusk.example.com": 200,
		"TUSK.example.com:443": 200, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.nip.io": 421, "0.0.0.0": 421, "10.0.0.1": 421, "[::ffff:10.0.0.1]": 421, "tusk.example.com.": 200} {
		if a := s.do("GET", "/healthz", nil, "Host", host); a.status != status {
			t.Errorf("%s: %d, want %d", host, a.status, status)
		}
	}
}

func TestEveryAnswerHasItsSecurityHeaders(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/", "/login", "/tasks", "/nothing", "/api/v1/tasks", "/api/v1/nothing", "/healthz", "/static/app.js", "/static/nothing", "//"} {
		h := s.as("", "GET", path, nil).header
		csp := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: no %s", path, part)
			}
		}
		if strings.Contains(csp, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("Access-Control-Allow-Origin") != "" || h.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestSecretsStayOutOfLogsAndPages(t *testing.T) {
	var log safeBuffer
	s, f := filled(t, func(c *server.Config) { c.Logger = log.logger() })
	paths := append(pagesOf(f), "/api/v1/tasks?limit=1000", "/api/v1/tasks/export", "/api/v1/tasks/export?format=csv", "/api/v1/tasks/"+f.Completed.String(),
		"/api/v1/schedules", "/api/v1/schedules/sweep-carts", "/schedules/sweep-carts", "/api/v1/tasks?key=s3cr3t-in-query")
	for _, path := range paths {
		if a := s.do("GET", path, nil); strings.Contains(a.body, "s3cr3t-canary") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if text := log.String(); strings.Contains(text, "s3cr3t") || strings.Contains(text, s.token) || !strings.Contains(text, "test-admin") {
		t.Error("the log has a secret, or no names")
	}
}

func TestTheMaskCanHideEverything(t *testing.T) {
	s, f := filled(t, func(c *server.Config) { c.Mask = maskAll })
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+f.Completed.String(), nil).want(t, 200, &d)
	if string(d.Args) != `"[hidden]"` || string(d.Output) != `"[hidden]"` {
		t.Error(string(d.Args), string(d.Output))
	}
	if body := s.do("GET", "/tasks/"+f.Completed.String(), nil).body; strings.Contains(body, "customer-") {
		t.Error("a page shows args")
	}
}

func TestOpenAPIIsValidJSONAndNamesEveryRoute(t *testing.T) {
	text, err := server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatal(err, doc.OpenAPI)
	}
	for _, r := range server.Routes() {
		if doc.Paths[r.Path][strings.ToLower(r.Method)] == nil {
			t.Errorf("%s %s is not described", r.Method, r.Path)
		}
	}
}

func bodies(records []store.Record) (texts []string) {
	for _, r := range records {
		texts = append(texts, r.Name, string(r.Body))
	}
	return texts
}
