package server_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server/access"
)

// session logs in and returns the cookie.
func (s *site) session(name, password string) string {
	s.t.Helper()
	a := s.login(name, password)
	if a.status != http.StatusSeeOther {
		s.t.Fatalf("login of %s: %d", name, a.status)
	}
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return cookie
}

func (s *site) changePassword(cookie, present, password string) answer {
	form := url.Values{"present": {present}, "password": {password}, "again": {password}}
	return s.as("", "POST", "/account/password", form.Encode(), "Content-Type", formType, "Cookie", cookie)
}

// audited lists the actions of somebody, as "action result", newest first.
func (s *site) audited(who string) (did []string) {
	s.t.Helper()
	entries, err := s.server.Book().Entries(s.t.Context(), access.EntryFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if e.By(who) {
			did = append(did, e.Action+" "+e.Result)
		}
	}
	return did
}

func TestPeopleChangeTheirOwnPassword(t *testing.T) {
	s := start(t)
	const old, fresh = "right password", "another password"
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer, Queues: []string{"mail"}},
		old); err != nil {
		t.Fatal(err)
	}
	here, there := s.session("vic", old), s.session("vic", old)
	if a := s.as("", "GET", "/account", nil, "Cookie", here); a.status != 200 ||
		!strings.Contains(a.body, "Change your password") {
		t.Fatal(a.status, a.body)
	}
	if a := s.changePassword(here, old, "short"); a.status != http.StatusUnprocessableEntity ||
		!strings.Contains(a.body, "has 5 characters, want 10 at least") {
		t.Error(a.status, a.body)
	}
	if a := s.changePassword(here, old, "Ã껞6Ò8èé"); !strings.Contains(a.body, "has 7 characters, want 10 at least") {
		t.Error("13 bytes are not 10 characters:", a.status, a.body)
	}
	if a := s.changePassword(here, "wrong password", fresh); a.status != http.StatusUnprocessableEntity {
		t.Error("with a wrong password:", a.status)
	}
	if a := s.as("", "GET", "/tasks", nil, "Cookie", there); a.status != 200 {
		t.Error("a refused change ends sessions:", a.status)
	}
	if a := s.changePassword(here, old, fresh); a.status != http.StatusSeeOther {
		t.Fatal(a.status, a.body)
	}
	if a := s.as("", "GET", "/tasks", nil, "Cookie", here); a.status != 200 {
		t.Error("one's own session has ended:", a.status)
	}
	if a := s.as("", "GET", "/tasks", nil, "Cookie", there); a.status != http.StatusSeeOther {
		t.Error("the other session goes on:", a.status)
	}
	if a := s.login("vic", old); a.status != http.StatusUnauthorized {
		t.Error("the old password is good:", a.status)
	}
	s.session("vic", fresh)
	users, err := s.server.Book().Users(t.Context())
	if err != nil || users[0].Role != access.Viewer || !slices.Equal(users[0].Queues, []string{"mail"}) {
		t.Error("the bounds have changed", users, err)
	}
	did := s.audited("user:vic")
	if !slices.Contains(did, "users.password ok") || !slices.Contains(did, "users.password failed") {
		t.Error(did)
	}
	var many atomic.Int32
	var guesses sync.WaitGroup
	// A guess is forgotten after six seconds, and more than two at once are refused as too many requests of one
	// person.
	for range 2 {
		guesses.Go(func() {
			for i := 0; i < 40 && many.Load() == 0; i++ {
				if s.changePassword(here, "wrong password", fresh).status == http.StatusTooManyRequests {
					many.Add(1)
				}
			}
		})
	}
	guesses.Wait()
	if many.Load() == 0 {
		t.Error("guesses in a session are not counted")
	}
	if a := s.changePassword("tusk_session=none", old, fresh); a.status != http.StatusUnauthorized {
		t.Error("without a session:", a.status)
	}
}

func TestAnAdminEndsSessions(t *testing.T) {
	s := start(t)
	book := s.server.Book()
	for name, role := range map[string]access.Role{"vic": access.Viewer, "ada": access.Admins} {
		if err := book.PutUser(t.Context(), access.User{Name: name, Role: role}, "right password"); err != nil {
			t.Fatal(err)
		}
	}
	vic, ada := s.session("vic", "right password"), s.session("ada", "right password")
	if a := s.as("", "GET", "/access", nil, "Cookie", ada); !strings.Contains(a.body, `value="user:vic"`) {
		t.Error("vic is not listed")
	}
	form := url.Values{"identity": {"user:vic"}}.Encode()
	if a := s.as("", "POST", "/access/sessions/end", form, "Content-Type", formType, "Cookie",
		vic); a.status != http.StatusForbidden {
		t.Error("a viewer ends sessions:", a.status)
	}
	if a := s.as("", "POST", "/access/sessions/end", form, "Content-Type", formType, "Cookie",
		ada); a.status != http.StatusSeeOther {
		t.Fatal(a.status)
	}
	if a := s.as("", "GET", "/tasks", nil, "Cookie", vic); a.status != http.StatusSeeOther {
		t.Error("the session goes on:", a.status)
	}
	if did := s.audited("user:ada"); !slices.Contains(did, "sessions.end ok") {
		t.Error(did)
	}
}
