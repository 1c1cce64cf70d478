package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// shelved is a site with an archive that contains its tasks.
type shelved struct {
	*site
	runner *archive.Runner
	dir    string
	ids    []tusk.ID
}

// startShelved enqueues tasks of two queues and three tenants, ends them, and archives them.
func startShelved(t *testing.T, tasks int) *shelved {
	t.Helper()
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bucket, err := place.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bucket.Close() })
	runner, err := archive.NewRunner(archive.Options{Store: client.Store(), Bucket: bucket, ID: tusk.NewID(),
		NewID: tusk.NewID, Dir: t.TempDir(), Every: time.Nanosecond,
		Keep: func(context.Context) (store.Retention, error) {
			return store.Retention{Cancelled: time.Microsecond}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	s := &shelved{runner: runner, dir: dir}
	s.site = startOn(t, client, func(c *server.Config) { c.Archive = runner.Archive() })
	for i := range tasks {
		e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "bill",
			JSON: fmt.Appendf(nil, `{"order": {"id": %d}, "password": "secret-%d"}`, i, i)},
			&tusk.Options{Queue: []string{"mine", "theirs"}[i%2], Tenant: []string{"", "acme", "bolt"}[i%3]})
		if err != nil {
			t.Fatal(err)
		}
		s.ids = append(s.ids, e.ID)
	}
	if _, err := client.Edit(t.Context(), s.ids, tusk.Change{Op: tusk.OpCancel}); err != nil {
		t.Fatal(err)
	}
	s.step(func() bool {
		left, err := client.List(t.Context(), tusk.Filter{Limit: 1})
		return err == nil && len(left) == 0
	})
	return s
}

