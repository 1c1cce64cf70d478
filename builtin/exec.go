package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/run"
)

// The exit statuses other than 0 that have a meaning. They are those of sysexits.h.
const (
	// ExitRetry is EX_TEMPFAIL. The task is retried as after any other failure, and its error says
	// that the command requested that.
	ExitRetry = 75
	// ExitDiscard is EX_DATAERR: a retry would not help.
	ExitDiscard = 65
)

const (
	// killGrace is how long a process group may continue after SIGTERM. It is shorter than the time
	// that a worker waits for handlers whose context has ended.
	killGrace = 1500 * time.Millisecond

	maxLine = 8 << 10 // of standard error, in bytes
)

// ExecArgs are the args of kind exec. The command runs without a shell. To use one, name it ("sh",
// "-c", "…").
type ExecArgs struct {
	Command []string          `json:"command"`         // program and arguments
	Env     map[string]string `json:"env,omitempty"`   // variables in addition to those that Exec sets
	Dir     string            `json:"dir,omitempty"`   // working directory; default: that of the worker
	Stdin   string            `json:"stdin,omitempty"` // standard input
}

// Kind implements tusk.Args.
func (ExecArgs) Kind() string { return KindExec }

// Exec registers the handler of kind exec, which runs a command.
//
// The worker's environment may hold credentials. So the command gets only PATH, HOME, SHELL, USER,
// LOGNAME, LANG, LANGUAGE, LC_*, TZ, TMPDIR and the variables named by env from it, and
// TUSK_TASK_ID, _KIND, _QUEUE, _ATTEMPT and _TENANT in addition. If the task needed other tasks,
// TUSK_INPUTS names a file with a JSON array of them, each with id, name, kind, state and output.
// The command's standard output becomes the task's output. The lines of its standard error become
// lines of the task's log.
//
// Exit status 0 completes the task, even after SIGTERM. 65 discards it, since no retry would help.
// After any other status, the task is retried by its policy until its attempts are used up. After
// 75, the error also says that the command requested a retry.
//
// The command is the first process of its own process group. At the deadline, when the task is
// cancelled and when the worker stops, the whole group gets SIGTERM, and 1.5 s later SIGKILL. When
// the command ends, what it leaves running in its group is killed. On Linux, the command itself
// also dies when its worker is killed. A process that leaves the group (setsid) is not caught. If
// commands are not trusted, run the worker in a container or in its own control group.
func Exec(m *tusk.Mux, env ...string) {
	tusk.HandleKind(m, KindExec, func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
		var args ExecArgs
		if err := decodeArgs(t.Args, &args); err != nil {
			return err
		}
		if err := args.check(); err != nil {
			return err
		}
		c := exec.CommandContext(ctx, args.Command[0], args.Command[1:]...)
		c.Dir, c.Stdin, c.Env = args.Dir, strings.NewReader(args.Stdin), environment(t, env, args.Env)
		if t.Workflow.IsZero() { // it spawns no children, so it needed nothing
			return runCommand(ctx, t, c)
		}
		return runWithInputs(ctx, t, c)
	})
}

func (a *ExecArgs) check() error {
	if len(a.Command) == 0 || a.Command[0] == "" {
		return badArgs(`command is missing: want {"command":["program","argument",…]}`)
	}
	for _, word := range append(slices.Clone(a.Command), a.Dir) {
		if strings.ContainsRune(word, 0) {
			return badArgs("command or dir has a NUL character")
		}
	}
	for name, value := range a.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return badArgs(fmt.Sprintf("env has a name or value that no environment can hold: %q", name))
		}
	}
	return nil
}

// CommandOptions say what a command of Command may do beyond reading its args.
type CommandOptions struct {
	// Env names the variables of the worker's environment that the command gets in addition to the
	// harmless ones.
	Env []string
	// ChildQueues are the queues that the command may spawn children into; none by default. A child
	// may have any kind and any args.
	ChildQueues []string
}

