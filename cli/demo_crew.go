package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// newDemoWorkerCommand is the worker that the demo starts three times. It works until its standard input ends, so
// that it does not outlive the demo.
func newDemoWorkerCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-worker QUEUE",
		Short:  "A worker of tusk demo",
		Hidden: true,
		Args:   between(1, 1, "QUEUE"),
		RunE:   func(cmd *cobra.Command, args []string) error { return app.demoWork(cmd.Context(), args[0]) },
	}
}

func (app *App) demoWork(ctx context.Context, queue string) error {
	client, closeStore, err := app.Client(ctx, existing)
	if err != nil {
		return err
	}
	defer closeStore()
	worker, err := tusk.NewWorker(client, demoMux(), &tusk.WorkerConfig{Queues: []string{queue}, Concurrency: 16,
		ReadAhead: 100, Lease: demoLease, Beat: demoLease / 6, Poll: 200 * time.Millisecond, ShutdownTimeout: 2 * time.Second,
		NeverLead: true})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, app.In) // stdin ends with the demo, however that ends
	}()
	return worker.Run(ctx)
}

// demoCrew is the set of worker processes.
type demoCrew struct {
	mu      sync.Mutex
	members []*demoMember
}

type demoMember struct {
	process *exec.Cmd
	stdin   io.Closer
	stderr  bytes.Buffer
	ended   chan struct{}
	killed  int // how many tasks it held when it was killed; 0 if it was not killed
}

func (m *demoMember) pid() int { return m.process.Process.Pid }

// start starts the processes and waits until all have registered.
func (c *demoCrew) start(ctx context.Context, d *demo) error {
	for range demoWorkers {
		m, err := startMember(d)
		if err != nil {
			c.stop()
			return fmt.Errorf("demo: start a worker: %w", err)
		}
		c.members = append(c.members, m)
	}
	for {
		alive := 0
		for _, m := range c.members {
			if _, err := d.workerOf(ctx, m); err == nil {
				alive++
			}
			select {
			case <-m.ended:
				c.stop()
				return fmt.Errorf("demo: a worker has ended: %s", bytes.TrimSpace(m.stderr.Bytes()))
			default:
			}
		}
		if alive == len(c.members) {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			c.stop()
			return context.Cause(ctx)
		}
	}
}

func startMember(d *demo) (*demoMember, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &demoMember{ended: make(chan struct{})}
	m.process = exec.Command(self, "demo-worker", d.queue, "--log-level", "error")
	for name, value := range d.app.env {
		m.process.Env = append(m.process.Env, name+"="+value)
	}
	// Not as an argument: the password in it would show in a process list.
	m.process.Env = append(m.process.Env, "TUSK_DATABASE_URL="+d.app.flags.db)
	m.process.Stderr = &m.stderr
	if m.stdin, err = m.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := m.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.ended)
		_ = m.process.Wait() // the results of its tasks show how it ended
	}()
	return m, nil
}

var errNoWorker = errors.New("no such worker")

// workerOf finds the worker of a process in the database.
func (d *demo) workerOf(ctx context.Context, m *demoMember) (store.Worker, error) {
	workers, err := d.client.Workers(ctx)
	if err != nil {
		return store.Worker{}, err
	}
	host, _ := os.Hostname()
	for _, w := range workers {
		if w.PID == m.pid() && w.Host == host && len(w.Queues) == 1 && w.Queues[0] == d.queue {
			return w, nil
		}
	}
	return store.Worker{}, errNoWorker
}

// kill kills the busiest process while it holds tasks, if possible. It stops the process first, so that it cannot
// finish tasks between the check and the kill.
func (c *demoCrew) kill(ctx context.Context, d *demo) (pid, held int, err error) {
	var victim *demoMember
	most := 0
	for _, m := range c.members {
		if w, err := d.workerOf(ctx, m); err == nil && w.Running > most {
			victim, most = m, w.Running
		}
	}
	if victim == nil {
		return 0, 0, nil
	}
	if err := pause(victim.process.Process); err != nil {
		return 0, 0, fmt.Errorf("demo: %w", err)
	}
	sleep(ctx, 50*time.Millisecond) // a signal takes a moment
	w, err := d.workerOf(ctx, victim)
	if err == nil {
		held, err = d.heldBy(ctx, w.ID)
	}
	if err != nil || held == 0 {
		return 0, 0, resume(victim.process.Process)
	}
	c.mu.Lock()
	victim.killed = held
	c.mu.Unlock()
	return victim.pid(), held, victim.process.Process.Kill()
}

func (d *demo) heldBy(ctx context.Context, worker tusk.ID) (int, error) {
	tasks, err := d.client.List(ctx, tusk.Filter{Queues: []string{d.queue}, States: []tusk.State{tusk.StateRunning},
		Limit: store.MaxPage})
	held := 0
	for _, t := range tasks {
		if t.Worker == worker {
			held++
		}
	}
	return held, err
}

// killedHolding returns how many tasks a member held when it was killed.
func (c *demoCrew) killedHolding(m *demoMember) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.killed
}

// stop asks the processes to end, and kills those that do not.
func (c *demoCrew) stop() {
	for _, m := range c.members {
		m.stdin.Close()
	}
	for _, m := range c.members {
		select {
		case <-m.ended:
		case <-time.After(5 * time.Second):
			_ = m.process.Process.Kill()
			<-m.ended
		}
	}
}
