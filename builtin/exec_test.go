//go:build unix

package builtin_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/builtin"
)

func withExec(m *tusk.Mux) { builtin.Exec(m) }

func shell(script string) string {
	args, _ := json.Marshal(builtin.ExecArgs{Command: []string{"sh", "-c", script}})
	return string(args)
}

func TestACommandsExitStatusDecides(t *testing.T) {
	w := work(t, withExec)
	for script, want := range map[string]struct {
		state tusk.State
		text  string
	}{
		"exit 0":                           {tusk.StateCompleted, ""},
		"exit 3":                           {tusk.StateDiscarded, "exit status 3"},
		"echo no disk >&2; exit 1":         {tusk.StateDiscarded, "exit status 1: no disk"},
		"echo no customer >&2; exit 65":    {tusk.StateDiscarded, "exit status 65: no customer"},
		"exit 75":                          {tusk.StateDiscarded, "exit status 75 (to be retried)"},
		"kill -9 $$":                       {tusk.StateDiscarded, "signal: killed"},
		"echo warning >&2; echo >&2; true": {tusk.StateCompleted, ""},
	} {
		task := w.ended(builtin.KindExec, shell(script))
		if task.State != want.state || lastError(task) != want.text {
			t.Errorf("%s: %v %q, want %v %q", script, task.State, lastError(task), want.state, want.text)
		}
	}
}

func TestExit75IsRetriedByTheTasksPolicy(t *testing.T) {
	w := work(t, withExec)
	id := w.enqueue(builtin.KindExec, shell(`test "$TUSK_TASK_ATTEMPT" = 2 || exit 75`),
		&tusk.Options{MaxAttempts: 2, Backoff: tusk.ConstantBackoff(time.Millisecond)})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if task.State != tusk.StateCompleted || task.Attempt != 2 {
		t.Fatalf("%v after attempt %d", task.State, task.Attempt)
	}
}

func TestExit65DiscardsAtTheFirstAttempt(t *testing.T) {
	w := work(t, withExec)
	id := w.enqueue(builtin.KindExec, shell(`exit 65`),
		&tusk.Options{MaxAttempts: 5, Backoff: tusk.ConstantBackoff(time.Millisecond)})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if task.State != tusk.StateDiscarded || task.Attempt != 1 {
		t.Fatalf("%v after attempt %d", task.State, task.Attempt)
	}
}

func TestStandardOutputIsTheTasksOutput(t *testing.T) {
	w := work(t, withExec)
	long := strconv.Itoa(2 * tusk.MaxOutputBytes)
	for script, check := range map[string]func(string) bool{
		`echo '{"a": [1, 2]}'`:       func(s string) bool { return s == `{"a":[1,2]}` },
		"echo plain words":           func(s string) bool { return s == `"plain words"` },
		`printf 'nul \000 and \377'`: func(s string) bool { return s == `"nul � and �"` },
		`echo '"\u0000"'`:            func(s string) bool { return s == `"\"\\u0000\""` },
		"true":                       func(s string) bool { return s == "" },
		"echo found; exit 1":         func(s string) bool { return s == `"found"` },
		"head -c " + long + " /dev/zero | tr '\\0' '<'": func(s string) bool {
			return len(s) > 1000 && len(s) <= tusk.MaxOutputBytes
		},
	} {
		task := w.ended(builtin.KindExec, shell(script))
		if output := string(task.Detail.Output); !check(output) {
			t.Errorf("%s: output %.100s (%d bytes)", script, output, len(output))
		}
	}
}

