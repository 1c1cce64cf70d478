package server_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

// says fails for each text that a page does not contain.
func (a answer) says(t *testing.T, texts ...string) {
	t.Helper()
	if a.status != 200 {
		t.Fatalf("status %d: %.300s", a.status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

func (s *site) page(path string) answer { return s.do("GET", path, nil) }

func TestAQueueAKindAndAWorkerHavePages(t *testing.T) {
	s, f := filled(t)
	s.page("/queues/reports").says(t, "<h1>reports", `href="/kinds/transcode_video"`, "/tasks/"+f.Running.String(),
		"/schedules/morning-report", "import_feed", "Running now",
		`/tasks?queue=reports&amp;state=discarded">Discarded</a></dt><dd><b>3</b>`)
	s.page("/queues/archive").says(t, "paused", "No worker claims its tasks", "rises every 1 h towards 0")
	s.page("/kinds").says(t, `href="/kinds/charge_card"`, `href="/kinds/transcode_video"`)
	s.page("/kinds/charge_card").says(t, `href="/queues/default"`, "payment gateway", "Workers that have it")
	s.page("/kinds/archive_files").says(t, "No living worker says that it has a handler")
	for _, path := range []string{"/queues/nobody", "/queues/A%20B", "/kinds/nothing", "/workers/" + tusk.NewID().String(),
		"/workers/x"} {
		if a := s.page(path); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	workers, err := s.client.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := "/workers/" + workers[0].ID.String()
	s.page(at).says(t, "/tasks/"+f.Running.String(), `href="/queues/mail"`, `href="/kinds/send_email"`)
	s.page("/tasks/"+f.Running.String()).says(t, at, "/queues/reports", "/kinds/transcode_video")

	// A pause on a queue's page returns to that page.
	if a := s.post("/queues/mail/pause", form("back", "queue")); a.header.Get("Location") != "/queues/mail?note=paused" {
		t.Error(a.header.Get("Location"))
	}
	s.post("/queues/mail/resume", "").want(t, 303, nil)

	// Make the worker quiet, then wake it.
	s.post(at+"/quiet", "").want(t, 303, nil)
	s.page(at).says(t, "It claims nothing more.", at+"/wake")
	s.page("/workers").says(t, ">quiet</span>")
	s.post(at+"/wake", "").want(t, 303, nil)
	var w server.Worker
	if s.do("POST", "/api/v1"+at+"/quiet", nil).want(t, 200, &w); !w.Quiet {
		t.Error(w)
	}
	s.page("/queues/mail").says(t, ">quiet</span>")
	if s.do("POST", "/api/v1"+at+"/wake", nil).want(t, 200, &w); w.Quiet {
		t.Error(w)
	}
	s.do("POST", "/api/v1/workers/"+tusk.NewID().String()+"/quiet", nil).want(t, 404, nil)
	if workers, err := s.client.Workers(t.Context()); err != nil || workers[0].Quiet {
		t.Error(workers, err)
	}
}

func TestWallsStandAroundThePagesOfQueuesKindsAndWorkers(t *testing.T) {
	s, f := filled(t)
	workers, err := s.client.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := "/workers/" + workers[0].ID.String()
	mail := s.tokenFor(access.Token{Name: "mail", Role: access.Operator, Queues: []string{"mail"}})
	for path, want := range map[string]int{"/queues/mail": 200, "/queues/reports": 404,
		"/kinds/close_books": 404, at: 200} {
		if a := s.as(mail, "GET", path, nil); a.status != want || strings.Contains(a.body, f.Running.String()) {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := s.as(mail, "POST", at+"/quiet", nil); a.status != 403 {
		t.Errorf("a worker of others' queues is quiet: %d", a.status)
	}
	if p := s.as(mail, "POST", "/api/v1"+at+"/quiet", nil).problem(t, 403, "forbidden"); strings.Contains(p.Detail,
		"the queue ") {
		t.Errorf("a refusal names a queue that the caller did not: %s", p.Detail)
	}
	for _, q := range []string{"reports", "morning", f.Running.String(), f.Running.String()[24:]} {
		if a := s.as(mail, "GET", "/find?q="+q, nil); a.status != 200 || strings.Contains(a.body, `id="found"`) {
			t.Errorf("finds %s: %d", q, a.status)
		}
	}
	acme := s.tokenFor(access.Token{Name: "acme", Role: access.Viewer, Tenants: []string{"acme"}})
	for path, want := range map[string]int{"/queues/mail": 403, "/kinds": 403, "/kinds/send_email": 403, at: 403,
		"/find?q=mail": 200} {
		if a := s.as(acme, "GET", path, nil); a.status != want || strings.Contains(a.body, `id="found"`) {
			t.Errorf("%s for a tenant: %d", path, a.status)
		}
	}
	if a := s.as(acme, "GET", "/tasks", nil); strings.Contains(a.body, `class="count"`) {
		t.Error("a tenant sees the counts of all")
	}
}

func TestASearchFindsEverythingThatHasAName(t *testing.T) {
	s, f := filled(t)
	for q, want := range map[string]string{
		"repor": `href="/queues/reports"`, "TRANSCODE": `href="/kinds/transcode_video"`,
		"morning":        `href="/schedules/morning-report"`,
		"report-2026-11": `href="/tasks/` + f.Scheduled.String(), f.Running.String()[24:]: `href="/tasks/` +
			f.Running.String(),
		f.Workflow.String(): `href="/workflows/` + f.Workflow.String(), "import_": `href="/kinds/import_feed"`,
	} {
		s.page("/find?q="+url.QueryEscape(q)).says(t, want)
	}
	s.page("/find?q=nothing-has-this-name").says(t, "Nothing found")
	s.page("/find").says(t, "Search")
}

func TestStatesHaveTheNumbersThatTheEngineCounts(t *testing.T) {
	s, _ := filled(t)
	count := func(page, state string) string {
		t.Helper()
		_, rest, _ := strings.Cut(s.page(page).body, `<a class="state `+state+`"`)
		rest, _, _ = strings.Cut(rest, "</a>")
		_, n, _ := strings.Cut(rest, `class="count">`)
		n, _, _ = strings.Cut(n, "<")
		return n
	}
	for _, c := range []struct{ page, state, want string }{
		{"/tasks?queue=archive", "available", "12"}, {"/tasks?queue=archive", "discarded", "0"},
		{"/tasks?queue=reports", "discarded", "3"},
		{"/tasks?queue=reports&state=running", "running", "1"}, {"/tasks?queue=archive", "completed", ""},
		{"/tasks?kind=archive_files", "available", ""},
	} {
		if got := count(c.page, c.state); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.page, c.state, got, c.want)
		}
	}
	var counts int64
	groups, err := s.client.Errors(t.Context(), store.ErrorFilter{})
	for _, g := range groups {
		counts += g.Dead
	}
	left, err2 := s.client.List(t.Context(), tusk.Filter{States: []tusk.State{tusk.StateDiscarded}, Limit: 1000})
	if err != nil || err2 != nil || int64(len(left)) != counts {
		t.Errorf("%d are discarded, the groups count %d: %v %v", len(left), counts, err, err2)
	}
	s.page("/").says(t, `data-live="total.discarded"`)
}

func TestAWorkflowTellsItsTimesAndRunsAgainFromATask(t *testing.T) {
	s, f := filled(t)
	w, err := s.client.Workflow(t.Context(), f.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	at := "/workflows/" + f.Workflow.String()
	s.page(at).says(t, "Retry from here", "in all</th>", `class="failed"`, `class="completed"`, "Failed</b>")
	var done *tusk.TaskInfo
	for i := range w.Tasks {
		if w.Tasks[i].State == tusk.StateCompleted && len(w.Tasks[i].Detail.Needs) == 0 {
			done = &w.Tasks[i]
		}
	}
	asked := s.post(at+"/from", form("node", done.ID.String()))
	asked.says(t, "and what comes after it again?", `name="node" value="`+done.ID.String())
	s.post(at+"/from", form("node", done.ID.String(), "confirm", "yes")).want(t, 303, nil)
	eventually(t, func() bool {
		again, err := s.client.Get(t.Context(), done.ID)
		return err == nil && again.FinishedAt.After(done.FinishedAt)
	})
	s.post(at+"/from", form("node", "nothing")).want(t, 404, nil)
	s.page("/workflows?kind="+done.Kind).says(t, f.Workflow.String())
	if page := s.page("/workflows?kind=nothing").body; strings.Contains(page, f.Workflow.String()) {
		t.Error("a workflow without the kind is listed")
	}
}

func TestAScheduleTellsItsHistoryAndItsTicksInItsZone(t *testing.T) {
	s, _ := filled(t)
	page := s.page("/schedules/morning-report")
	page.says(t, "Next ticks, in Europe/Berlin", " 07:30:00</b>")
	if strings.Contains(page.body, "Sat 20") || strings.Contains(page.body, "Sun 20") {
		t.Error("a tick of the week lies on its end")
	}
	r, err := s.client.RunSchedule(t.Context(), "morning-report")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		task, err := s.client.Get(t.Context(), r.ID)
		return err == nil && task.State == tusk.StateCompleted
	})
	s.page("/schedules/morning-report").says(t, "Its latest tasks", "/tasks/"+r.ID.String())
}

func TestAPersonFindsAndReadsWithKeysAndThePointer(t *testing.T) {
	s, f := filled(t, func(c *server.Config) { c.Dev = true })
	b := openBrowser(t, s.URL)
	b.as(1280, "light")

	// The chart shows its numbers at the pointer and with keys.
	b.open("/queues/default")
	b.run(chromedp.WaitVisible(".u-over", chromedp.ByQuery), chromedp.Focus("[data-chart]", chromedp.ByQuery),
		chromedp.KeyEvent(kb.ArrowLeft))
	eventually(t, func() bool { return strings.Contains(b.text("#tip"), " completed, ") })
	b.accessible("a chart that tells its numbers")
	b.open("/queues/default?view=durations")
	b.run(chromedp.WaitVisible(".u-over", chromedp.ByQuery), chromedp.Focus("[data-chart]", chromedp.ByQuery),
		chromedp.KeyEvent(kb.ArrowLeft))
	eventually(t, func() bool { return strings.Contains(b.text("#tip"), "ran ") })

	// Ctrl-K finds a page, and a task by the end of its id.
	control := chromedp.KeyEvent("k", chromedp.KeyModifiers(2))
	b.open("/help")
	b.run(control, chromedp.WaitVisible("#palette input", chromedp.ByQuery),
		chromedp.SendKeys("#palette input", "sched", chromedp.ByQuery))
	eventually(t, func() bool {
		return strings.Contains(b.text("#palette"), "morning-report") ||
			strings.Contains(b.text("#palette"), "Page Schedules")
	})
	b.accessible("the search")
	eventually(t, func() bool { // results are redrawn with each response
		var clicked bool
		b.run(chromedp.Evaluate(`(a => { a?.click(); return !!a })(document.querySelector('#palette a[href$="/schedules"]'))`,
			&clicked))
		return clicked
	})
	eventually(t, func() bool { path, _ := b.at(); return path == "/schedules" })
	b.run(chromedp.WaitVisible("h1", chromedp.ByQuery))
	if got := b.text("h1"); got != "Schedules" {
		t.Error(got)
	}
	b.run(control, chromedp.WaitVisible("#palette input", chromedp.ByQuery),
		chromedp.SendKeys("#palette input", f.Discarded.String()[24:], chromedp.ByQuery))
	b.run(chromedp.WaitVisible(`#palette a[href$="/tasks/`+f.Discarded.String()+`"]`, chromedp.ByQuery),
		chromedp.SendKeys("#palette input", "\r", chromedp.ByQuery))
	eventually(t, func() bool { path, _ := b.at(); return path == "/tasks/"+f.Discarded.String() })

	// On a phone the rows of tables are cards, as wide as the screen.
	b.as(390, "light")
	b.open("/tasks")
	var first string
	var wide bool
	b.run(chromedp.Evaluate(
		`getComputedStyle(document.querySelector("table.tasks tbody td:nth-child(3)"), "::before").content`, &first),
		chromedp.Evaluate(`[...document.querySelectorAll(".scroll")].some((e) => e.scrollWidth > e.clientWidth)`, &wide))
	if first != `"State"` || wide {
		t.Errorf("the cell says %s; it scrolls: %v", first, wide)
	}
	b.as(320, "light")
	for _, path := range []string{"/queues/default", "/kinds", "/workers", "/errors", "/queues"} {
		b.open(path)
		b.run(chromedp.Evaluate(`document.documentElement.scrollWidth > document.documentElement.clientWidth`, &wide))
		if wide {
			t.Errorf("%s is too wide for 320 px", path)
		}
	}
	b.quiet("the visit")
}
