package server_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/fixture"
)

// browser is a Chromium that records every problem it reports.
type browser struct {
	ctx      context.Context
	t        *testing.T
	base     string
	mu       sync.Mutex
	problems []string
}

// patience is how long a part of a visit may take: what is not there after that never comes.
const patience = 15 * time.Second

func openBrowser(t *testing.T, base string) *browser {
	t.Helper()
	var found string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil && found == "" {
			found = p
		}
	}
	if found == "" {
		if os.Getenv("TUSK_TEST_ALL") != "" {
			t.Fatal("needs Chromium: run scripts/deps")
		}
		t.Skip("needs Chromium")
	}
	profile, err := os.MkdirTemp("", "tusk-browser-")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.UserDataDir(profile),
		chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-GB"))
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(alloc)
	ctx, stopTimer := context.WithTimeout(ctx, 15*time.Minute)
	b := &browser{ctx: ctx, t: t, base: base}
	t.Cleanup(func() {
		stopTimer()
		stop()
		stopAlloc()
		os.RemoveAll(profile)
	})
	chromedp.ListenTarget(ctx, b.hear)
	if err := chromedp.Run(ctx, runtime.Enable(), cdplog.Enable()); err != nil { // it lives as long as the first context
		t.Fatal(err)
	}
	return b
}

func (b *browser) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			for _, a := range e.Args {
				text += string(a.Value) + a.Description + " "
			}
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			text = e.Entry.Text + " " + e.Entry.URL
		}
	case *page.EventJavascriptDialogOpening:
		text = "a dialog opened: " + e.Message
	}
	if text != "" {
		b.mu.Lock()
		b.problems = append(b.problems, text)
		b.mu.Unlock()
	}
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// quiet fails if the browser has reported a problem.
func (b *browser) quiet(at string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Errorf("%s: %s", at, p)
	}
	b.problems = nil
}

func (b *browser) open(path string) { b.t.Helper(); b.run(chromedp.Navigate(b.base + path)) }

func (b *browser) text(selector string) (text string) {
	b.t.Helper()
	b.run(chromedp.Text(selector, &text, chromedp.ByQuery))
	return strings.TrimSpace(text)
}

// submit clicks and waits for the next page.
func (b *browser) submit(selector string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(selector, chromedp.ByQuery)); err != nil {
		b.t.Fatalf("%s: %v", selector, err)
	}
	b.run(chromedp.WaitReady("main", chromedp.ByQuery))
}

// as sets the width, the colour scheme, and further preferences.
func (b *browser) as(width int64, theme string, more ...*emulation.MediaFeature) {
	b.t.Helper()
	features := append(more, &emulation.MediaFeature{Name: "prefers-color-scheme", Value: theme})
	b.run(emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500),
		emulation.SetEmulatedMedia().WithFeatures(features))
}

// retryGroup retries the first group of the page of errors, and waits until that is done.
func (b *browser) retryGroup() {
	b.t.Helper()
	b.submit(`form[action*="/errors/"] button`)
	if got := b.text("h1"); got != "Retry all tasks with this error?" {
		b.t.Fatalf("before a group is retried: %q", got)
	}
	b.submit(`form[action*="/errors/"] button.danger`)
	if got := b.text(".note"); !strings.HasPrefix(got, "Started") {
		b.t.Fatal(got)
	}
	eventually(b.t, func() bool {
		b.open("/bulk")
		return b.text("tbody .badge") == "done"
	})
}

// fits fails if the page is wider than the screen.
func (b *browser) fits(at string) {
	b.t.Helper()
	var wide []string
	b.run(chromedp.Evaluate(`(() => {
		const page = document.documentElement, limit = page.clientWidth;
		if (page.scrollWidth <= limit) return [];
		const out = (e) => e.getBoundingClientRect().right > limit && !e.closest(".scroll");
		return [...document.querySelectorAll("main *")].filter(out).map((e) => e.outerHTML.slice(0, 120))
	})()`, &wide))
	for _, e := range wide {
		b.t.Errorf("%s: too wide: %s", at, e)
	}
}

