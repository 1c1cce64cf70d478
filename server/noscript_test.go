package server_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
)

// at returns the path and the query of the page.
func (b *browser) at() (path string, query url.Values) {
	b.t.Helper()
	var at string
	b.run(chromedp.Location(&at))
	u, err := url.Parse(at)
	if err != nil {
		b.t.Fatal(err)
	}
	return u.Path, u.Query()
}

// fill types into an empty field, or selects from a list by its first letters. It uses only keys, because everything
// that sets values needs scripts.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.run(chromedp.SendKeys(selector, text, chromedp.ByQuery))
}

func TestAPersonWithoutScriptsDoesTheSame(t *testing.T) {
	s, f := filled(t)
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "ada", Role: access.Admins},
		"correct horse battery"); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s.URL)
	b.as(1280, "light")
	b.run(emulation.SetScriptExecutionDisabled(true))

	// Log in; functions that need scripts are not offered.
	b.open("/")
	b.fill("input[name=name]", "ada")
	b.fill("input[name=password]", "correct horse battery")
	b.submit("main form button.go")
	if got := b.text("h1"); got != "Overview" {
		t.Fatalf("after the login: %q", got)
	}
	var offered []string
	b.run(chromedp.Evaluate(`["#zone", "#live", "#all"].filter((s) => document.querySelector(s)?.checkVisibility())`,
		&offered))
	if len(offered) > 0 {
		t.Errorf("offered, and does nothing: %v", offered)
	}
	var bars int
	b.run(chromedp.Evaluate(`document.querySelectorAll(".chart rect.done").length`, &bars))
	if bars != 61 {
		t.Errorf("the chart has %d bars", bars)
	}

	// Find the failing tasks: the errors, a group, a task, and the way back.
	b.submit(`nav[aria-label=Main] a[href$="/errors"]`)
	b.submit(".groups .errtext a")
	if path, query := b.at(); path != "/tasks" || query.Get("fingerprint") == "" {
		t.Fatalf("a group is at %s %v", path, query)
	}
	b.submit("table.tasks tbody a.mono")
	if got := b.text("main"); !strings.Contains(got, "Attempts") || !strings.Contains(got, "Retry") {
		t.Errorf("a task says %q", got)
	}

	// Retry the group, and watch it by reloading the page.
	b.open("/errors")
	b.retryGroup()

	// Filter by queue and state, then remove one filter.
	b.open("/tasks")
	b.fill("input[name=queue]", "archive")
	b.submit(".filters button")
	b.submit(".states a.available")
	if _, query := b.at(); query.Get("queue") != "archive" || query.Get("state") != "available" {
		t.Errorf("the filter is %v", query)
	}
	var rows int
	b.run(chromedp.Evaluate(`document.querySelectorAll("table.tasks tbody tr").length`, &rows))
	if rows != 12 {
		t.Errorf("%d rows", rows)
	}

	// Cancel a selected task; delete all that match after typing their number.
	b.run(chromedp.Click("input[name=id]", chromedp.ByQuery))
	b.fill("select[name=action]", "cancel")
	b.submit(".bulkbar button")
	cancelled, err := s.client.List(t.Context(),
		tusk.Filter{Queues: []string{"archive"}, States: []tusk.State{tusk.StateCancelled}})
	if err != nil || len(cancelled) != 2 {
		t.Errorf("%d are cancelled, %v", len(cancelled), err)
	}
	b.open("/tasks?queue=archive&state=available")
	b.fill("select[name=scope]", "all")
	b.fill("select[name=action]", "give the")
	b.fill("input[name=priority]", "-7")
	b.submit(".bulkbar button")
	if got := b.text(".ask p"); !strings.Contains(got, "queue is archive") ||
		!strings.Contains(got, "Their priority becomes -7.") {
		t.Errorf("it asks %q", got)
	}
	b.submit(".ask button")
	eventually(t, func() bool {
		raised, err := s.client.List(t.Context(),
			tusk.Filter{Queues: []string{"archive"}, States: []tusk.State{tusk.StateAvailable}})
		return err == nil && len(raised) == 11 && raised[10].Priority == -7
	})
	b.open("/tasks?queue=archive&state=available")
	b.fill("select[name=scope]", "all")
	b.fill("select[name=action]", "delete")
	b.submit(".bulkbar button")
	b.fill("input[name=typed]", "11")
	b.submit("button.danger")
	eventually(t, func() bool {
		b.open("/tasks?queue=archive&state=available")
		return b.text("main h1") == "Tasks" && strings.Contains(b.text("main"), "No tasks here")
	})

	// Retry one task from its page.
	b.open("/tasks/" + f.Cancelled.String())
	b.submit(`form[action$="/retry"] button`)
	if again, err := s.client.Get(t.Context(), f.Cancelled); err != nil || again.State == tusk.StateCancelled {
		t.Error(again.State, err)
	}

	// Pause a queue, resume it, and make it keep its tasks for longer.
	b.open("/queues")
	b.submit(`form[action$="/queues/reports/pause"] button`)
	b.run(chromedp.WaitReady(`form[action$="/queues/reports/resume"]`, chromedp.ByQuery))
	b.submit(`form[action$="/queues/reports/resume"] button`)
	b.run(chromedp.WaitReady(`form[action$="/queues/reports/pause"]`, chromedp.ByQuery))
	b.submit(`a[href*="edit=reports"]`)
	b.fill("input[name=completed]", "30d")
	b.submit(`form[action$="/queues/retention"] button`)
	if got := b.text("main table"); !strings.Contains(got, "keeps completed 30 d") {
		t.Error(got)
	}

	// Enqueue a task, run a schedule, choose colours, log out.
	b.open("/tasks/new")
	b.fill("input[name=kind]", "by_hand")
	b.submit("main form button.go")
	if got := b.text(".note"); got != "The task is enqueued." {
		t.Error(got)
	}
	b.open("/schedules")
	b.submit(`form[action$="/schedules/sweep-carts/run"] button`)
	if got := b.text(".note"); got != "A task is enqueued." {
		t.Error(got)
	}
	b.submit(`button[name=theme][value=dark]`)
	var theme string
	b.run(chromedp.AttributeValue("html", "data-theme", &theme, nil, chromedp.ByQuery))
	if theme != "dark" {
		t.Errorf("the theme is %q", theme)
	}
	b.submit(`form[action$="/logout"] button`)
	b.open("/tasks")
	if path, _ := b.at(); path != "/login" {
		t.Error("after the logout:", path)
	}
	b.quiet("the whole visit")
}
