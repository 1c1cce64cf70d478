package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

func TestAPersonFollowsABulkOperation(t *testing.T) {
	s, _ := filled(t, func(c *server.Config) { c.Dev = true })
	b := openBrowser(t, s.URL)
	b.as(1280, "light")

	// The announced number is the number of tasks that the operation changes.
	s.enqueueIn("crowd", 1000)
	s.enqueueIn("crowd", 100)
	b.open("/tasks?queue=crowd")
	b.run(chromedp.SetValue("select[name=scope]", "all", chromedp.ByQuery),
		chromedp.SetValue("select[name=action]", "cancel", chromedp.ByQuery))
	b.submit(".bulkbar button")
	if got := b.text("h1"); got != "Cancel all 1100 tasks that match?" {
		t.Error(got)
	}
	b.submit(".ask button")
	if path, _ := b.at(); !strings.HasPrefix(path, "/bulk/") || !strings.Contains(b.text("#filter"), "queue is crowd") {
		t.Fatalf("after the start: %s %s", path, b.text("main"))
	}
	eventually(t, func() bool { return b.text("h1 .badge") == "done" }) // without a reload
	if got := b.text("#changed"); got != "1\u202f100" {
		t.Errorf("%s are changed", got)
	}
	b.accessible("an operation that is done")

	// An operation with a pace is stopped, and shows what was left alone.
	s.enqueueIn("slowly", 40)
	o, err := s.client.StartOperation(t.Context(), tusk.Filter{Queues: []string{"slowly", "crowd"}},
		tusk.Change{Op: tusk.OpCancel}, &tusk.OperationOptions{PerSecond: 1, Expected: 1140})
	if err != nil {
		t.Fatal(err)
	}
	b.open("/bulk")
	b.submit(`a[href$="` + o.ID.String() + `"]`)
	b.submit(`form[action$="/cancel"] button`)
	eventually(t, func() bool { return b.text("h1 .badge") == "cancelled" })
	o, err = s.client.StartOperation(t.Context(), tusk.Filter{Queues: []string{"crowd"},
		States: []tusk.State{tusk.StateCancelled}}, tusk.Change{Op: tusk.OpCancel}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.open("/bulk/" + o.ID.String())
	eventually(t, func() bool {
		return b.text("h1 .badge") == "done" && strings.Contains(b.text("main"), "The first 20 of them.")
	})
	if body := s.do("GET", "/api/v1/bulk/"+o.ID.String(), nil).body; strings.Count(body, `"refused"`) != 21 ||
		!strings.Contains(body, `"queue":["crowd"]`) {
		t.Error(body)
	}
	b.quiet("an operation")
}

func TestAPersonRemovesAQueue(t *testing.T) {
	s, _ := filled(t, func(c *server.Config) { c.Dev = true })
	b := openBrowser(t, s.URL)
	b.as(1280, "light")
	s.enqueueIn("bygone", 1)
	b.open("/queues")
	b.submit(`form[action$="/queues/bygone/remove"] button`)
	if got := b.text("h1"); got != "Remove the queue bygone?" {
		t.Fatal(got)
	}
	b.submit("button.danger")
	if got := b.text(".empty"); !strings.Contains(got, "queue bygone: unfinished tasks: 1") {
		t.Error(got)
	}
	b.mu.Lock()
	b.problems = nil // the browser reports the status 409
	b.mu.Unlock()
	if a := s.do("DELETE", "/api/v1/queues/bygone", nil); a.status != http.StatusConflict ||
		!strings.Contains(a.body, "queue_in_use") {
		t.Error(a.status, a.body)
	}
	if err := s.client.PauseQueue(t.Context(), "bygone"); err != nil {
		t.Fatal(err)
	}
	f := tusk.Filter{Queues: []string{"bygone"}}
	tasks, err := s.client.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Edit(t.Context(), []tusk.ID{tasks[0].ID}, tusk.Change{Op: tusk.OpCancel}); err != nil {
		t.Fatal(err)
	}
	b.open("/queues")
	b.submit(`form[action$="/queues/bygone/remove"] button`)
	b.submit("button.danger")
	if got := b.text("main"); strings.Contains(got, "bygone") || b.text(".note") != "Removed." {
		t.Error(got)
	}
	b.quiet("the page of queues")
}

// enqueueIn fills a queue that has no worker.
func (s *site) enqueueIn(queue string, n int) {
	s.t.Helper()
	tasks := make([]tusk.NewTask, n)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: later{}, Options: &tusk.Options{Queue: queue}}
	}
	if _, err := s.client.EnqueueMany(s.t.Context(), tasks); err != nil {
		s.t.Fatal(err)
	}
}

func TestBulkOperationsReachEveryPageAndStop(t *testing.T) {
	s := start(t)
	var batch []tusk.NewTask
	for range 1800 {
		batch = append(batch, tusk.NewTask{Args: later{}})
	}
	if _, err := s.client.EnqueueMany(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	var o server.Bulk
	s.do("POST", "/api/v1/bulk", object{"filter": object{"kind": []string{"later"}}, "action": "cancel"}).want(t, 202, &o)
	eventually(t, func() bool {
		s.do("GET", "/api/v1/bulk/"+o.ID, nil).want(t, 200, &o)
		return o.State != "running"
	})
	if o.State != "done" || o.Changed != 1800 || o.Seen != 1800 {
		t.Errorf("%+v", o)
	}
	s.do("POST", "/api/v1/bulk/"+o.ID+"/cancel", nil).want(t, 200, &o) // too late, but harmless
	s.do("GET", "/api/v1/bulk/nonsense", nil).problem(t, 400, "invalid_id")
	s.do("GET", "/api/v1/bulk/"+tusk.NewID().String(), nil).problem(t, 404, "not_found")
	s.do("POST", "/api/v1/bulk", object{"filter": object{"state": []string{"nonsense"}}, "action": "cancel"}).problem(t,
		400, "invalid_state_name")
}

func countOf(t *testing.T, s *site, kind string) int {
	t.Helper()
	tasks, err := s.client.List(t.Context(), filterKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}
