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

// playRole is set in the environment of a test binary that plays another role.
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
	Name                 string // of its sessions, if the server shows names
	Seed                 uint64
	Backlog              int64  // number of unfinished tasks at which producers wait
	Place                string // of the archive and of large args; empty if none
}

// over is the name of a file that exists once no more tasks are to be enqueued.
const over = "over"

func (p part) isOver() bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(p.History), over))
	return err == nil
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
	name string // STORM_ROLE
	args []string
	part *part // replaces args; each process gets its own history
	// In its own namespaces, with the process id and host name of other processes.
	alike   bool
	program string // empty means this test binary
	env     []string
}

// process is a live process.
type process struct {
	role  role
	cmd   *exec.Cmd
	log   string // file with its stderr
	born  time.Time
	ended chan struct{}
	err   error // how it ended; read only after ended
	kill  sync.Mutex
	door  *door // to the server; nil if it needs none
}

// fleet is a set of processes in which every process that dies is replaced.
type fleet struct {
	t    *testing.T
	dir  string
	seed uint64
	// Opens a door for a process, which its part then names. Nil if none is needed.
	open func(*part) (*door, error)

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

// victim picks the older of two processes, so that most have begun to work.
func (f *fleet) victim() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, b := f.living[rand.IntN(len(f.living))], f.living[rand.IntN(len(f.living))]
	if b.born.Before(a.born) {
		return b
	}
	return a
}

// kill ends a process with SIGKILL and waits until it is gone.
func (f *fleet) kill(p *process) {
	f.t.Helper()
	p.kill.Lock()
	defer p.kill.Unlock()
	if !f.lives(p) {
		return // it is gone already
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

// said returns all that a process has written to stderr.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// history returns the file that it writes.
func (p *process) history() string { return strings.TrimSuffix(p.log, ".log") + ".history" }

// tail returns the end of its stderr.
func (p *process) tail() string {
	const most = 2000
	text := p.said()
	return strings.TrimSpace(text[max(0, len(text)-most):])
}

// deadly is what a handler prints before it ends its process.
const deadly = "deadly: "

// killedByTask reports whether a handler ended the process on purpose.
func (p *process) killedByTask() bool {
	select {
	case <-p.ended:
		return strings.Contains(p.said(), deadly)
	default:
		return false
	}
}
