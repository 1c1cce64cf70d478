//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// decodeOne decodes the one object that a command printed.
func decodeOne(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&object); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one object: %q", text)
	}
	return object
}

// keysOf lists the keys of an object in their order.
func keysOf(t *testing.T, text string) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	var keys []string
	for i := 0; ; i++ {
		token, err := d.Token()
		if err != nil {
			return keys
		}
		if name, ok := token.(string); ok && i%2 == 1 {
			keys = append(keys, name)
		}
	}
}

func TestWorkRunsCommandsUntilTheQueueIsEmpty(t *testing.T) {
	sh := filledShell(t)
	for range 5 {
		sh.must("enqueue", "copy", `{"a":1}`)
	}
	sh.must("enqueue", "echo", `{"b":2}`)
	sh.must("work", "--until-empty", "--exec", `copy=sh -c 'cat; echo "for $TUSK_TASK_KIND" >&2'`)
	done := sh.json("tasks", "list", "--state", "completed")
	if len(done) != 6 {
		t.Fatalf("%d tasks completed: %v", len(done), done)
	}
}

func TestWorkLimitsTasksThatHaveNoLimitOfTheirOwn(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "slow", "--max-attempts", "1")
	sh.must("enqueue", "own", "--max-attempts", "1", "--timeout", "1m")
	sh.must("work", "--until-empty", "--exec", "slow=sleep 600", "--exec", "own=sleep 1", "--timeout", "300ms")
	for state, kind := range map[string]string{"discarded": "slow", "completed": "own"} {
		if ended := sh.json("tasks", "list", "--state", state); len(ended) != 1 || ended[0]["kind"] != kind {
			t.Errorf("%s: %v", state, ended)
		}
	}
}

func TestACommandSpawnsChildrenAndWaitsForThem(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "album")
	sh.must("enqueue", "sneaky", "--max-attempts", "1")
	sh.must("work", "--until-empty", "--exec-children", "default", "--exec", "picture=cat", "--exec",
		`album=sh -c 'if [ -n "$TUSK_INPUTS" ]; then cat "$TUSK_INPUTS"; exit; fi; `+
			`for n in 1 2; do echo "{\"kind\":\"picture\",\"args\":$n}"; done > "$TUSK_CHILDREN"; `+
			`echo "{\"wait\":true}" >> "$TUSK_CHILDREN"'`,
		"--exec", `sneaky=sh -c 'echo "{\"kind\":\"picture\",\"queue\":\"vault\"}" > "$TUSK_CHILDREN"'`)
	for kind, want := range map[string]int{"album": 1, "picture": 2} {
		if done := sh.json("tasks", "list", "--state", "completed", "--kind", kind); len(done) != want {
			t.Errorf("%s: %d completed, want %d", kind, len(done), want)
		}
	}
	if lost := sh.json("tasks", "list", "--state", "discarded"); len(lost) != 1 || lost[0]["kind"] != "sneaky" {
		t.Errorf("discarded: %v", lost)
	}
	if aside := sh.json("tasks", "list", "--queue", "vault"); len(aside) != 0 {
		t.Errorf("queue vault: %v", aside)
	}
}

func TestWorkRunsNoCommandOfATaskUnlessItIsTold(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "exec", `{"command":["true"]}`)
	p := sh.start("work")
	p.await("no handler for this kind")
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
	if left := sh.json("tasks", "list", "--state", "scheduled"); len(left) != 1 || left[0]["attempt"] != 0.0 {
		t.Fatalf("the task was not handed back: %v", left)
	}
	sh.must("work", "--until-empty", "--enable-exec")
}

func TestWorkSaysWhatItDoes(t *testing.T) {
	sh := filledShell(t)
	p := sh.start("work", "--queue", "mail", "--queue", "slow", "--concurrency", "3", "--exec", "send=true")
	p.await(`msg=work queues="\[mail slow\]" kinds="\[echo http send\]" concurrency=3 lease=30s`)
	p.signal(syscall.SIGINT)
	if status := p.status(); status != exitOK || !strings.Contains(p.log(), "work: stopped") {
		t.Fatalf("status %d: %s", status, p.log())
	}
}

func TestASecondSignalEndsAWorkerAtOnce(t *testing.T) {
	sh := filledShell(t)
	sh.must("enqueue", "slow")
	p := sh.start("work", "--exec", "slow=sh -c 'echo begun > begun; while :; do sleep 0.05; done'")
	eventually(t, func() bool { _, err := os.Stat("begun"); return err == nil }, p.log)
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGINT)
	if status := p.status(); status != exitInterrupted {
		t.Fatalf("status %d: %s", status, p.log())
	}
}

