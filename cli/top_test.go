//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/cli/top"
)

// terminal is the command in its own terminal.
type terminal struct {
	t      *testing.T
	socket string
}

// inTerminal starts the command in a terminal of 80 columns and 24 lines.
func (sh *shell) inTerminal(args ...string) *terminal {
	sh.t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" {
			sh.t.Fatal("tmux is missing: scripts/deps installs it")
		}
		sh.t.Skip("tmux is missing: scripts/deps installs it")
	}
	folder, err := os.MkdirTemp("", "tmux") // the path of a socket has to be short
	if err != nil {
		sh.t.Fatal(err)
	}
	term := &terminal{sh.t, filepath.Join(folder, "s")}
	sh.t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() // it may have ended
		_ = os.RemoveAll(folder)
	})
	line := "env"
	for _, word := range append(append([]string{playTusk + "=1"}, sh.env...), append([]string{os.Args[0]}, args...)...) {
		line += " '" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	term.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", line+"; echo ended: $?; sleep 600")
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	c := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (term *terminal) press(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys"}, keys...)...)
}

// await waits until the screen shows all texts.
func (term *terminal) await(texts ...string) string {
	term.t.Helper()
	var screen string
	eventually(term.t, func() bool {
		screen = term.tmux("capture-pane", "-p")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	}, func() string { return "not all of " + strings.Join(texts, " | ") + " on\n" + screen })
	return screen
}

// fillTop enqueues tasks and starts a worker for them: bills has a running and a failed task, mail has a waiting one.
func fillTop(sh *shell) {
	sh.must("enqueue", "stay", "--queue", "bills")
	sh.must("enqueue", "fall", "--queue", "bills", "--max-attempts", "1")
	mail := strings.TrimSpace(sh.must("enqueue", "echo", "--queue", "mail", "--tags", "a", "--quiet"))
	sh.must("tasks", "reprioritize", mail, "--priority", "7")
	sh.start("work", "--queue", "bills", "--exec", "stay=sleep 600", "--exec",
		`fall=sh -c 'printf "no\033[2J"; printf "bad\033[2J" >&2; exit 3'`)
	eventually(sh.t, func() bool {
		return len(sh.json("tasks", "list", "--state", "running")) == 1 &&
			len(sh.json("tasks", "list", "--state", "discarded")) == 1
	}, func() string { return sh.must("tasks", "list") })
}

func TestTopInATerminal(t *testing.T) {
	sh := filledShell(t)
	fillTop(sh)
	term := sh.inTerminal("top")
	term.await("tusk top  sqlite:tusk.db", "> bills", "  mail", "workers 1", "q quit")

	term.press("j")
	term.await("> mail")
	term.press("p")
	term.await("pause queue mail? y/n")
	term.press("n")
	term.await("not done: pause queue mail")
	if paused(sh, "mail") {
		t.Fatal("paused without a yes")
	}
	term.press("p")
	term.await("pause queue mail? y/n")
	term.press("y")
	term.await("done: pause queue mail", "paused")
	if !paused(sh, "mail") {
		t.Fatal("not paused")
	}

	term.press("Enter")
	term.await("Queues › mail", "available", "echo")
	term.press("Enter")
	term.await("why", "paused: ", "tusk queues resume mail", "reprioritized ")

	term.press("4")
	term.await("[4 Errors]", "fall")
	term.press("Enter")
	term.await("discarded")
	term.press("r")
	term.await("retry task ")
	term.press("y")
	term.await("done: retry task")
	eventually(t, func() bool { return sh.json("errors")[0]["count"] == 2.0 }, func() string { return sh.must("errors") })

	term.press("5")
	term.await("[5 Running]", "stay")
	term.tmux("resize-window", "-x", "60", "-y", "12")
	term.await("[5 Running]", "stay", "q quit")
	term.press("?")
	term.await("any key: back")
	term.press("x")
	term.await("[5 Running]", "enter look")
	term.press("q")
	term.await("ended: 0")
}

func TestTopWithoutColours(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "echo", "--queue", "mail")
	for setting, want := range map[string]bool{"NO_COLOR=1": false, "TUSK_NO_COLOR=true": false, "A=b": true} {
		set := *sh
		set.env = append([]string{setting}, sh.env...)
		term := set.inTerminal("top")
		term.await("> mail")
		if got := term.tmux("capture-pane", "-p", "-e"); strings.Contains(got, "\x1b[") != want {
			t.Errorf("%s: colours are wanted: %v, got %q", setting, want, got)
		}
	}
}

func paused(sh *shell, queue string) bool {
	for _, q := range sh.json("queues", "list") {
		if q["name"] == queue {
			return q["paused"] == true
		}
	}
	return false
}

