package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server/push"
)

// TestNoEndpointReachesWhatIsPrivate: early refusals all have the same text, and addresses that only show at the call
// are refused then.
func TestNoEndpointReachesWhatIsPrivate(t *testing.T) {
	s := start(t)
	reached := atomic.Bool{}
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(private.Close)
	port := private.URL[strings.LastIndex(private.URL, ":"):]
	texts := map[string]bool{}
	for _, target := range []string{private.URL, "https://127.0.0.1" + port, "https://127.0.0.1", "https://localhost",
		"https://LOCALHOST.", "https://x.localhost/", "https://[::1]/", "https://[::ffff:127.0.0.1]/",
		"https://[::ffff:7f00:1]/", "https://10.0.0.1/", "https://192.168.1.1/", "https://172.31.0.1/", "https://100.64.0.1/",
		"https://169.254.169.254/latest/", "https://[fd00:ec2::254]/", "https://0.0.0.0/",
		"https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "http://example.com/", "https://example.com:22/",
		"https://example.com:25/", "https://user:pw@example.com/", "https://user@example.com/",
		"file:///etc/passwd", "gopher://example.com/", "javascript:alert(1)", "ftp://example.com/", "https://",
		"https:example.com", "//example.com/", "example.com", ""} {
		status := 422
		if !strings.HasPrefix(target, "https://") && !strings.HasPrefix(target, "http://") || target == "https://" {
			status = 400
		}
		p := s.do("PUT", "/api/v1/endpoints/hooks", object{"url": target}).problem(t, status, "target_not_allowed")
		texts[p.Detail] = true
	}
	if len(texts) != 1 {
		t.Errorf("the refusals tell targets apart: %v", texts)
	}
	for _, bad := range []object{{"url": "https://exa mple.com"},
		{"url": "https://example.com/" + strings.Repeat("x", 3000)}, {"url": "https://example.com", "concurrency": -1},
		{"url": "https://example.com", "concurrency": 1001}, {"url": "https://exa\nmple.com"}} {
		s.do("PUT", "/api/v1/endpoints/hooks", bad).problem(t, 400, "invalid")
	}
	for _, timeout := range []string{"1ms", "48h"} {
		s.do("PUT", "/api/v1/endpoints/hooks", object{"url": "https://example.com", "timeout": timeout}).problem(t,
			422, "invalid")
	}
	s.do("PUT", "/api/v1/endpoints/A%20B", object{"url": "https://example.com"}).problem(t, 400, "invalid_name")

	// These names and spellings are resolved at the call. A book that allows more stores them, and one that does not
	// sends to them.
	open, err := push.NewBook(s.client.Store(), nil, "localhost", "127.1", "2130706433", "0x7f.1")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for i, host := range []string{"localhost", "127.1", "2130706433", "0x7f.1"} {
		queue := fmt.Sprintf("hooks%d", i)
		if _, _, err := open.Put(t.Context(), push.Endpoint{Queue: queue, URL: "http://" + host + port}, "test"); err != nil {
			t.Fatal(host, err)
		}
		ids[host] = s.enqueue(object{"kind": "k", "queue": queue, "max_attempts": 1})
	}
	for host, id := range ids {
		if d := s.awaitState(id, "discarded"); !strings.HasPrefix(d.Attempts[0].Error, "endpoint not reached") {
			t.Errorf("%s: %s", host, d.Attempts[0].Error)
		}
	}
	if reached.Load() {
		t.Error("a private address was called")
	}
}
