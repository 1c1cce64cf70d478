package server_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
)

func TestPagesFindATaskByAPartOfItsID(t *testing.T) {
	s, f := filled(t)
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer},
		"right password"); err != nil {
		t.Fatal(err)
	}
	cookie := s.session("vic", "right password")
	get := func(path string) answer { return s.as("", "GET", path, nil, "Cookie", cookie) }
	id := f.Discarded.String()
	for _, path := range []string{"/tasks?key=" + id, "/tasks?key=" + id[24:], "/tasks/" + id[24:], "/tasks/" + id[19:]} {
		if a := get(path); a.status != http.StatusSeeOther || a.header.Get("Location") != "/tasks/"+id {
			t.Errorf("%s: %d, to %q", path, a.status, a.header.Get("Location"))
		}
	}
	flow := f.Workflow.String()
	for _, path := range []string{"/workflows/" + flow[24:], "/workflows/" + flow[:23]} {
		if a := get(path); a.status != http.StatusSeeOther || a.header.Get("Location") != "/workflows/"+flow {
			t.Errorf("%s: %d, to %q", path, a.status, a.header.Get("Location"))
		}
	}
	for _, path := range []string{"/workflows/abcdef012345", "/bulk/abcdef012345"} {
		if a := get(path); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := get("/tasks?key=" + id[:6]); a.status != 200 || !strings.Contains(a.body, "Several tasks have") ||
		strings.Count(a.body, "<tr data-row>") < 2 {
		t.Error("a part that several have:", a.status)
	}
	if a := get("/tasks?key=abcdef012345"); a.status != 200 || !strings.Contains(a.body, "No tasks here") {
		t.Error("a part that none has:", a.status)
	}
	if a := get("/tasks/abcdef012345"); a.status != http.StatusNotFound {
		t.Error(a.status)
	}
	// The API requires whole ids.
	if a := s.do("GET", "/api/v1/tasks/"+id[24:], nil); a.status != http.StatusBadRequest &&
		a.status != http.StatusNotFound {
		t.Error(a.status)
	}
	// A key that looks like a part of an id is still a key.
	if _, err := s.client.Enqueue(t.Context(), later{}, &tusk.Options{Key: id[24:]}); err != nil {
		t.Fatal(err)
	}
	if a := get("/tasks?key=" + id[24:]); a.status != 200 || strings.Count(a.body, "<tr data-row>") != 1 {
		t.Error("a key:", a.status)
	}
}

func TestStrangersAreNotToldTheVersion(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/login", "/no-such-page"} {
		if a := s.as("", "GET", path, nil); strings.Contains(a.body, "Tusk "+tusk.Version()) {
			t.Errorf("%s tells the version", path)
		}
	}
}

func TestAHeadHasAtMost16KiBAndTheErrorSaysSo(t *testing.T) {
	s := start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := s.server.HTTP()
	go func() { _ = h.Serve(listener) }()
	defer h.Close()
	for size, want := range map[int]int{15 << 10: 200, 17 << 10: http.StatusRequestHeaderFieldsTooLarge,
		60 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+listener.Addr().String()+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Large", strings.Repeat("x", size))
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if a.StatusCode != want || want != http.StatusOK && !strings.Contains(string(said), "more than 16384 bytes") {
			t.Errorf("%d bytes: %d, want %d: %s", size, a.StatusCode, want, said)
		}
	}
}

func TestAFormThatCannotBeReadIsNotTooLarge(t *testing.T) {
	s := start(t)
	for body, want := range map[string]int{"a=%zz": http.StatusBadRequest,
		"a=" + strings.Repeat("x", 5<<20): http.StatusRequestEntityTooLarge} {
		if a := s.as("", "POST", "/login", body, "Content-Type", formType); a.status != want {
			t.Errorf("%.10s: %d, want %d", body, a.status, want)
		}
	}
}
