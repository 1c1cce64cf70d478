package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestATokenOpensTheAPI(t *testing.T) {
	sh := filledShell(t)
	made := sh.json("tokens", "create", "ci", "--role", "operator", "--expires-in", "30d")
	secret, id := made[0]["secret"].(string), made[0]["id"].(string)
	p := sh.start("serve", "--addr", "127.0.0.1:0")
	url := strings.TrimSuffix(p.await(`health=(\S+)`), "/healthz")
	ask := func(token string) int {
		r, err := http.NewRequest("GET", url+"/api/v1/tasks", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		_, _ = io.Copy(io.Discard, a.Body)
		return a.StatusCode
	}
	if got := ask(secret); got != 200 {
		t.Errorf("with a token: %d", got)
	}
	if got := ask("tusk_x_y"); got != 401 {
		t.Errorf("without: %d", got)
	}
	if rows := sh.json("tokens", "list"); rows[0]["name"] != "ci" ||
		strings.Contains(sh.must("tokens", "list", "--json"), secret) {
		t.Error(rows)
	}
	sh.must("tokens", "revoke", id)
	for deadline := time.Now().Add(10 * time.Second); ask(secret) != 401; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a revoked token goes on")
		}
	}
	sh.fails(exitNotFound, "not_found", nil, "tokens", "revoke", "nothing")
	sh.fails(exitUsage, "usage", nil, "tokens", "create", "x", "--role", "root")
	sh.fails(exitUsage, "usage", []string{"name"}, "tokens", "create", "<x>")
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
}

func TestAUsersPasswordComesFromStdin(t *testing.T) {
	sh := filledShell(t)
	sh.stdin = "correct horse\n"
	sh.must("users", "put", "ada", "--role", "admin")
	sh.stdin = "short\n"
	sh.fails(exitUsage, "usage", []string{"password"}, "users", "put", "eve")
	sh.stdin = ""
	sh.fails(exitUsage, "usage", []string{"no password on stdin"}, "users", "put", "eve")
	if rows := sh.json("users", "list"); len(rows) != 1 || rows[0]["name"] != "ada" || rows[0]["role"] != "admin" {
		t.Error(rows)
	}
	sh.must("users", "remove", "ada")
	sh.fails(exitNotFound, "not_found", nil, "users", "remove", "ada")
}

func TestServeSaysWhatIsMissing(t *testing.T) {
	sh := filledShell(t)
	sh.fails(exitUsage, "usage", []string{"go together"}, "serve", "--tls-cert", "x.pem")
	sh.fails(exitUsage, "usage", []string{"--oidc-role"}, "serve", "--oidc-issuer", "https://id.example.com")
	sh.fails(exitUsage, "usage", []string{"GROUP=ROLE"}, "serve", "--oidc-issuer", "https://id.example.com",
		"--oidc-client-id", "x", "--oidc-redirect-url", "https://tusk.example.com/login/oidc/callback",
		"--oidc-role", "ops=root")
	sh.fails(exitUsage, "usage", []string{"prefix"}, "serve", "--prefix", "tusk")
}