// step lets the runner work until a condition holds.
func (s *shelved) step(until func() bool) {
	s.t.Helper()
	eventually(s.t, func() bool {
		if _, err := s.runner.Step(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		return until()
	})
}

func TestATaskThatLeftTheDatabaseIsFoundByTheAPIAndOnThePage(t *testing.T) {
	s := startShelved(t, 12)
	id := s.ids[1].String()
	for _, path := range []string{"/api/v1/tasks/", "/api/v1/archive/tasks/"} {
		var d server.TaskDetail
		s.do("GET", path+id, nil).want(t, 200, &d)
		if d.ID != id || !d.Archived || d.State != "cancelled" || d.Queue != "theirs" || d.Tenant != "acme" ||
			strings.Contains(string(d.Args), "secret") {
			t.Errorf("%s: %+v", path, d)
		}
	}
	if page := s.do("GET", "/tasks/"+id, nil).want(t, 200, nil).body; !strings.Contains(page, "archived") ||
		!strings.Contains(page, "Run again") || strings.Contains(page, "secret-") {
		t.Error(page)
	}
	s.do("GET", "/api/v1/archive/tasks/"+tusk.NewID().String(), nil).problem(t, 404, "not_found")
	for _, path := range []string{"", "/args", "/output"} { // as one that the caller may not know of
		none := tusk.NewID().String()
		got := s.do("GET", "/api/v1/tasks/"+none+path, nil).problem(t, 404, "not_found")
		if got.Detail != "task "+none+": not found" {
			t.Error(got.Detail)
		}
	}

	// A caller who may not see it does not find it.
	bound := s.tokenFor(access.Token{Name: "bound", Role: access.Operator, Queues: []string{"mine"}})
	for _, path := range []string{"/api/v1/tasks/" + id, "/api/v1/archive/tasks/" + id} {
		s.as(bound, "GET", path, nil).problem(t, 404, "not_found")
	}
	s.as(bound, "POST", "/api/v1/archive/tasks/"+id+"/rerun", nil).problem(t, 404, "not_found")
	if a := s.as(bound, "GET", "/tasks/"+id, nil); a.status != 404 {
		t.Errorf("the page: %d", a.status)
	}
	var page server.ArchivedPage
	s.as(bound, "GET", "/api/v1/archive/tasks", nil).want(t, 200, &page)
	if len(page.Tasks) != 6 {
		t.Errorf("within bounds %d tasks are found", len(page.Tasks))
	}

	var e server.EnqueuedTask
	s.do("POST", "/api/v1/archive/tasks/"+id+"/rerun", nil).want(t, 201, &e)
	var d server.TaskDetail
	s.do("GET", "/api/v1/tasks/"+e.ID, nil).want(t, 200, &d)
	if d.Archived || d.State != "available" || d.Metadata["rerun_of"] != id || d.Queue != "theirs" {
		t.Errorf("%+v", d)
	}
	if a := s.do("POST", "/archive/tasks/"+id+"/rerun", ""); a.status != 303 {
		t.Errorf("the form: %d %s", a.status, a.body)
	}
	if a := s.do("POST", "/archive/tasks/"+id+"/restore", ""); a.status != 303 {
		t.Errorf("the form that puts it back: %d %s", a.status, a.body)
	}
	var back server.RestoreList
	s.step(func() bool {
		s.do("GET", "/api/v1/archive/restores", nil).want(t, 200, &back)
		return len(back.Restores) == 1 && back.Restores[0].State == "done" && back.Restores[0].Restored == 1
	})
	if page := s.do("GET", "/archive/keeping", nil).want(t, 200, nil).body; !strings.Contains(page, "Restores") {
		t.Error(page)
	}
}

func TestTheArchiveIsSearchedInPages(t *testing.T) {
	s := startShelved(t, 30)
	seen, cursor := map[string]bool{}, ""
	for {
		var page server.ArchivedPage
		s.do("GET", "/api/v1/archive/tasks?queue=mine&limit=4&cursor="+cursor, nil).want(t, 200, &page)
		for _, task := range page.Tasks {
			seen[task.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		s.do("GET", "/api/v1/archive/tasks?queue=theirs&cursor="+cursor, nil).problem(t, 422, "invalid_cursor")
	}
	if len(seen) != 15 {
		t.Errorf("%d tasks are found, want 15", len(seen))
	}
	var page server.ArchivedPage
	s.do("GET", "/api/v1/archive/tasks?args=order.id%3D7&state=cancelled&from=1h", nil).want(t, 200, &page)
	if len(page.Tasks) != 1 || page.Tasks[0].ID != s.ids[7].String() {
		t.Errorf("%+v", page)
	}
	if s.do("GET", "/api/v1/archive/tasks?args=secret-7", nil).want(t, 200, &page); len(page.Tasks) != 0 {
		t.Error("a search sees into what is masked")
	}
	s.do("GET", "/api/v1/archive/tasks?state=running", nil).problem(t, 400, "invalid_state_name")
	if body := s.do("GET", "/archive?queue=mine&args=order.id%3D8", nil).want(t, 200, nil).body; !strings.Contains(body,
		s.ids[8].String()) || strings.Contains(body, s.ids[10].String()) {
		t.Error(body)
	}
}

func TestARerunGoesOnInTheServer(t *testing.T) {
	s := startShelved(t, 30)
	body := object{"filter": object{"queue": []string{"mine"}}, "dry_run": true}
	var r server.Rerun
	s.do("POST", "/api/v1/archive/reruns", body).want(t, 202, &r)
	if r.State != "counted" || r.Expected != 15 || r.ID != "" {
		t.Errorf("%+v", r)
	}
	s.do("POST", "/api/v1/archive/reruns", object{"filter": object{}}).problem(t, 422, "all_or_filter")
	body["dry_run"] = false
	bound := s.tokenFor(access.Token{Name: "bound", Role: access.Operator, Tenants: []string{"acme"}})
	s.as(bound, "POST", "/api/v1/archive/reruns", body).want(t, 202, &r)
	path := "/api/v1/archive/reruns/" + r.ID
	eventually(t, func() bool { s.as(bound, "GET", path, nil).want(t, 200, &r); return r.State != "running" })
	if r.State != "done" || r.Enqueued != 5 || r.Expected != 5 {
		t.Errorf("%+v", r)
	}
	other := s.tokenFor(access.Token{Name: "other", Role: access.Operator, Tenants: []string{"acme"}})
	s.as(other, "GET", path, nil).problem(t, 404, "not_found")
	s.as(other, "POST", path+"/cancel", nil).problem(t, 404, "not_found")
	s.do("POST", path+"/cancel", nil).want(t, 200, &r)
	if tasks, err := s.client.List(t.Context(), tusk.Filter{}); err != nil || len(tasks) != 5 {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
	// The form asks for confirmation.
	page := s.do("POST", "/archive/reruns", "query=queue%3Dtheirs", "Content-Type",
		"application/x-www-form-urlencoded").want(t, 200, nil).body
	if !strings.Contains(page, "Run all 15 tasks") {
		t.Error(page)
	}
}

// A restore by args uses only their visible parts, both when it counts and when it restores.
func TestARestoreChoosesByArgsThatAreShown(t *testing.T) {
	s := startShelved(t, 30)
	for args, want := range map[string]int64{"order.id=7": 1, "secret-8": 0} {
		filter := object{"args": args}
		var r server.Restore
		s.do("POST", "/api/v1/archive/restores", object{"filter": filter, "dry_run": true}).want(t, 202, &r)
		if r.State != "counted" || r.Expected != want {
			t.Errorf("%s: counted %+v", args, r)
		}
		s.do("POST", "/api/v1/archive/restores", object{"filter": filter}).want(t, 202, &r)
		path := "/api/v1/archive/restores/" + r.ID
		s.step(func() bool { s.do("GET", path, nil).want(t, 200, &r); return r.State == "done" })
		if r.Restored != want || r.Filter.Args != args {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestTheLifeOfTheArchiveIsAnAdminsAndAudited(t *testing.T) {
	s := startShelved(t, 30)
	var status server.ArchiveStatus
	s.do("PUT", "/api/v1/archive/retention", object{"keep": "48h"}).want(t, 200, &status)
	s.do("PUT", "/api/v1/archive/retention/mine", object{"keep": "forever"}).problem(t, 404, "unknown_queue")
	s.do("PUT", "/api/v1/archive/retention/mine?create=true", object{"keep": "forever"}).want(t, 200, &status)
	if time.Duration(status.KeepAll) != 48*time.Hour || time.Duration(status.KeepQueues["mine"]) != tusk.Forever ||
		status.Status != "ok" || status.Tasks != 30 {
		t.Errorf("%+v", status)
	}
	s.do("PUT", "/api/v1/archive/retention/mine", object{}).problem(t, 400, "missing_field")
	s.do("PUT", "/api/v1/archive/retention/mine", object{"keep": "forever"}).want(t, 200, nil) // it has a rule now
	for keep, code := range map[string]string{"0s": "invalid_duration", "99999h": "out_of_range"} {
		s.do("PUT", "/api/v1/archive/retention/mine?create=true", object{"keep": keep}).problem(t, 422, code)
	}
	misspelt := func(keep string) string { return form("queue", "bilss", "keep", keep) }
	if page := s.post("/archive/retention", misspelt("forever")).want(t, 200, nil).body; !strings.Contains(page,
		"The queue bilss is unknown") {
		t.Error("the page keeps a misspelt queue without a question")
	}
	s.post("/archive/retention", misspelt("like others")).want(t, 303, nil)
	s.post("/archive/retention", misspelt("forever")+"&confirm=yes").want(t, 303, nil)
	s.do("DELETE", "/api/v1/archive/retention/No-Queue", nil).problem(t, 400, "invalid_name")
	s.do("DELETE", "/api/v1/archive/retention/mine", nil).want(t, 200, &status)
	var restored server.Restore
	s.do("POST", "/api/v1/archive/restores", object{"filter": object{"tenant": []string{"nobody"}}, "dry_run": true}).want(
		t, 202, &restored)
	if restored.State != "counted" || restored.Expected != 0 {
		t.Errorf("%+v", restored)
	}
	s.do("POST", "/api/v1/archive/restores", object{}).problem(t, 422, "all_or_filter")
	s.do("POST", "/api/v1/archive/restores", object{"ids": []string{tusk.NewID().String()}}).want(t, 202, &restored)
	path := "/api/v1/archive/restores/" + restored.ID
	s.step(func() bool {
		s.do("GET", path, nil).want(t, 200, &restored)
		return restored.State == "done" && restored.Skipped == 1 && restored.Restored == 0
	})
	s.do("POST", path+"/cancel", nil).want(t, 200, &restored)
	s.do("GET", "/api/v1/archive/restores/"+tusk.NewID().String(), nil).problem(t, 404, "not_found")
	s.do("PUT", "/api/v1/archive/retention", object{"keep": "1us"}).want(t, 200, &status)
	hold := object{"tenant": "acme", "queue": "mine", "reason": "a letter"}
	s.do("PUT", "/api/v1/archive/holds/case-1", hold).problem(t, 404, "unknown_queue")
	s.do("PUT", "/api/v1/archive/holds/case-1?create=true", hold).want(t, 200, nil)
	s.do("PUT", "/api/v1/archive/holds/case-1", hold).want(t, 200, nil) // the hold names it now
	misspelt = func(name string) string { return form("queue", "bisll", "name", name) }
	asked := s.post("/archive/holds", misspelt("case-3")).want(t, 200, nil).body
	if !strings.Contains(asked, "The queue bisll is unknown") {
		t.Error("the page holds a misspelt queue without a question")
	}
	s.post("/archive/holds", misspelt("case-3")+"&confirm=yes").want(t, 303, nil)
	s.post("/archive/holds", misspelt("case-3")).want(t, 303, nil)
	s.do("DELETE", "/api/v1/archive/holds/case-3", nil).want(t, 204, nil)
	s.do("PUT", "/api/v1/archive/holds/case-2", object{}).problem(t, 422, "all_or_filter")
	var holds server.HoldList
	s.do("GET", "/api/v1/archive/holds", nil).want(t, 200, &holds)
	if len(holds.Holds) != 1 || holds.Holds[0].Reason != "a letter" {
		t.Errorf("%+v", holds)
	}
	var e server.Erasure
	s.do("POST", "/api/v1/archive/erasures", object{"tenant": "acme", "dry_run": true}).want(t, 202, &e)
	if e.State != "counted" || e.Tasks != 5 {
		t.Errorf("%+v", e)
	}
	s.do("POST", "/api/v1/archive/erasures", object{"tenant": "acme"}).want(t, 202, &e)
	var all server.ErasureList
	s.step(func() bool {
		s.do("GET", "/api/v1/archive/erasures", nil).want(t, 200, &all)
		return len(all.Erasures) == 1 && all.Erasures[0].State == "held" && all.Erasures[0].Held == 5
	})
	var gone server.ArchiveGone
	s.do("POST", "/api/v1/archive/prune", object{"dry_run": true}).want(t, 202, &gone)
	if gone.Tasks != 20 {
		t.Errorf("%+v", gone)
	}
	s.do("POST", "/api/v1/archive/prune", nil).want(t, 202, nil)
	var page server.ArchivedPage
	s.step(func() bool {
		s.do("GET", "/api/v1/archive/tasks", nil).want(t, 200, &page)
		return len(page.Tasks) == 5
	})
	body := s.do("GET", "/archive/keeping", nil).want(t, 200, nil).body
	if !strings.Contains(body, "case-1") || !strings.Contains(body, "acme") {
		t.Error(body)
	}
	s.do("DELETE", "/api/v1/archive/holds/case-1", nil).want(t, 204, nil)
	s.do("DELETE", "/api/v1/archive/holds/case-1", nil).problem(t, 404, "not_found")
	s.step(func() bool {
		s.do("GET", "/api/v1/archive/erasures", nil).want(t, 200, &all)
		return all.Erasures[0].State == "done"
	})
	log, err := json.Marshal(must(s.server.Book().Entries(t.Context(), access.EntryFilter{})))
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"archive.keep", "archive.hold", "archive.unhold", "archive.erase", "archive.prune",
		"archive.restore", "archive.restore.cancel"} {
		if !strings.Contains(string(log), `"`+action+`"`) {
			t.Errorf("the audit log does not tell of %s", action)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestHealthTellsOfAnArchiveThatIsAway(t *testing.T) {
	s := startShelved(t, 1)
	var h server.Health
	eventually(t, func() bool { s.do("GET", "/healthz", nil).want(t, 200, &h); return h.Archive == "ok" })
	if err := os.Rename(s.dir, s.dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var status server.ArchiveStatus
	if s.do("GET", "/api/v1/archive", nil).want(t, 200, &status); status.Status != "away" || status.Failing == "" {
		t.Errorf("%+v", status)
	}
	if page := s.do("GET", "/archive?queue=q", nil).want(t, 200, nil).body; !strings.Contains(page, "cannot be reached") {
		t.Error(page)
	}
	without := start(t)
	if h = (server.Health{}); without.do("GET", "/healthz", nil).want(t, 200, &h).status != 200 || h.Archive != "" {
		t.Errorf("%+v", h)
	}
	without.do("GET", "/api/v1/archive/tasks", nil).problem(t, 404, "no_archive")
}