func TestTopOverHTTP(t *testing.T) {
	sh := filledShell(t)
	fillTop(sh)
	secret := sh.json("tokens", "create", "top", "--role", "operator", "--expires-in", "1d")[0]["secret"].(string)
	sh.write("token", secret+"\n", 0o600)
	p := sh.start("serve", "--addr", "127.0.0.1:0", "--prefix", "/tusk")
	url := strings.TrimSuffix(p.await(`health=(\S+)`), "/healthz")
	args := []string{"top", "--url", url + "/", "--token-file", "token"}

	sameFrames(t, sh, args)
	term := sh.inTerminal(args...)
	term.await("tusk top  "+url, "> bills")
	term.press("j", "p")
	term.await("pause queue mail? y/n")
	term.press("y")
	term.await("done: pause queue mail", "paused")
	if !paused(sh, "mail") {
		t.Fatal("not paused")
	}
	term.press("Enter")
	term.await("> available")
	term.press("Enter")
	term.await("why", "paused: ", "echo", "reprioritized ")
	term.press("4")
	term.await("[4 Errors]", "fall")
	term.press("Enter")
	term.await("discarded")
	term.press("r", "y")
	term.await("done: retry task")
	p.signal(syscall.SIGTERM)
	p.status()
	term.await("cannot look: ", "as it was ")
	term.press("C-c")
	term.await("ended: 0")
}

// sameFrames checks that the server returns the same as the database.
func sameFrames(t *testing.T, sh *shell, args []string) {
	t.Helper()
	read := func(args ...string) (f top.Frame) {
		if err := json.Unmarshal([]byte(sh.must(append(args, "--once", "--json")...)), &f); err != nil {
			t.Fatal(err)
		}
		f.At = time.Time{}
		for i := range f.Queues {
			f.Queues[i].Oldest = 0
		}
		for i := range f.Workers {
			f.Workers[i].BeatAt = time.Time{}
		}
		return f
	}
	var one, other top.Frame
	eventually(t, func() bool { // a minute may end between the two
		one, other = read("top"), read(args...)
		return reflect.DeepEqual(one, other)
	}, func() string {
		a, _ := json.Marshal(one)
		b, _ := json.Marshal(other)
		return string(a) + "\n" + string(b)
	})
	if len(one.Queues) != 2 || len(one.Workers) != 2 || len(one.Errors) != 1 || len(one.Running) != 1 ||
		one.Running[0].Kind != "stay" {
		t.Errorf("not all: %+v", one)
	}
}

func TestTopWithoutATerminalPrintsOnce(t *testing.T) {
	sh := filledShell(t)
	fillTop(sh)
	got := sh.must("top")
	for _, want := range []string{"QUEUES\n", "bills ", "KINDS\n", "WORKERS\n", "stay×1", "ERRORS\n",
		"RUNNING\n", "stay "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if i := bytes.IndexAny([]byte(got), "\x1b\x07\r"); i >= 0 {
		t.Errorf("a control character in %q", got)
	}
}

func TestTopRefusesWhatWouldTellATokenToOthers(t *testing.T) {
	sh := filledShell(t)
	sh.env = append(sh.env, "TUSK_TOP_TOKEN=tusk_secret_1234567890")
	sh.fails(exitUsage, "usage", []string{"without TLS", "--insecure-http"}, "top", "--url", "http://192.0.2.7:8787")
	sh.fails(exitUsage, "usage", []string{"not a URL"}, "top", "--url", "tusk.example.com")
	sh.fails(exitUsage, "usage", []string{"login"}, "top", "--url", "https://a:b@tusk.example.com")
	sh.fails(exitUsage, "usage", []string{"--url or --db"}, "top", "--url", "https://tusk.example.com", "--db", "sqlite:x")
	sh.fails(exitUsage, "usage", []string{"--token-file"}, "top", "--token-file", "x")
	sh.fails(exitUsage, "usage", []string{"--token-file"}, "top", "--url", "https://tusk.example.com", "--token-file", "x")
	p := sh.start("serve", "--addr", "127.0.0.1:0")
	url := strings.TrimSuffix(p.await(`health=(\S+)`), "/healthz")
	sh.fails(exitUsage, "unauthenticated", []string{"401", "tusk tokens create"}, "top", "--url", url)
	sh.fails(exitNotFound, "unexpected", []string{"404", "--prefix"}, "top", "--url", url+"/elsewhere")
	p.signal(syscall.SIGTERM)
	p.status()
	sh.fails(exitUnavailable, "unavailable", nil, "top", "--url", url)
	if shown := sh.must("config", "show"); strings.Contains(shown, "tusk_secret") {
		t.Error(shown)
	}
}

func TestADatabaseOnTheCommandLineCountsMoreThanAServerInAVariable(t *testing.T) {
	sh := filledShell(t)
	sh.env = append(sh.env, "TUSK_TOP_URL=http://127.0.0.1:1", "TUSK_DEV_EPHEMERAL=true", "TUSK_DEV_PORT=1")
	sh.fails(exitUnavailable, "unavailable", nil, "top")
	sh.must("top", "--db", "sqlite:tusk.db")
	p := sh.start("dev", "--db", "sqlite:named.db", "--addr", "127.0.0.1:0")
	if url := p.await(`database  (\S+)`); url != "sqlite:named.db" {
		t.Errorf("dev uses %s", url)
	}
	if url := p.await(`web UI    (\S+)`); strings.HasSuffix(url, ":1/") {
		t.Errorf("dev listens at %s", url)
	}
	p.signal(syscall.SIGTERM)
	p.status()
}
