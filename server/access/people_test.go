package access_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// A provider that does not answer delays nobody for longer than their own request.
func TestAProviderThatDoesNotAnswerHoldsUpNobodyElse(t *testing.T) {
	asked, release := make(chan struct{}, 10), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer silent.Close()
	gate := &access.Gate{Book: access.NewBook(memory.New()),
		Provider: &access.Provider{Issuer: silent.URL, ClientID: "tusk", RedirectURL: silent.URL}}
	begin := func(ctx context.Context) error {
		return gate.Begin(httptest.NewRecorder(), httptest.NewRequest("GET", "/login/oidc", nil).WithContext(ctx))
	}
	first := make(chan error, 1)
	go func() { first <- begin(t.Context()) }()
	<-asked
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 4 {
		if err := begin(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone: %v", err)
		}
	}
	select {
	case err := <-first:
		t.Errorf("the first has an answer: %v", err)
	case <-asked:
		t.Error("the provider was asked twice at a time")
	default:
	}
	close(release)
	if err := <-first; err == nil {
		t.Error("no error from a provider that says nothing")
	}
}

func TestAnIssuerIsAskedByHTTPSAlone(t *testing.T) {
	for issuer, good := range map[string]bool{"https://id.example.com": true, "http://localhost:8080/x": true,
		"http://127.0.0.1": true, "http://[::1]:1": true,
		"http://id.example.com": false, "http://localhost.example.com": false, "http://10.0.0.1": false,
		"ftp://id.example.com": false, "id.example.com": false, "": false} {
		if err := (&access.Provider{Issuer: issuer}).Check(); (err == nil) != good {
			t.Errorf("%q: %v", issuer, err)
		}
	}
}

func TestTheCookieOfALoginIsThisHostsAlone(t *testing.T) {
	i := newIssuer(t)
	for _, secure := range []bool{false, true} {
		gate := &access.Gate{Book: access.NewBook(memory.New()), Secure: secure,
			Provider: &access.Provider{Issuer: i.URL, ClientID: "tusk", RedirectURL: i.URL}}
		w := httptest.NewRecorder()
		if err := gate.Begin(w, httptest.NewRequest("GET", "/login/oidc", nil)); err != nil {
			t.Fatal(err)
		}
		for _, c := range w.Result().Cookies() {
			if strings.HasPrefix(c.Name, "__Host-") != secure || c.Secure != secure || c.Path != "/" {
				t.Errorf("secure %v: %v", secure, c)
			}
		}
	}
}

func TestGroupsConfineTheirMembers(t *testing.T) {
	for name, c := range map[string]struct {
		groups          []string
		role            access.Role
		queues, tenants []string
	}{
		"one group": {[]string{"acme"}, access.Operator, []string{"a.*"}, []string{"acme"}},
		"the stronger role brings its bounds": {[]string{"staff", "acme"}, access.Operator, []string{"a.*"},
			[]string{"acme"}},
		"bounds are not mixed":   {[]string{"umbrella", "acme"}, access.Operator, []string{"a.*"}, []string{"acme"}},
		"a group without bounds": {[]string{"acme", "ops"}, access.Operator, nil, nil},
		"none of that role":      {[]string{"staff"}, access.Viewer, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			i.claims = map[string]any{"groups": c.groups}
			i.roles = map[string]access.Role{"staff": access.Viewer, "ops": access.Operator, "acme": access.Operator,
				"umbrella": access.Operator}
			i.bounds = map[string]access.Bounds{"acme": {Queues: []string{"a.*"}, Tenants: []string{"acme"}},
				"umbrella": {Tenants: []string{"umbrella"}}}
			who, status := logIn(t, i, nil)
			if status != 200 || who.Role != c.role || !slices.Equal(who.Queues, c.queues) ||
				!slices.Equal(who.Tenants, c.tenants) {
				t.Errorf("%d %+v", status, who)
			}
		})
	}
}

func TestAnAdminEndsSessionsOfPeopleFromElsewhere(t *testing.T) {
	i := newIssuer(t)
	var identity string
	i.loggedIn = func(book *access.Book) {
		people, err := book.People(t.Context())
		if err != nil || len(people) != 1 || people[0].Sessions != 1 || people[0].Role != access.Operator {
			t.Fatalf("%+v, %v", people, err)
		}
		identity = people[0].ID
		if err := book.EndSessions(t.Context(), "oidc:https://other#u1"); !errors.Is(err, access.ErrNotFound) {
			t.Error(err)
		}
		if err := book.EndSessions(t.Context(), identity); err != nil {
			t.Error(err)
		}
	}
	if who, _ := logIn(t, i, nil); who.ID != "" || identity != "oidc:"+i.URL+"#u1" {
		t.Errorf("still let in: %+v (%s)", who, identity)
	}
}