func TestStandardErrorIsTheTasksLog(t *testing.T) {
	w := work(t, withExec)
	task := w.ended(builtin.KindExec, shell(`echo one >&2; echo two >&2; printf three >&2`))
	var lines []string
	for _, l := range task.Detail.Logs {
		lines = append(lines, l.Text)
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(lines, want) {
		t.Fatalf("%q, want %q", lines, want)
	}
}

func TestACommandKnowsItsTaskAndNotTheWorkersSecrets(t *testing.T) {
	for name, value := range map[string]string{"TUSK_DATABASE_URL": "postgres://user:secret@host/db",
		"TUSK_SERVE_X": "secret",
		"DATABASE_URL": "postgres://user:secret@host/db", "DB_PASSWORD": "secret", "AWS_SECRET_ACCESS_KEY": "secret",
		"TZ": "Europe/Berlin", "LC_ALL": "C", "BUILTIN_TEST": "listed"} {
		t.Setenv(name, value)
	}
	w := work(t, func(m *tusk.Mux) { builtin.Exec(m, "BUILTIN_TEST") })
	id := w.enqueue(builtin.KindExec, `{"command":["env"],"env":{"OWN":"x=y","TUSK_TASK_ID":"forged"}}`,
		&tusk.Options{Tenant: "acme"})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	var output string
	if err := json.Unmarshal(task.Detail.Output, &output); err != nil {
		t.Fatal(err)
	}
	env := strings.Split(output, "\n")
	for _, want := range []string{"TUSK_TASK_ID=" + id.String(), "TUSK_TASK_KIND=exec", "TUSK_TASK_QUEUE=default",
		"TUSK_TASK_ATTEMPT=1", "TUSK_TASK_TENANT=acme", "OWN=x=y", "BUILTIN_TEST=listed", "TZ=Europe/Berlin", "LC_ALL=C"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	if strings.Contains(output, "secret") || strings.Contains(output, "forged") {
		t.Errorf("the environment has what it should not: %s", output)
	}
}

func TestThereIsNoShellBetween(t *testing.T) {
	w := work(t, withExec)
	dir := t.TempDir()
	args, _ := json.Marshal(builtin.ExecArgs{Command: []string{"printf", "%s|", "$HOME", "; touch owned", "*"}, Dir: dir})
	task := w.ended(builtin.KindExec, string(args))
	if string(task.Detail.Output) != `"$HOME|; touch owned|*|"` {
		t.Errorf("output %s", task.Detail.Output)
	}
	if found, _ := filepath.Glob(dir + "/*"); len(found) > 0 {
		t.Errorf("files appeared: %v", found)
	}
}

func TestArgsThatCannotBeRunAreDiscardedAtOnce(t *testing.T) {
	w := work(t, withExec)
	for args, want := range map[string]string{
		`{}`:                                   "args: command is missing",
		`[]`:                                   "args: want an object, not a list",
		`{"command":[]}`:                       "args: command is missing",
		`{"command":[""]}`:                     "args: command is missing",
		`{"command":"ls"}`:                     "args: command: want a list, not a string",
		`{"command":["ls",1]}`:                 "args: command: want a string, not a number",
		`{"command":["ls"],"env":["a"]}`:       "args: env: want an object, not a list",
		`{"command":["ls"],"env":{"A":true}}`:  "args: env: want a string, not true or false",
		`{"comand":["ls"]}`:                    `args: unknown field "comand"; did you mean command?`,
		`{"command":["ls"],"env":{"A=B":"c"}}`: "args: env has a name or value",
		`{"command":["ls"],"env":{"":"c"}}`:    "args: env has a name or value",
	} {
		id := w.enqueue(builtin.KindExec, args, &tusk.Options{MaxAttempts: 5})
		task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
		if task.State != tusk.StateDiscarded || task.Attempt != 1 || !strings.HasPrefix(lastError(task), want) {
			t.Errorf("%s: %v, attempt %d, %q, want %q", args, task.State, task.Attempt, lastError(task), want)
		}
	}
	if task := w.ended(builtin.KindExec, `{"command":["no-such-program"]}`); !strings.Contains(lastError(task),
		"no-such-program") {
		t.Errorf("missing program: %q", lastError(task))
	}
}

func TestACommandThatHangsIsNamedInsteadOfAStack(t *testing.T) {
	w := work(t, withExec, func(c *tusk.WorkerConfig) { c.HungGrace = 100 * time.Millisecond })
	id := w.enqueue(builtin.KindExec, shell("trap '' TERM; while :; do sleep 0.05; done"),
		&tusk.Options{MaxAttempts: 1, Timeout: 100 * time.Millisecond})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	a := task.Detail.Attempts[0]
	if !strings.HasPrefix(a.Error, "hung: ") || !regexp.MustCompile(
		`^the command "/[^"]*sh", process \d+, has not ended$`).MatchString(a.Trace) {
		t.Errorf("%q, %q", a.Error, a.Trace)
	}
}

// forks is a script whose child outlives it and ignores SIGTERM. Both write their process ids to
// files.
func forks(dir string) string {
	return `(trap '' TERM; sh -c 'echo $PPID' > ` + dir + `/child.tmp; mv ` + dir + `/child.tmp ` + dir +
		`/child; while :; do sleep 0.05; done) &
trap '' TERM
echo $$ > ` + dir + `/parent
`
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		text, err := os.ReadFile(file)
		if pid, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
			return pid
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s was never written", file)
	return 0
}

// awaitDeath waits until a process no longer runs. A zombie does not run.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		zombie := err == nil && strings.Contains(string(stat), ") Z ")
		if zombie || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("process %d is still alive", pid)
}

func TestTheWholeProcessGroupDiesAtTheDeadline(t *testing.T) {
	w, dir := work(t, withExec), t.TempDir()
	id := w.enqueue(builtin.KindExec, shell(forks(dir)+"while :; do sleep 0.05; done"),
		&tusk.Options{MaxAttempts: 1, Timeout: 2 * time.Second})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if !strings.Contains(lastError(task), tusk.ErrTimeout.Error()) {
		t.Errorf("error %q", lastError(task))
	}
	awaitDeath(t, pidIn(t, dir+"/parent"))
	awaitDeath(t, pidIn(t, dir+"/child"))
}

func TestTheWholeProcessGroupDiesWhenItsTaskIsCancelled(t *testing.T) {
	w, dir := work(t, withExec), t.TempDir()
	id := w.enqueue(builtin.KindExec, shell(forks(dir)+"while :; do sleep 0.05; done"), nil)
	parent, child := pidIn(t, dir+"/parent"), pidIn(t, dir+"/child")
	if _, err := w.client.Cancel(t.Context(), id, "enough"); err != nil {
		t.Fatal(err)
	}
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if task.State != tusk.StateCancelled {
		t.Errorf("ended %v", task.State)
	}
	awaitDeath(t, parent)
	awaitDeath(t, child)
}

func TestTheWholeProcessGroupDiesWithTheWorkerAndTheTaskIsHandedBack(t *testing.T) {
	w, dir := work(t, withExec), t.TempDir()
	id := w.enqueue(builtin.KindExec, shell(forks(dir)+"while :; do sleep 0.05; done"), nil)
	parent, child := pidIn(t, dir+"/parent"), pidIn(t, dir+"/child")
	w.stop()
	awaitDeath(t, parent)
	awaitDeath(t, child)
	if task := w.await(id, func(*tusk.TaskInfo) bool { return true }); task.State != tusk.StateAvailable ||
		task.Attempt != 0 {
		t.Errorf("%v, attempt %d", task.State, task.Attempt)
	}
}

func TestWhatACommandLeavesRunningDiesWithIt(t *testing.T) {
	w, dir := work(t, withExec), t.TempDir()
	task := w.ended(builtin.KindExec, shell(forks(dir)+"while ! test -f "+dir+"/child; do sleep 0.01; done; echo done"))
	if task.State != tusk.StateCompleted || string(task.Detail.Output) != `"done"` {
		t.Errorf("%v, output %s: %s", task.State, task.Detail.Output, lastError(task))
	}
	awaitDeath(t, pidIn(t, dir+"/child"))
}

func TestACommandOfAKindReadsItsArgsFromStandardInput(t *testing.T) {
	w := work(t, func(m *tusk.Mux) {
		builtin.Command(m, "resize", []string{"sh", "-c", `cat; echo "$TUSK_TASK_KIND" >&2`}, nil)
	})
	task := w.ended("resize", `{"width":100}`)
	if string(task.Detail.Output) != `{"width":100}` || len(task.Detail.Logs) != 1 ||
		task.Detail.Logs[0].Text != "resize" {
		t.Fatalf("output %s, logs %v", task.Detail.Output, task.Detail.Logs)
	}
}

func TestACommandNeedNotReadItsArgs(t *testing.T) {
	w := work(t, func(m *tusk.Mux) { builtin.Command(m, "deaf", []string{"true"}, nil) })
	args, _ := json.Marshal(map[string]string{"long": strings.Repeat("x", 200<<10)})
	if task := w.ended("deaf", string(args)); task.State != tusk.StateCompleted {
		t.Fatalf("%v: %s", task.State, lastError(task))
	}
}

const playWorker = "BUILTIN_TEST_WORKER"

// TestACommandDiesWithAKilledWorker runs a worker in a process of its own.
func TestACommandDiesWithAKilledWorker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has it")
	}
	if dir := os.Getenv(playWorker); dir != "" {
		w := work(t, withExec)
		w.enqueue(builtin.KindExec, shell("echo $$ > "+dir+"/command; while :; do sleep 0.05; done"), nil)
		select {}
	}
	dir := t.TempDir()
	worker := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	worker.Env = append(os.Environ(), playWorker+"="+dir)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	command := pidIn(t, dir+"/command")
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	worker.Wait()
	awaitDeath(t, command)
}