// Command registers a handler that runs argv with the task's args, as JSON, on its standard input.
// Environment, output, log and exit status are as with Exec. o may be nil.
//
// If the kind is a stage of a pipeline and the command exits with status 0, the pipeline continues
// with the next stage, and the command's output is that stage's input. To continue with another
// stage, a command writes its name to the file that TUSK_GO_TO names. An empty line ends the
// pipeline.
//
// To spawn children, a command appends them to the file that TUSK_CHILDREN names, as JSON objects
// that tusk.ParseChild reads, one a line. They are enqueued if the command exits with status 0. A
// child for a queue that is not among ChildQueues fails the attempt. If a line is {"wait":true},
// the task then waits for the children and runs again when they have ended, with their outcomes in
// TUSK_INPUTS. A command that waits and also writes to TUSK_GO_TO discards the task.
func Command(m *tusk.Mux, kind string, argv []string, o *CommandOptions) {
	if o == nil {
		o = &CommandOptions{}
	}
	var handler func(ctx context.Context, t *tusk.Task[json.RawMessage]) error
	if len(argv) > 0 && argv[0] != "" {
		handler = func(ctx context.Context, t *tusk.Task[json.RawMessage]) error { return o.run(ctx, t, argv) }
	}
	tusk.HandleKind(m, kind, handler, tusk.WithPipeline())
}

func (o *CommandOptions) run(ctx context.Context, t *tusk.Task[json.RawMessage], argv []string) error {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Stdin, c.Env = bytes.NewReader(t.Args), environment(t, o.Env, nil)
	next, err := fileFor(c, "TUSK_GO_TO", "tusk-go-to-")
	if err != nil {
		return err
	}
	defer os.Remove(next)
	children, err := fileFor(c, "TUSK_CHILDREN", "tusk-children-")
	if err != nil {
		return err
	}
	defer os.Remove(children)
	if err := runWithInputs(ctx, t, c); err != nil {
		return err
	}
	longer, done := run.Linger(ctx)
	defer done()
	waits, err := o.spawn(longer, t, children)
	if err != nil {
		return err
	}
	stage, jumps, err := goTo(next)
	switch {
	case err != nil:
		return err
	case waits && jumps:
		return tusk.Discard(errors.New("TUSK_GO_TO: a task that waits for its children cannot go to a stage"))
	case waits:
		return tusk.Wait()
	case jumps:
		return tusk.GoTo(stage)
	}
	return nil
}

// fileFor creates a file that a command may write to. A variable of its environment names the file.
func fileFor(c *exec.Cmd, variable, prefix string) (name string, err error) {
	file, err := os.CreateTemp("", prefix)
	if err != nil {
		return "", err
	}
	c.Env = append(c.Env, variable+"="+file.Name())
	return file.Name(), file.Close()
}

// written opens a file that a command has written to or, as sed -i and mv do, replaced. If there is
// no such file, the error discards the task.
func written(variable, name string) (*os.File, error) {
	about, err := os.Lstat(name)
	if err == nil && !about.Mode().IsRegular() {
		err = fmt.Errorf("%s is no longer a regular file", name)
	}
	if err != nil {
		return nil, tusk.Discard(fmt.Errorf("%s: %w", variable, err))
	}
	return os.Open(name)
}

// goTo reads which stage the pipeline should continue with, if the command has named one.
func goTo(name string) (stage string, jumps bool, err error) {
	const most = 256
	file, err := written("TUSK_GO_TO", name)
	if err != nil {
		return "", false, err
	}
	defer file.Close()
	said, err := io.ReadAll(io.LimitReader(file, most))
	return strings.TrimSpace(string(said)), len(said) > 0, err
}

