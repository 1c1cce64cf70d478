package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestAWorkerTellsMetricsAndHealth(t *testing.T) {
	sh := filledShell(t)
	p := sh.start("work", "--listen", "127.0.0.1:0")
	url := strings.TrimSuffix(p.await(`url=(http://\S+/metrics)`), "metrics")
	for path, part := range map[string]string{"metrics": `tusk_loop_age_seconds{loop="claim"}`,
		"metrics?": "tusk_hung_handlers 0\n", "healthz": "ok", "readyz": "ok"} {
		if status, body := get(t, url+path); status != 200 || !strings.Contains(body, part) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestBeyondLoopbackAWorkersMetricsAskForAToken(t *testing.T) {
	sh := filledShell(t)
	sh.fails(exitUsage, "not_loopback", []string{"--insecure-http"}, "work", "--listen", "0.0.0.0:0")
	token := strings.TrimSpace(sh.must("tokens", "create", "scraper", "--role", "viewer", "-q"))
	p := sh.start("work", "--listen", "0.0.0.0:0", "--insecure-http")
	url := strings.Replace(p.await(`url=(http://\S+/metrics)`), "[::]", "127.0.0.1", 1)
	if status, _ := get(t, url); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	if status, body := getAs(t, url, token); status != 200 || !strings.Contains(body, "tusk_up 1") {
		t.Errorf("with one: %d %s", status, body)
	}
}

// getAs is get with a token.
func getAs(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