func pagesOf(f fixture.Filled) []string {
	id := func(id fmt.Stringer) string { return "/tasks/" + id.String() }
	return []string{"/", "/?range=24h", "/queues", "/tasks", "/tasks?state=discarded",
		"/tasks?queue=mail&tag=welcome&from=24h", "/tasks?kind=nothing", "/tasks/new",
		"/tasks/new?of=" + f.Completed.String(), id(f.Completed), id(f.Discarded), id(f.Retryable), id(f.Available),
		id(f.Scheduled), id(f.Running),
		id(f.Cancelled), id(f.Hostile), "/errors", "/errors?window=all", "/schedules", "/schedules/morning-report",
		"/schedules/year-end", "/new-schedule",
		"/workflows", "/workflows/" + f.Workflow.String(), "/workflows/" + f.Run.String(), "/pipelines", "/limits",
		"/limits?edit=sync", "/limits?turns=sync", "/tenants", "/tenants/acme",
		"/workers", "/queues/reports", "/queues/archive?view=durations", "/kinds", "/kinds/charge_card", "/find?q=report",
		"/bulk", "/audit", "/access", "/endpoints", "/alerts", "/settings", "/tasks?from=1h&args=order",
		"/tasks/new?edit=1&of=" + f.Scheduled.String(), "/help", "/tasks?state=nonsense"}
}

func TestEveryPageIsAccessibleQuietAndFits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	s, f := filled(t, func(c *server.Config) { c.Dev = true; c.Environment = "staging" })
	o, err := s.client.StartOperation(t.Context(), tusk.Filter{Kinds: []string{"resize_image"}},
		tusk.Change{Op: tusk.OpReprioritize}, &tusk.OperationOptions{Expected: 40, By: "ada", PerSecond: 500})
	if err != nil {
		t.Fatal(err)
	}
	paths := append(pagesOf(f), "/bulk/"+o.ID.String(), "/queues?edit=mail")
	b := openBrowser(t, s.URL)
	// An animation that runs while the scheme changes would go on in the colours of the other one.
	still := &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"}
	for _, width := range []int64{1280, 390} {
		for _, path := range paths {
			at := fmt.Sprintf("%s at %d", path, width)
			b.as(width, "light")
			b.open(path)
			b.fits(at)
			b.obeys(at, otherRules)
			b.as(width, "dark", still)
			b.fits(at + ", dark")
			// Colours are the same at both widths, except in the menu and in lists that become cards.
			if width > 500 || path == "/" || path == "/tasks" {
				b.obeys(at+", dark", colourRules)
				b.as(width, "light", still)
				b.obeys(at, colourRules)
			}
			t.Log(at)
			if path == "/tasks?state=nonsense" {
				b.mu.Lock()
				b.problems = nil // the browser reports the status 400
				b.mu.Unlock()
			}
			b.quiet(at)
		}
	}
}