// runWithInputs is runCommand for a task that may have needed others.
func runWithInputs(ctx context.Context, t *tusk.Task[json.RawMessage], c *exec.Cmd) error {
	inputs, err := inputsFile(ctx, t)
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	if inputs != "" {
		defer os.Remove(inputs)
		c.Env = append(c.Env, "TUSK_INPUTS="+inputs)
	}
	return runCommand(ctx, t, c)
}

func runCommand(ctx context.Context, t *tusk.Task[json.RawMessage], c *exec.Cmd) error {
	stdout := &capped{limit: tusk.MaxOutputBytes}
	stderr := &lineLog{log: t.Logger()}
	c.Stdout, c.Stderr = stdout, stderr
	ownGroup(c)
	c.Cancel = func() error { return stopGroup(c.Process) }
	c.WaitDelay = killGrace
	runtime.LockOSThread() // see dieWithParent
	err := c.Start()
	if err == nil {
		run.WaitsFor(ctx, fmt.Sprintf("the command %.200q, process %d, has not ended", c.Path, c.Process.Pid))
		err = c.Wait()
		run.WaitsFor(ctx, "")
	}
	runtime.UnlockOSThread()
	if c.Process != nil {
		killGroup(c.Process)
	}
	stderr.flush()
	if output := bytes.TrimSpace(stdout.text); len(output) > 0 {
		kept, cut := asOutput(output, tusk.MaxOutputBytes)
		record(t, kept, cut || stdout.more)
	}
	return verdict(ctx, c, err, stderr.last)
}

// verdict turns the end of a command into the end of an attempt.
func verdict(ctx context.Context, c *exec.Cmd, err error, last string) error {
	if c.ProcessState != nil && c.ProcessState.Success() {
		return nil // even if it was told to stop; what it left running has been killed
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err // it could not be started
	}
	text := exit.Error()
	if exit.ExitCode() == ExitRetry {
		text += " (to be retried)"
	}
	if last != "" {
		text += ": " + last
	}
	if exit.ExitCode() == ExitDiscard {
		return tusk.Discard(errors.New(text))
	}
	return errors.New(text)
}

// harmless are the variables that every command gets from the worker.
var harmless = []string{"PATH", "HOME", "SHELL", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"}

// environment returns the environment of a command: variables of the worker that are harmless or
// listed, then those that the task gives, then those that describe the task.
func environment(t *tusk.Task[json.RawMessage], listed []string, given map[string]string) []string {
	all := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return !slices.Contains(harmless, name) && !strings.HasPrefix(name, "LC_") && !slices.Contains(listed, name)
	})
	for name, value := range given {
		all = append(all, name+"="+value)
	}
	return append(all,
		"TUSK_TASK_ID="+t.ID.String(),
		"TUSK_TASK_KIND="+t.Kind,
		"TUSK_TASK_QUEUE="+t.Queue,
		"TUSK_TASK_ATTEMPT="+strconv.Itoa(t.Attempt),
		"TUSK_TASK_TENANT="+t.Tenant)
}

// capped keeps the first limit bytes that are written to it.
type capped struct {
	limit int
	text  []byte
	more  bool
}

func (c *capped) Write(p []byte) (int, error) {
	keep := min(len(p), c.limit-len(c.text))
	c.text = append(c.text, p[:keep]...)
	c.more = c.more || keep < len(p)
	return len(p), nil
}

// lineLog logs what is written to it, line by line.
type lineLog struct {
	log  *slog.Logger
	rest []byte
	last string // the last line that was not empty
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) > maxLine {
			end = maxLine
			l.line(l.rest[:end])
			l.rest = l.rest[end:]
			continue
		}
		if end < 0 {
			return len(p), nil
		}
		l.line(l.rest[:end])
		l.rest = l.rest[end+1:]
	}
}

func (l *lineLog) flush() {
	l.line(l.rest)
	l.rest = nil
}

func (l *lineLog) line(text []byte) {
	if line := strings.TrimSpace(string(text)); line != "" {
		l.last = line
		l.log.Info(line)
	}
}
