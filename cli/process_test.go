package cli

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// playTusk is set in the environment of a test binary that acts as the command.
const playTusk = "PLAY_TUSK"

// playPatience is how long such a command leaves an archive to another process that is silent. The default is a minute.
const playPatience = "PLAY_PATIENCE"

// process is the command in its own process.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	said strings.Builder // output on stderr
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// start runs the command in its own process, which ends with the test.
func (sh *shell) start(args ...string) *process {
	sh.t.Helper()
	p := &process{t: sh.t, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), append(sh.env, playTusk+"=1")...)
	p.cmd.Stderr = p
	p.begin()
	return p
}

// begin starts the process, which ends with the test.
func (p *process) begin() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
}

// await waits until the output of the process matches the pattern, and returns the pattern's first group.
func (p *process) await(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(p.t, func() bool { return re.MatchString(p.log()) },
		func() string { return "no " + pattern + " in " + p.log() })
	return re.FindStringSubmatch(p.log())[re.NumSubexp()]
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// status waits until the process has ended and returns its exit status.
func (p *process) status() int {
	p.t.Helper()
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool, otherwise func() string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
	}
}

func TestAReaderThatHasSeenEnoughIsNoFailure(t *testing.T) {
	sh := newShell(t)
	sh.fill("full", 3000)
	p := &process{t: t, cmd: exec.Command(os.Args[0], "tasks", "list", "--all")}
	p.cmd.Env = append(os.Environ(), append(sh.env, playTusk+"=1")...)
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if status := p.status(); status != 0 || p.cmd.ProcessState.String() != "exit status 0" {
		t.Errorf("%s, %s", p.cmd.ProcessState, p.log())
	}
	if said := p.log(); strings.Contains(said, "error[") {
		t.Errorf("it said %s", said)
	}
}
