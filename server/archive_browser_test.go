package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/server/access"
)

// A person finds a task that has left the database, runs it and others again, and holds a tenant. The pages cause no
// browser errors, are accessible, and fit the screen.
func TestAPersonWorksWithTheArchive(t *testing.T) {
	s := startShelved(t, 12)
	ada := access.User{Name: "ada", Role: access.Admins}
	if err := s.server.Book().PutUser(t.Context(), ada, "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s.URL)
	b.as(1280, "light")
	b.open("/archive")
	write := func(name, text string) { b.run(chromedp.SendKeys("main input[name="+name+"]", text, chromedp.ByQuery)) }
	write("name", "ada")
	write("password", "correct horse battery")
	b.submit("main form button.go")
	if got := b.text("h1"); got != "Archive" {
		t.Fatalf("after the login: %q", got)
	}

	// Search, and open a result.
	write("tenant", "acme")
	write("args", "order.id=1")
	b.submit("form.filters button")
	if got := b.text("main [role=status]"); !strings.Contains(got, "1 are shown") && !strings.Contains(got, "1 is shown") {
		t.Errorf("found: %q", got)
	}
	b.submit("tbody tr a")
	if got := b.text("h1"); !strings.Contains(got, "archived") {
		t.Errorf("the task: %q", got)
	}
	b.submit(`form[action$="/rerun"] button`)
	again, err := s.client.List(t.Context(), tusk.Filter{Kinds: []string{"bill"}})
	if err != nil || len(again) != 1 || again[0].Metadata["rerun_of"] != s.ids[1].String() {
		t.Errorf("run again: %+v, %v", again, err)
	}

	// Run all of a queue again.
	b.open("/archive?queue=theirs")
	b.submit(`form[action$="/archive/reruns"] button`)
	if got := b.text("h1"); got != "Run all 6 tasks that match again?" {
		t.Errorf("the question: %q", got)
	}
	write("typed", "6")
	b.submit("button.danger")
	b.open("/archive")
	if got := b.text("main section table"); !strings.Contains(got, "ada") {
		t.Errorf("reruns: %q", got)
	}

	// Hold a tenant.
	b.open("/archive/keeping")
	b.run(chromedp.SendKeys("form.form input[name=name]", "case-17", chromedp.ByQuery))
	b.run(chromedp.SendKeys("form.form input[name=tenant]", "bolt", chromedp.ByQuery))
	b.submit(`form.form button`)
	holds, err := archive.Holds(t.Context(), s.client.Store())
	if err != nil || len(holds) != 1 || holds[0].Tenant != "bolt" {
		t.Errorf("holds: %+v, %v", holds, err)
	}
	b.quiet("the way through the archive")

	for _, width := range []int64{1280, 390} {
		b.as(width, "dark")
		for _, path := range []string{
			"/archive", "/archive?queue=mine", "/archive?queue=nothing", "/archive/keeping", "/tasks/" + s.ids[2].String(),
		} {
			at := fmt.Sprintf("%s at %d", path, width)
			b.open(path)
			var over int
			b.run(chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over))
			if over > 0 {
				t.Errorf("%s: %d pixels too wide", at, over)
			}
			b.accessible(at)
			b.quiet(at)
		}
	}
}
