//go:build unix

package storm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/cli"
)

// playRole is set in the environment of a test binary that plays another part.
const playRole = "STORM_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(playRole) {
	case "tusk":
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	case "enqueuer":
		os.Exit(playEnqueuer(os.Args[1], os.Args[2]))
	case "worker":
		os.Exit(play(playWorker))
	case "serial":
		os.Exit(play(playSerialWorker))
	case "producer":
		os.Exit(play(playProducer))
	case roleArchiver:
		os.Exit(play(playArchiver))
	case roleCouchbase:
		os.Exit(playCouchbase(os.Args[1]))
	}
	os.Exit(m.Run())
}

// part is what a process of the storm has to know, as JSON in its first argument.
type part struct {
	Engine, DSN, History string
	Name                 string // of its sessions, where the server shows one
	Seed                 uint64
	Backlog              int64  // of unfinished tasks at which producers wait
	Place                string // of the archive, and of large args; empty: there is none
}

func play(as func(part) error) int {
	var p part
	err := json.Unmarshal([]byte(os.Args[1]), &p)
	if err == nil {
		err = as(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// role is a kind of process that the storm keeps alive.
type role struct {
	name    string // STORM_ROLE
	args    []string
	part    *part  // in place of args; each process gets a history of its own
	alike   bool   // with the process id and host name of others, in namespaces of its own
	program string // empty: this test binary
	env     []string
}

// process is one that lives now.
type process struct {
	role  role
	cmd   *exec.Cmd
	log   string // file of its stderr
	born  time.Time
	ended chan struct{}
	err   error // how it ended; read after ended
	kill  sync.Mutex
	door  *door // to the server; nil: there is none
}

// fleet is a set of processes in which each that dies is replaced.
type fleet struct {
	t    *testing.T
	dir  string
	seed uint64
	open func(*part) (*door, error) // a door for a process, which its part then names; nil: none is needed

	mu     sync.Mutex
	count  int
	living []*process
}

func (f *fleet) start(r role) *process {
	f.t.Helper()
	f.mu.Lock()
	f.count++
	n := f.count
	p := &process{role: r, log: filepath.Join(f.dir, fmt.Sprintf("%04d-%s.log", n, r.name)), born: time.Now(),
		ended: make(chan struct{})}
	f.mu.Unlock()
	log, err := os.Create(p.log)
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	if r.program != "" {
		self = r.program
	}
	if r.part != nil {
		r.part.History = p.history()
		r.part.Seed = f.seed + uint64(n)
		if f.open != nil {
			if p.door, err = f.open(r.part); err != nil {
				f.t.Fatal(err)
			}
		}
		text, err := json.Marshal(r.part)
		if err != nil {
			f.t.Fatal(err)
		}
		r.args = []string{string(text)}
	}
	p.cmd = exec.Command(self, r.args...)
	if r.alike {
		imitate(p.cmd)
	}
	p.cmd.Dir = f.dir
	p.cmd.Env = append(append(os.Environ(), playRole+"="+r.name), r.env...)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	f.mu.Lock()
	f.living = append(f.living, p)
	f.mu.Unlock()
	return p
}

// victim picks the elder of two, so that most have begun to work.
func (f *fleet) victim() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, b := f.living[rand.IntN(len(f.living))], f.living[rand.IntN(len(f.living))]
	if b.born.Before(a.born) {
		return b
	}
	return a
}

// kill ends a process by SIGKILL and waits until it is gone.
func (f *fleet) kill(p *process) {
	f.t.Helper()
	p.kill.Lock()
	defer p.kill.Unlock()
	if !f.lives(p) {
		return // somebody else did it
	}
	killed := p.cmd.Process.Kill()
	f.gone(p)
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); (killed != nil || !ok ||
		status.Signal() != syscall.SIGKILL) && !p.killedByTask() {
		f.t.Errorf("%v ended by itself: %v: %s", p.role, p.err, p.tail())
	}
}

func (f *fleet) gone(p *process) {
	<-p.ended
	if p.door != nil {
		p.door.close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, other := range f.living {
		if other == p {
			f.living = append(f.living[:i], f.living[i+1:]...)
			return
		}
	}
}

func (f *fleet) lives(p *process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.living, p)
}

func (f *fleet) killAll() {
	f.t.Helper()
	for _, p := range append([]*process(nil), f.living...) {
		f.kill(p)
	}
}

// said is all that a process has said on stderr.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// history is the file that it writes.
func (p *process) history() string { return strings.TrimSuffix(p.log, ".log") + ".history" }

// tail is the end of it.
func (p *process) tail() string {
	const most = 2000
	text := p.said()
	return strings.TrimSpace(text[max(0, len(text)-most):])
}

// deadly is what a handler says before it ends its process.
const deadly = "deadly: "

// killedByTask reports whether a process has ended because a handler wanted it to.
func (p *process) killedByTask() bool {
	select {
	case <-p.ended:
		return strings.Contains(p.said(), deadly)
	default:
		return false
	}
}
