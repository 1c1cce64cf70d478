package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

func TestAServerTellsHooksAndAlertsWhatTheCommandsSetUp(t *testing.T) {
	sh := filledShell(t)
	told := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- r.Header.Get("webhook-signature") + string(body)
	}))
	t.Cleanup(receiver.Close)
	await := func(parts ...string) {
		t.Helper()
		for text := range told {
			missing := false
			for _, part := range parts {
				missing = missing || !strings.Contains(text, part)
			}
			if !missing {
				return
			}
		}
	}
	p := sh.start("serve", "--addr", "127.0.0.1:0", "--push-allow", "127.0.0.1")
	p.await(`health=(\S+)`)

	made := sh.json("hooks", "put", "crm", "--url", receiver.URL, "--event", "cancelled", "--allow-host", "127.0.0.1")
	secret := made[0]["secret"].(string)
	if again := sh.json("hooks", "put", "crm", "--url", receiver.URL, "--event", "cancelled", "--allow-host",
		"127.0.0.1"); again[0]["secret"] != nil {
		t.Errorf("a secret is shown again: %v", again)
	}
	id := strings.TrimSpace(sh.must("enqueue", "echo", "{}", "--queue", "elsewhere", "-q"))
	sh.must("tasks", "cancel", id)
	await("v1,", `"hook":"crm"`, "task.cancelled", id)
	for {
		row := sh.json("hooks", "show", "crm")[0]
		if row["told"] == float64(1) && row["success"] != nil {
			break
		}
	}
	if list := sh.must("hooks", "list"); !strings.Contains(list, "crm") || strings.Contains(list, secret) {
		t.Error(list)
	}
	sh.must("hooks", "remove", "crm")
	sh.fails(exitNotFound, "not_found", nil, "hooks", "show", "crm")
	sh.fails(exitUsage, "usage", []string{"events"}, "hooks", "put", "crm", "--url", "https://app.example.com",
		"--event", "bad")
	sh.fails(exitUsage, "target_not_allowed", []string{"--allow-host"}, "hooks", "put", "crm", "--url", receiver.URL)

	sh.must("alerts", "put", "slow", "--kind", "oldest", "--over", "1h", "--webhook", receiver.URL, "--allow-host",
		"127.0.0.1")
	sh.must("alerts", "test", "slow")
	await("v1,", "alert.test", "slow")
	sh.must("alerts", "remove", "slow")
	sh.fails(exitNotFound, "not_found", nil, "alerts", "test", "slow")
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
}

func TestTheListSaysWhetherAServerLooks(t *testing.T) {
	sh := filledShell(t)
	sh.must("hooks", "put", "crm", "--url", "https://app.example.com/ends")
	sh.must("alerts", "put", "leader", "--kind", "no_leader", "--mail", "ops@example.com")
	for _, what := range []string{"hooks", "alerts"} {
		if r := sh.run(what, "list"); !strings.Contains(r.err, "no server has checked them yet") {
			t.Errorf("%s: %q", what, r.err)
		}
	}
}