func TestAWorkersFlagsAreChecked(t *testing.T) {
	sh := filledShell(t)
	for _, c := range []struct {
		code, part string
		args       []string
	}{
		{"usage", "KIND=COMMAND", []string{"--exec", "send"}},
		{"usage", "KIND=COMMAND", []string{"--exec", "send="}},
		{"usage", "quote", []string{"--exec", "send='open"}},
		{"usage", "kind", []string{"--exec", "Send Mail=true"}},
		{"usage", "already", []string{"--exec", "a=true", "--exec", "a=false"}},
		{"usage", "already", []string{"--exec", "http=true"}},
		{"usage", "--allow-host", []string{"--allow-host", "http://x/"}},
		{"usage", "--keep", []string{"--keep-completed", "-1h"}},
		{"invalid_name", "queue", []string{"--queue", "Mail"}},
		{"usage", "from 1 to 100000", []string{"--concurrency", "-1"}},
		{"out_of_range", "--lease: is 1ms", []string{"--lease", "1ms"}},
		{"out_of_range", "--beat: is", []string{"--lease", "3s", "--beat", "2s"}},
		{"out_of_range", "--hung-grace: is", []string{"--hung-grace", "1ms"}},
		{"out_of_range", "--timeout: is", []string{"--timeout", "8d"}},
		{"out_of_range", "--stall-timeout: is", []string{"--stall-timeout", "8d"}},
		{"out_of_range", "--max-hung: is", []string{"--max-hung", "-2"}},
		{"usage", "negative", []string{"--poll", "-1s"}},
		{"usage", "unexpected", []string{"mail"}},
	} {
		sh.fails(exitUsage, c.code, []string{c.part}, append([]string{"work"}, c.args...)...)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
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

func TestServeAnswersHealthChecksAndLeads(t *testing.T) {
	sh := filledShell(t)
	p := sh.start("serve", "--addr", "127.0.0.1:0")
	url := strings.TrimSuffix(p.await(`health=(\S+)`), "/healthz")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 200 /* the login */, "/healthz/x": 404,
		"/api/v1/tasks": 401} {
		if status, body := get(t, url+path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	response, err := http.Post(url+"/healthz", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", response.Status)
	}
	p.await("msg=lead")
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
}

func TestServeListensOnLoopbackAlone(t *testing.T) {
	sh := filledShell(t)
	for _, addr := range []string{":8787", "0.0.0.0:8787", "[::]:8787", "192.0.2.1:8787", "example.com:80"} {
		sh.fails(exitUsage, "not_loopback", []string{"is not a loopback address", "--tls-cert"}, "serve", "--addr", addr)
		sh.fails(exitUsage, "not_loopback", []string{"--host"}, "serve", "--insecure-http", "--addr", addr)
		sh.fails(exitUsage, "not_loopback", []string{"only listens on loopback"}, "dev", "--addr", addr)
	}
	for _, addr := range []string{"8787", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:http"} {
		sh.fails(exitUsage, "usage", []string{"host:port"}, "serve", "--addr", addr)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	sh.fails(exitUsage, "address_in_use", []string{"another process listens there"}, "serve", "--addr",
		taken.Addr().String())
}

func TestDevIsAWorkerALeaderAndADatabase(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	sh := newShell(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, flag := range []string{"--addr=" + taken.Addr().String(), "--port=" + port} {
		sh.fails(exitUsage, "address_in_use", []string{port}, "dev", "--ephemeral", flag)
	}
	if nearby, err := listenNearby(t.Context(), taken.Addr().String()); err != nil {
		t.Error(err)
	} else {
		nearby.Close()
	}
	p := sh.start("dev", "--ephemeral", "--addr", "127.0.0.1:0")
	database := p.await(`TUSK_DATABASE_URL=(\S+)`)
	url := p.await(`health +(http://\S+)/healthz`)
	if status, body := get(t, url+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	sh.must("enqueue", "exec", `{"command":["true"]}`, "--db", database)
	p.await(`msg=completed .* kind=exec`)
	p.signal(syscall.SIGINT)
	if status := p.status(); status != exitOK {
		t.Fatalf("status %d: %s", status, p.log())
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDevKeepsItsFileUntilItIsReset(t *testing.T) {
	sh := newShell(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL=sqlite:precious.db")
	run := func(args ...string) {
		t.Helper()
		p := sh.start(append([]string{"dev", "--addr", "127.0.0.1:0"}, args...)...)
		p.await("Ctrl-C stops it")
		p.signal(syscall.SIGTERM)
		if status := p.status(); status != exitOK {
			t.Fatalf("status %d: %s", status, p.log())
		}
	}
	run()
	sh.must("enqueue", "echo", "--db", "sqlite:tusk-dev.db")
	if kept := sh.json("tasks", "list", "--db", "sqlite:tusk-dev.db"); len(kept) != 1 {
		t.Fatalf("%d tasks", len(kept))
	}
	run("--reset")
	if kept := sh.json("tasks", "list", "--db", "sqlite:tusk-dev.db"); len(kept) != 0 {
		t.Fatalf("%d tasks after --reset", len(kept))
	}
	if _, err := os.Stat("precious.db"); err == nil {
		t.Error("dev used the database of the environment")
	}
	sh.fails(exitUsage, "usage", []string{"--ephemeral"}, "dev", "--ephemeral", "--reset")
	sh.fails(exitUsage, "usage", []string{"SQLite files only"}, "dev", "--reset", "--db", "postgres://127.0.0.1/x")
}

func TestACommandThatDoesNotExistIsFoundAtTheStart(t *testing.T) {
	sh := newShell(t)
	sh.must("migrate", "up")
	sh.fails(exitUsage, "usage", []string{"./nofile.py"}, "work", "--exec", "x=./nofile.py")
}

func TestAFileIsNamedForOtherFolders(t *testing.T) {
	newShell(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{"sqlite:tusk-dev.db": "sqlite:" + filepath.Join(here, "tusk-dev.db"),
		"sqlite:a.db?x=1":  "sqlite:" + filepath.Join(here, "a.db") + "?x=1",
		"sqlite:/tmp/a.db": "sqlite:/tmp/a.db", "postgres://h/d": "postgres://h/d"} {
		if got := anywhere(url); got != want {
			t.Errorf("%s: %s", url, got)
		}
	}
	for text, want := range map[string]string{"sqlite:/tmp/a.db": "sqlite:/tmp/a.db",
		"sqlite:/a b.db":         "'sqlite:/a b.db'",
		"postgres://h/d?a=1&b=2": "'postgres://h/d?a=1&b=2'", "x'y": `'x'\''y'`} {
		if got := shellWord(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestAWorkerIsQuietedAndWokenByAPartOfItsID(t *testing.T) {
	sh := filledShell(t)
	sh.start("work")
	eventually(t, func() bool { return len(sh.json("workers", "list")) == 1 }, func() string { return "no worker" })
	id := sh.json("workers", "list")[0]["id"].(string)
	if row := sh.json("workers", "quiet", id[24:])[0]; row["name"] != id || row["result"] != "quiet" {
		t.Errorf("%v", row)
	}
	if row := sh.json("workers", "list")[0]; row["quiet"] != true {
		t.Errorf("%v", row)
	}
	var task, why string
	eventually(t, func() bool { // the worker learns of it within a second
		task = sh.enqueue("echo")
		time.Sleep(100 * time.Millisecond)
		why = sh.must("tasks", "why", task)
		return strings.HasPrefix(why, "quiet\t") && strings.Contains(why, "tusk workers wake "+id)
	}, func() string { return why })
	sh.must("workers", "wake", id)
	eventually(t, func() bool { return slices.Contains(sh.ids("--state", "completed"), task) },
		func() string { return "the task was not run" })
	sh.fails(exitNotFound, "not_found", []string{"no living worker"}, "workers", "quiet", "abcdef012345")
	if out := sh.must("__complete", "workers", "quiet", ""); !strings.HasPrefix(out, id) {
		t.Error(out)
	}
}

func TestAServerIsNotQuietedAndItIsSaidWhatToDo(t *testing.T) {
	sh := filledShell(t)
	sh.start("serve", "--addr", "127.0.0.1:0").await(`msg=serve url=(\S+)`)
	workers := func() []string { return strings.Fields(sh.must("workers", "list", "-q")) }
	eventually(t, func() bool { return len(workers()) == 1 }, func() string { return "no server is a worker" })
	sh.fails(exitConflict, "refused", []string{"it lends tasks", "tusk queues pause"}, "workers", "quiet", workers()[0])
}
