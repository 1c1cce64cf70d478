package server_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/feed"
)

type slowly struct{}

func (slowly) Kind() string { return "slowly" }

// steps makes a worker run a task that continues when the test says so.
func steps(t *testing.T, s *site) (next chan func(*tusk.Task[slowly])) {
	t.Helper()
	next = make(chan func(*tusk.Task[slowly]))
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, task *tusk.Task[slowly]) error {
		for {
			select {
			case do, open := <-next:
				if !open {
					return task.RecordOutput("all is well")
				}
				do(task)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	worker, err := tusk.NewWorker(s.client, mux, &tusk.WorkerConfig{Queues: []string{"slow"}, Beat: 50 * time.Millisecond,
		Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return next
}

func TestThePageOfATaskIsAlive(t *testing.T) {
	s, _ := filled(t, func(c *server.Config) { c.Dev = true })
	task, err := s.client.Enqueue(t.Context(), slowly{}, &tusk.Options{Queue: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s.URL)
	b.as(1280, "light")
	b.open("/tasks/" + task.ID.String())
	shows := func(part string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(b.text("main"), part) })
	}
	shows("available")
	b.run(chromedp.Evaluate(`window.kept = true; document.querySelector("input[name=to]").value = "typed"; 0`, nil))
	next := steps(t, s)
	shows("running")
	next <- func(task *tusk.Task[slowly]) { task.SetProgress(40, "two of five") }
	shows("two of five")
	next <- func(task *tusk.Task[slowly]) { task.Logger().Info("a line of the log") }
	shows("a line of the log")
	close(next)
	shows("all is well")
	shows("completed")
	var kept, watched bool
	b.run(chromedp.Evaluate(`window.kept === true`, &kept),
		chromedp.Evaluate(`"watch" in document.querySelector("main").dataset`, &watched))
	if !kept || watched {
		t.Errorf("it was loaded anew: %v; it is still watched: %v", !kept, watched)
	}
	b.accessible("the page of a task that has changed")
	b.quiet("the page of a task")
}

// stream opens a stream and returns its lines until it ends.
func (s *site) stream(ctx context.Context, t *testing.T, token, path string) (lines <-chan string, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 100)
	go func() {
		defer close(out)
		defer answer.Body.Close()
		for scan := bufio.NewScanner(answer.Body); scan.Scan(); {
			out <- scan.Text()
		}
	}()
	return out, answer.StatusCode
}

func TestStreamsOfATaskEndWithItAndAreBounded(t *testing.T) {
	s, f := filled(t)
	token := s.tokenFor(access.Token{Name: "vic", Role: access.Viewer})
	lines, status := s.stream(t.Context(), t, token, "/tasks/"+f.Completed.String()+"/live")
	var all []string
	for line := range lines {
		all = append(all, line)
	}
	if status != 200 || !strings.Contains(strings.Join(all, "\n"), "event: end") {
		t.Errorf("a task that has ended: %d %q", status, all)
	}
	if _, status := s.stream(t.Context(), t,
		s.tokenFor(access.Token{Name: "other", Role: access.Viewer, Queues: []string{"other.*"}}),
		"/tasks/"+f.Running.String()+"/live"); status != http.StatusNotFound {
		t.Errorf("another's task is watched: %d", status)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	o, err := s.client.StartOperation(ctx, tusk.Filter{Kinds: []string{"none"}}, tusk.Change{Op: tusk.OpCancel}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/live/lists", "/tasks/" + f.Running.String() + "/live",
		"/bulk/" + o.ID.String() + "/live"} {
		for _, role := range append(access.Roles(), "") {
			secret, want := "", 401
			if role != "" {
				secret = s.tokenFor(access.Token{Name: string(role), Role: role})
				want = map[bool]int{true: 200, false: 403}[strings.Contains(granted[role], "read")]
			}
			once, enough := context.WithCancel(ctx)
			if _, status := s.stream(once, t, secret, path); status != want {
				t.Errorf("%s as %q: %d, want %d", path, role, status, want)
			}
			enough()
		}
	}
	for range feed.OwnWatchers {
		if _, status := s.stream(ctx, t, token, "/tasks/"+f.Running.String()+"/live"); status != 200 {
			t.Fatal(status)
		}
	}
	if _, status := s.stream(ctx, t, token, "/tasks/"+f.Running.String()+
		"/live"); status != http.StatusServiceUnavailable {
		t.Errorf("one identity watches without bound: %d", status)
	}
	if _, status := s.stream(ctx, t, token, "/live"); status != http.StatusServiceUnavailable {
		t.Errorf("streams of tasks and of queues have one bound: %d", status)
	}
}

func TestListsAreAlive(t *testing.T) {
	s, _ := filled(t, func(c *server.Config) { c.Dev = true })
	b := openBrowser(t, s.URL)
	b.as(1280, "light")
	add := func() string {
		t.Helper()
		task, err := s.client.Enqueue(t.Context(), slowly{}, &tusk.Options{Queue: "slow"})
		if err != nil {
			t.Fatal(err)
		}
		return task.ID.String()
	}
	for _, path := range []string{"/errors", "/workflows", "/pipelines", "/schedules", "/tasks"} {
		b.open(path)
		var watched string
		if b.run(chromedp.Evaluate(`document.querySelector("main").dataset.watch || ""`, &watched)); watched == "" {
			t.Errorf("%s is still", path)
		}
	}
	has := func(id string) bool {
		var there bool
		b.run(chromedp.Evaluate(`!!document.querySelector("input[name=id][value='`+id+`']")`, &there))
		return there
	}
	b.run(chromedp.Evaluate(`window.kept = true; 0`, nil))
	first := add()
	eventually(t, func() bool { return has(first) })
	b.run(chromedp.Evaluate(`document.querySelector("input[name=id][value='`+first+`']").click(); 0`, nil))
	if next := add(); b.text("#selected") != "1 selected" {
		t.Error("a row that came is not counted when it is selected")
	} else {
		b.run(chromedp.Evaluate(`document.querySelector("#all").click(); 0`, nil),
			chromedp.Evaluate(`document.querySelector("#all").click(); 0`, nil))
		eventually(t, func() bool { return has(next) })
	}
	var kept bool
	if b.run(chromedp.Evaluate(`window.kept === true`, &kept)); !kept {
		t.Error("the page was loaded anew")
	}
	b.accessible("a list that has changed")
	b.quiet("lists")
}

func TestAPhoneHasAMenu(t *testing.T) {
	s, _ := filled(t, func(c *server.Config) { c.Dev = true })
	b := openBrowser(t, s.URL)
	b.as(390, "light")
	b.open("/tasks")
	shown := func() bool {
		var is bool
		b.run(chromedp.Evaluate(`document.querySelector("nav[aria-label=Main]").checkVisibility()`, &is))
		return is
	}
	if shown() {
		t.Error("the menu is open before it is asked for")
	}
	b.run(chromedp.Focus("#menu"), chromedp.KeyEvent(" "))
	if !shown() {
		t.Error("the menu does not open by the keyboard")
	}
	b.accessible("the menu of a phone")
	// The page is live: it may be redrawn between finding a link and clicking it.
	b.run(chromedp.Evaluate(`document.querySelector('nav[aria-label=Main] a[href$="/settings"]').click()`, nil))
	eventually(t, func() bool { path, _ := b.at(); return path == "/settings" })
	b.run(chromedp.WaitVisible("h1", chromedp.ByQuery))
	if got := b.text("h1"); !strings.Contains(got, "Settings") {
		t.Error(got)
	}
	b.quiet("the menu of a phone")
}
