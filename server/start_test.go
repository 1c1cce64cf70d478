package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// site is a server under test, with its background work.
type site struct {
	*httptest.Server
	t      *testing.T
	client *tusk.Client
	server *server.Server
	token  string // of an admin
}

// start serves an empty store in memory.
func start(t *testing.T, change ...func(*server.Config)) *site {
	t.Helper()
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, client, change...)
}

func startOn(t *testing.T, client *tusk.Client, change ...func(*server.Config)) *site {
	t.Helper()
	return startUntil(context.Background(), t, client, change...)
}

// startUntil serves until the context or the test ends.
func startUntil(ctx context.Context, t *testing.T, client *tusk.Client, change ...func(*server.Config)) *site {
	t.Helper()
	config := server.Config{Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&config)
	}
	s, err := server.New(client, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config = s.HTTP()
	h.Start()
	at := &site{Server: h, t: t, client: client, server: s}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		h.CloseClientConnections()
		h.Close()
	})
	at.token = at.tokenFor(access.Token{Name: "test-admin", Role: access.Admins})
	return at
}

func (s *site) tokenFor(spec access.Token) string {
	s.t.Helper()
	secret, _, err := s.server.Book().CreateToken(context.Background(), spec, "test")
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request as the admin. A body that is not a string is sent as JSON.
func (s *site) do(method, path string, body any, header ...string) answer {
	s.t.Helper()
	return s.as(s.token, method, path, body, header...)
}

func (s *site) as(token, method, path string, body any, header ...string) answer {
	s.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, s.URL+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			request.Host = header[i+1]
		} else {
			request.Header.Set(header[i], header[i+1])
		}
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// want checks the status, and decodes the body if into is not nil.
func (a answer) want(t *testing.T, status int, into any) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("got %d, want %d: %s", a.status, status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
	}
	return a
}

// problem checks that the response is a problem with a status and a code.
func (a answer) problem(t *testing.T, status int, code string) server.Problem {
	t.Helper()
	var p server.Problem
	a.want(t, status, &p)
	if p.Code != code || p.Status != status || p.RequestID == "" ||
		a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got %s, want the code %s: %s", p.Code, code, a.body)
	}
	return p
}
