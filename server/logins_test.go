package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

const formType = "application/x-www-form-urlencoded"

func (s *site) login(name, password string, headers ...string) answer {
	form := url.Values{"name": {name}, "password": {password}}
	return s.as("", "POST", "/login", form.Encode(), append([]string{"Content-Type", formType}, headers...)...)
}

func TestGuessesThatComeAtOnceAreThrottledAsOthers(t *testing.T) {
	s := start(t)
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer},
		"right password"); err != nil {
		t.Fatal(err)
	}
	var wrong, many atomic.Int32
	var guesses sync.WaitGroup
	for range 150 {
		guesses.Go(func() {
			switch a := s.login("vic", "wrong password"); a.status {
			case http.StatusUnauthorized:
				wrong.Add(1)
			case http.StatusTooManyRequests, http.StatusServiceUnavailable:
				many.Add(1) // refused without a check; on a busy machine because there is no room
			default:
				t.Error(a.status)
			}
		})
	}
	guesses.Wait()
	if wrong.Load() > 12 || many.Load() < 138 {
		t.Errorf("%d of 150 guesses were checked", wrong.Load())
	}
}

func TestNobodyLocksOthersOutBehindATrustedProxy(t *testing.T) {
	s := start(t, func(c *server.Config) { c.TrustProxy, _ = access.ParseProxies([]string{"127.0.0.1", "10.1.0.0/16"}) })
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer},
		"right password"); err != nil {
		t.Fatal(err)
	}
	last := 0
	for i := range 12 {
		// A stranger can write anything into the header; the proxy adds the stranger's address.
		last = s.as("tusk_no_token", "GET", "/api/v1/me", nil, "X-Forwarded-For",
			fmt.Sprintf("192.0.2.%d, 203.0.113.9, 10.1.2.3", i)).status
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the stranger is not throttled: %d", last)
	}
	if a := s.as("tusk_no_token", "GET", "/api/v1/me", nil, "X-Forwarded-For",
		"203.0.113.10, 10.1.2.3"); a.status != http.StatusUnauthorized {
		t.Errorf("another is locked out: %d", a.status)
	}
	if a := s.login("vic", "right password", "X-Forwarded-For",
		"203.0.113.10, 10.1.2.3"); a.status != http.StatusSeeOther {
		t.Errorf("vic is locked out: %d", a.status)
	}
	if n := s.guessesAtOnce(30, "vic"); n < 18 {
		t.Errorf("%d of 30 guesses at one name are refused", n)
	}
	if n := s.guessesAtOnce(70, ""); n < 20 {
		t.Errorf("%d of 70 guesses at as many names are refused", n)
	}
	for range 20 { // until none is left, including those that were refilled
		if last = s.login("vic", "wrong password", "X-Forwarded-For",
			"203.0.113.9, 10.1.2.3").status; last == http.StatusTooManyRequests {
			break
		}
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("guesses go on: %d", last)
	}
	if a := s.login("vic", "right password", "X-Forwarded-For",
		"203.0.113.10, 10.1.2.3"); a.status != http.StatusSeeOther {
		t.Errorf("vic is locked out by guesses: %d", a.status)
	}
	for i := range 12 {
		last = s.as("tusk_no_token", "GET", "/api/v1/me", nil, "X-Forwarded-For", fmt.Sprintf("2001:db8:1:2:%x::1", i)).status
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("a network of IPv6 is not one: %d", last)
	}
}

// guessesAtOnce sends wrong logins from 203.0.113.9 behind a proxy, with one name or, if name is empty, with
// different names. It returns how many are throttled.
func (s *site) guessesAtOnce(n int, name string) int {
	var throttled atomic.Int32
	var guesses sync.WaitGroup
	for i := range n {
		name, from := name, fmt.Sprintf("192.0.2.%d, 203.0.113.9, 10.1.2.3", i)
		if name == "" {
			name = fmt.Sprint("nobody", i)
		}
		guesses.Go(func() {
			if s.login(name, "wrong password", "X-Forwarded-For", from).status == http.StatusTooManyRequests {
				throttled.Add(1)
			}
		})
	}
	guesses.Wait()
	return int(throttled.Load())
}

