package server_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store/memory"
)

// TestTheExamplesOfTheDocumentationWork runs the examples in one shell, in their order. A refused request ends it.
func TestTheExamplesOfTheDocumentationWork(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("TUSK_TEST_ALL") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	text, err := os.ReadFile("../docs/http-api.md")
	if err != nil {
		t.Fatal(err)
	}
	s := startKeeping(t, memory.New())
	script := "set -euo pipefail\ncurl() { command curl -sS --fail-with-body \"$@\"; }\n"
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		script += strings.ReplaceAll(block[1], "http://127.0.0.1:8787", s.URL) + "\n"
	}
	shell := exec.Command("bash", "-x", "-c", script)
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "TOKEN="+s.token)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(script, "curl "); n < 25 {
		t.Errorf("only %d examples", n)
	}
}