func TestTheAPIIsDescribedWhereDevSays(t *testing.T) {
	sh := newShell(t)
	t.Setenv("TMPDIR", t.TempDir())
	p := sh.start("dev", "--ephemeral", "--addr", "127.0.0.1:0")
	url := p.await(`(http://\S+/openapi.json)`)
	status, body := get(t, url)
	if status != 200 || !json.Valid([]byte(body)) {
		t.Error(status)
	}
	if status, body = get(t, strings.TrimSuffix(url, "openapi.json")); status != 200 ||
		!strings.Contains(body, "Overview") {
		t.Error(status)
	}
	p.signal(syscall.SIGINT)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAnEndpointIsRegisteredAndItsSecretShownOnce(t *testing.T) {
	sh := filledShell(t)
	made := sh.json("endpoints", "put", "mail", "--url", "https://app.example.com/tusk", "--timeout", "90s")
	secret, _ := made[0]["secret"].(string)
	if !strings.HasPrefix(secret, "whsec_") {
		t.Fatal(made)
	}
	if rows := sh.json("endpoints", "list"); len(rows) != 1 || rows[0]["url"] != "https://app.example.com/tusk" ||
		rows[0]["timeout_seconds"] != 90.0 || rows[0]["concurrency"] != 10.0 {
		t.Error(rows)
	}
	if again := sh.json("endpoints", "put", "mail", "--url", "https://app.example.com/other"); again[0]["secret"] != nil {
		t.Error(again)
	}
	if rows := sh.json("endpoints", "rotate", "mail"); rows[0]["secret"] == secret {
		t.Error(rows)
	}
	if out := sh.must("endpoints", "list"); strings.Contains(out, "whsec_") {
		t.Error(out)
	}
	sh.fails(exitUsage, "target_not_allowed", []string{"--allow-host"}, "endpoints", "put", "mail", "--url",
		"http://127.0.0.1:9000")
	sh.must("endpoints", "put", "mail", "--url", "http://127.0.0.1:9000", "--allow-host", "127.0.0.1")
	sh.fails(exitUsage, "usage", []string{"--url is missing"}, "endpoints", "put", "mail")
	sh.must("endpoints", "remove", "mail")
	sh.fails(exitNotFound, "not_found", nil, "endpoints", "remove", "mail")
	sh.fails(exitNotFound, "not_found", nil, "endpoints", "rotate", "mail")
}

func TestDevShowsEveryPageWithSomethingOnIt(t *testing.T) {
	sh := newShell(t)
	t.Setenv("TMPDIR", t.TempDir())
	p := sh.start("dev", "--ephemeral", "--demo", "--addr", "127.0.0.1:0")
	url := strings.TrimSuffix(p.await(`(http://\S+/openapi.json)`), "openapi.json")
	for _, path := range []string{"queues", "tasks", "tasks?state=discarded", "errors", "schedules", "workers",
		"pipelines", "workflows", "limits", "tenants", "bulk", "endpoints", "access", "audit"} {
		for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			status, body := get(t, url+path)
			if status == 200 && strings.Contains(body, "data-row") || path == "access" && strings.Contains(body, ">demo ") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("/%s has nothing on it: %d", path, status)
			}
		}
	}
	p.signal(syscall.SIGINT)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
}

func TestAlertsFromAShell(t *testing.T) {
	sh := newShell(t)
	sh.must("migrate", "up")
	sh.fails(exitNotFound, "unknown_queue", []string{"--create"}, "alerts", "put", "slow", "--kind", "oldest", "--queue",
		"mail", "--mail", "ops@example.com")
	made := sh.json("alerts", "put", "slow", "--kind", "oldest", "--queue", "mail", "--create", "--over", "10m",
		"--webhook", "https://app.example.com/alerts", "--slack", "https://hooks.slack.com/services/s3cret")
	if secret, _ := made[0]["secret"].(string); !strings.HasPrefix(secret, "whsec_") {
		t.Error(made)
	}
	rows := sh.json("alerts", "list")
	if len(rows) != 1 || rows[0]["kind"] != "oldest" || rows[0]["over_seconds"] != 600.0 || rows[0]["state"] != "ok" {
		t.Error(rows)
	}
	if again := sh.json("alerts", "put", "slow", "--kind", "oldest", "--queue", "mail", "--create", "--over",
		"5m"); again[0]["secret"] != nil {
		t.Error("a change shows the secret")
	}
	for _, command := range [][]string{{"alerts", "list"}, {"alerts", "show", "slow"},
		{"--json", "alerts", "show", "slow"}} {
		if out := sh.must(command...); strings.Contains(out, "whsec_") || strings.Contains(out, "s3cret") ||
			!strings.Contains(out, "https://app.example.com/alerts") {
			t.Errorf("%v: %s", command, out)
		}
	}
	sh.must("alerts", "mute", "slow", "--for", "2h")
	if rows := sh.json("alerts", "show", "slow"); rows[0]["muted_until"] == nil {
		t.Error(rows)
	}
	sh.fails(exitUsage, "target_not_allowed", []string{"--allow-host"}, "alerts", "put", "b", "--kind", "oldest",
		"--webhook", "http://127.0.0.1:9")
	sh.fails(exitUsage, "usage", []string{"--kind is missing"}, "alerts", "put", "b")
	sh.fails(exitUsage, "usage", []string{"receiver"}, "alerts", "put", "b", "--kind", "oldest")
	if out := sh.must("__complete", "alerts", "show", "s"); !strings.HasPrefix(out, "slow\n") {
		t.Error(out)
	}
	sh.must("alerts", "remove", "slow")
	sh.fails(exitNotFound, "not_found", nil, "alerts", "show", "slow")
	sh.fails(exitNotFound, "not_found", nil, "alerts", "test", "slow")
}
