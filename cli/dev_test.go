package cli

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"
)

// TestTheFirstPageOfDevAnswersAtOnce measures the time from the start of the command, in an empty directory, until
// the first page is there. TUSK_FIRST_PAGE=3s sets a limit for it, on an otherwise idle machine.
func TestTheFirstPageOfDevAnswersAtOnce(t *testing.T) {
	tusk := binary(t)
	dir := t.TempDir()
	p := &process{t: t}
	p.cmd = exec.Command(tusk, "dev", "--addr", "127.0.0.1:0")
	p.cmd.Dir, p.cmd.Stderr, p.cmd.Env = dir, p, append(os.Environ(), "HOME="+dir)
	begun := time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		p.signal(os.Interrupt)
		if code := p.status(); code != 0 {
			t.Errorf("status %d: %s", code, p.log())
		}
	}()
	address := regexp.MustCompile(`http://127\.0\.0\.1:[1-9]\d*`)
	eventually(t, func() bool {
		at := address.FindString(p.log())
		if at == "" {
			return false
		}
		answer, err := http.Get(at + "/")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, p.log)
	took := time.Since(begun)
	t.Logf("the first page answered %v after the start", took.Round(time.Millisecond))
	if within, err := time.ParseDuration(os.Getenv("TUSK_FIRST_PAGE")); err == nil && took > within {
		t.Errorf("that is more than %v", within)
	}
}