func TestAnAddressIsTheLastThatIsNoTrustedProxy(t *testing.T) {
	proxies := access.Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, c := range []struct{ peer, header, want string }{
		{"192.0.2.1:5", "198.51.100.1", "192.0.2.1"}, {"10.0.0.1:5", "198.51.100.1", "198.51.100.1"},
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"10.0.0.1:5", "1.1.1.1, 198.51.100.1, 10.2.2.2", "198.51.100.1"},
		{"10.0.0.1:5", "1.1.1.1, nonsense, 10.2.2.2", "10.2.2.2"},
		{"[::1]:5", "2001:db8::1", "2001:db8::1"}, {"10.0.0.1:5", "::ffff:198.51.100.1", "198.51.100.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Forwarded-For", c.header)
		if got := access.Address(proxies.Locate(r)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestALoginOfOnePersonLocksNobodyOut(t *testing.T) {
	s := start(t)
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer},
		"right password"); err != nil {
		t.Fatal(err)
	}
	var first string
	for i := range 22 {
		a := s.login("vic", "right password")
		if a.status != http.StatusSeeOther {
			t.Fatalf("login %d: %d", i, a.status)
		}
		cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
		if first == "" {
			first = cookie
		}
	}
	sessions, err := s.client.Store().Records(t.Context(), store.RecordFilter{Kind: "session"})
	if err != nil || len(sessions) > 20 {
		t.Errorf("%d sessions: %v", len(sessions), err)
	}
	if a := s.as("", "GET", "/", nil, "Cookie", first); a.status != http.StatusSeeOther {
		t.Errorf("the oldest session goes on: %d", a.status)
	}
}

func TestAServerThatIsFullOfSessionsSaysSo(t *testing.T) {
	s := start(t)
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer},
		"right password"); err != nil {
		t.Fatal(err)
	}
	for i := range 10000 { // sessions of as many people
		body := fmt.Appendf(nil, `{"user":"u%d","expires_at":"2999-01-01T00:00:00Z"}`, i)
		r := store.PutRecord{Record: store.Record{Kind: "session", Name: fmt.Sprint(i), Body: body}}
		if _, _, err := s.client.Store().PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if a := s.login("vic", "right password"); a.status != http.StatusServiceUnavailable {
		t.Errorf("%d", a.status)
	}
}

func TestRefusalsAreOneEntryAndPagesRecordThem(t *testing.T) {
	s := start(t)
	s.do("POST", "/api/v1/tokens", object{"name": "x", "role": "viewer"}).want(t, 201, nil)
	producer := s.tokenFor(access.Token{Name: "p", Role: access.Producer})
	for range 100 {
		s.as(producer, "POST", "/api/v1/queues/x/pause", nil).problem(t, 403, "forbidden")
	}
	s.as(producer, "POST", "/queues/x/pause", nil)
	entries, err := s.server.Book().Entries(t.Context(), access.EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]int{}
	for _, e := range entries {
		results[e.Action+" "+e.Result]++
	}
	if results["tokens.create ok"] != 1 || results["queues.pause forbidden"] != 1 || results["queues.pause failed"] != 1 {
		t.Error(results)
	}
}

func TestPagesRecordWhatFailedAndNotWhatTheyAsk(t *testing.T) {
	s := start(t)
	s.post("/access/users", form("name", "vic", "role", "viewer", "password", "short")).want(t, 400, nil)
	s.post("/access/tokens", form("name", "x", "role", "viewer", "expires", "never")).want(t, 400, nil)
	s.post("/access/tokens", form("name", "x", "role", "viewer")).want(t, 200, nil)
	s.post("/new-schedule", form("name", "s", "spec", "daily", "kind", "k", "new", "1")).want(t, 400, nil)
	s.post("/queues/x/pause", "").want(t, 200, nil) // the queue is unknown: it asks
	s.post("/queues/x/pause", form("confirm", "yes")).want(t, 303, nil)
	entries, err := s.server.Book().Entries(t.Context(), access.EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Action+" "+e.Result)
	}
	want := []string{"queues.pause ok", "schedules.put failed", "tokens.create ok", "tokens.create failed",
		"users.put failed"}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestFailedLoginsFromOneAddressAreOneEntry(t *testing.T) {
	s := start(t)
	for i := range 4 {
		if a := s.login(fmt.Sprint("nobody", i), "wrong password"); a.status != http.StatusUnauthorized {
			t.Fatal(a.status)
		}
	}
	entries, err := s.server.Book().Entries(t.Context(), access.EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Action != "login" || entries[0].Address == "" {
		t.Errorf("four failed logins are these entries: %+v", entries)
	}
}

func TestALoginLeadsNowhereElse(t *testing.T) {
	s := start(t)
	if err := s.server.Book().PutUser(t.Context(), access.User{Name: "vic", Role: access.Viewer},
		"right password"); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"/\t/evil.example", "/\x00", "//evil.example", "/\\evil.example", "https://evil.example"} {
		form := url.Values{"name": {"vic"}, "password": {"right password"}, "next": {to}}
		if a := s.as("", "POST", "/login", form.Encode(), "Content-Type", formType); a.header.Get("Location") != "/" {
			t.Errorf("%q leads to %q", to, a.header.Get("Location"))
		}
	}
}