func TestCommandsAreStagesOfAPipeline(t *testing.T) {
	w := work(t, func(m *tusk.Mux) {
		builtin.Command(m, "ingest.fetch", []string{"sh", "-c", `printf '{"fetched":%s}' "$(cat)"`}, nil)
		builtin.Command(m, "ingest.parse", []string{"sh", "-c", `cat; echo store > "$TUSK_GO_TO"`}, nil)
		builtin.Command(m, "ingest.index", []string{"cat"}, nil)
		builtin.Command(m, "ingest.store", []string{"sh", "-c", `echo > "$TUSK_GO_TO"; echo '"stored"'`}, nil)
		builtin.Command(m, "alone", []string{"sh", "-c", `echo store > "$TUSK_GO_TO"`}, nil)
	})
	text := `{"stages":[{"name":"fetch","queue":"default"},{"name":"parse","queue":"default"},
		{"name":"index","queue":"default"},{"name":"store","queue":"default"},{"name":"never"}]}`
	p, err := tusk.ParsePipeline("ingest", []byte(text))
	if err == nil {
		err = w.client.DefinePipeline(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	started, err := w.client.Enqueue(t.Context(), p.Start(7), nil)
	if err != nil {
		t.Fatal(err)
	}
	var run *tusk.WorkflowInfo
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if run, err = w.client.Workflow(t.Context(), started.ID); err != nil || run.Done() && len(run.Tasks) > 1 {
			break
		}
	}
	if err != nil || len(run.Tasks) != 3 || string(run.Tasks[1].Args) != `{"fetched":7}` ||
		run.Tasks[2].Kind != "ingest.store" || string(run.Tasks[2].Detail.Output) != `"stored"` {
		t.Errorf("%+v, %v", run, err)
	}
	if task := w.ended("alone", "1"); task.State != tusk.StateDiscarded ||
		!strings.Contains(lastError(task), "alone is no stage") {
		t.Errorf("%v: %s", task.State, lastError(task))
	}
}

// A command that is told to stop may finish its work, as a handler may.
func TestACommandThatEndsItsWorkWhenToldToStopHasDoneIt(t *testing.T) {
	w := work(t, withExec)
	begun := filepath.Join(t.TempDir(), "begun")
	script := `trap 'echo done; exit 0' TERM; touch ` + begun + `; while :; do sleep 0.02; done`
	id := w.enqueue(builtin.KindExec, shell(script), nil)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(begun); err == nil {
			break
		}
	}
	w.stop()
	task := w.await(id, func(*tusk.TaskInfo) bool { return true })
	if task.State != tusk.StateCompleted || string(task.Detail.Output) != `"done"` {
		t.Errorf("%v with output %s", task.State, task.Detail.Output)
	}
}