func TestAPersonFindsTheFailingTasksAndRetriesThem(t *testing.T) {
	s, f := filled(t, func(c *server.Config) { c.Prefix = "/admin/tusk" })
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "ada", Role: access.Operator},
		"correct horse battery"); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s.URL+"/admin/tusk")
	b.as(1280, "light")

	// Log in; the requested page follows.
	b.open("/errors")
	b.run(chromedp.SendKeys("input[name=name]", "ada", chromedp.ByQuery),
		chromedp.SendKeys("input[name=password]", "correct horse battery", chromedp.ByQuery))
	b.submit("main form button.go")
	if got := b.text("h1"); got != "Errors" {
		t.Fatalf("after the login: %q", got)
	}

	// Retry a group from its row.
	b.retryGroup()

	// Keys: g t goes to the tasks, / to the search.
	b.run(chromedp.KeyEvent("g"))
	if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent("t")); err != nil {
		t.Fatal(err)
	}
	var focused string
	b.run(chromedp.WaitReady("#search", chromedp.ByQuery), chromedp.KeyEvent("/"),
		chromedp.Evaluate(`document.activeElement.id`, &focused))
	if focused != "search" {
		t.Errorf("/ focuses %q", focused)
	}

	// Filter, select all on the page, delete after the confirmation.
	b.open("/tasks?queue=archive&state=available")
	b.run(chromedp.Click("#all", chromedp.ByQuery), chromedp.SetValue("select[name=action]", "delete", chromedp.ByQuery))
	if got := b.text("#selected"); got != "12 selected" {
		t.Errorf("got %q", got)
	}
	b.submit(".bulkbar button")
	if got := b.text("h1"); got != "Delete 12 tasks and their history?" {
		t.Error(got)
	}
	b.submit("button.danger")
	if got := b.text(".empty h2"); got != "No tasks here" {
		t.Error(got)
	}

	// All that match: the number has to be typed.
	b.open("/tasks?kind=resize_image")
	b.run(chromedp.SetValue("select[name=scope]", "all", chromedp.ByQuery),
		chromedp.SetValue("select[name=action]", "delete", chromedp.ByQuery))
	b.submit(".bulkbar button")
	b.run(chromedp.SendKeys("input[name=typed]", "40", chromedp.ByQuery))
	b.submit("button.danger")
	eventually(t, func() bool {
		left, err := s.client.List(t.Context(), filterKind("resize_image"))
		return err == nil && len(left) == 0
	})

	// Clone a task; its hidden values are kept.
	b.open("/tasks/" + f.Completed.String())
	b.submit(`main a.button[href*="of="]`)
	b.submit("main form button.go")
	if got := b.text(".note"); got != "The task is enqueued." {
		t.Error(got)
	}
	clones, err := s.client.List(t.Context(), filterKind("send_email"))
	if err != nil || !strings.Contains(string(clones[0].Args), "s3cr3t-canary") {
		t.Error("the clone lost what the mask hides", err)
	}

	// Pause and resume a queue; a number changes without a reload.
	b.open("/queues")
	b.submit(`form[action$="/queues/archive/resume"] button`)
	b.run(chromedp.WaitReady(`form[action$="/queues/archive/pause"]`, chromedp.ByQuery))
	b.open("/")
	before := b.text(`[data-live="total.scheduled"]`)
	if _, err := s.client.Enqueue(t.Context(), later{}, laterOptions); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.text(`[data-live="total.scheduled"]`) != before })

	// Schedules: run one now; a refusal gives its reason.
	b.open("/schedules")
	b.submit(`form[action$="/schedules/sweep-carts/run"] button`)
	if got := b.text(".note"); got != "A task is enqueued." {
		t.Error(got)
	}
	b.open("/new-schedule")
	b.run(chromedp.SendKeys("input[name=name]", "bad", chromedp.ByQuery), chromedp.SendKeys("input[name=spec]",
		"0 0 31 2 *", chromedp.ByQuery), chromedp.SendKeys("input[name=kind]", "x", chromedp.ByQuery))
	b.submit("main form button.go")
	if got := b.text(".problem"); !strings.Contains(got, "spec") {
		t.Error(got)
	}
	b.mu.Lock()
	b.problems = nil // the browser reports the status 400
	b.mu.Unlock()

	// The choice of colours is kept.
	b.submit(`button[name=theme][value=dark]`)
	var theme string
	b.run(chromedp.AttributeValue("html", "data-theme", &theme, nil, chromedp.ByQuery))
	if theme != "dark" {
		t.Errorf("the theme is %q", theme)
	}
	b.submit(`form[action$="/logout"] button`)
	b.open("/tasks")
	var at string
	b.run(chromedp.Location(&at))
	if u, err := url.Parse(at); err != nil || u.Path != "/admin/tusk/login" {
		t.Error("after the logout:", at)
	}
	b.quiet("the whole visit")
}
