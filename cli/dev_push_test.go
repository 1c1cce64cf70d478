package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestAWebhookIsTriedWithDev(t *testing.T) {
	sh := newShell(t)
	called := make(chan string, 10)
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- r.Header.Get("webhook-signature")
	}))
	defer app.Close()
	p := sh.start("dev", "--db", "sqlite:tusk.db", "--addr", "127.0.0.1:0", "--push-allow", "127.0.0.1")
	p.await(`(http://\S+/openapi.json)`)
	sh.must("endpoints", "put", "hooks", "--url", app.URL, "--allow-host", "127.0.0.1")
	id := sh.enqueue("greet", `{"name":"ada"}`, "--queue", "hooks", "--max-attempts", "1")
	select {
	case signature := <-called:
		if signature == "" {
			t.Error("the call is not signed")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was called")
	}
	deadline := time.Now().Add(30 * time.Second)
	for ; sh.json("tasks", "show", id)[0]["state"] != "completed"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(sh.must("tasks", "show", id))
		}
	}
}
