//go:build unix

package storm

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/tuskqueue/tusk"
)

// kill kills a process and replaces it.
func (s *storm) kill(p *process) error {
	s.fleet.kill(p)
	s.count("kill of a " + p.role.name)
	s.fleet.start(s.role(p.role.name))
	return nil
}

// pause stops a process for longer than its lease and then continues it.
func (s *storm) pause(p *process) error {
	p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(stormLease + stormLease/2)
	p.cmd.Process.Signal(syscall.SIGCONT)
	s.count("pause")
	return nil
}

// stop asks a worker to end, and expects it to end in good order.
func (s *storm) stop(p *process, times int) error {
	for range times {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	s.count("stop")
	select {
	case <-p.ended:
	case <-time.After(40 * time.Second):
		s.violation("F3", "a worker that was told to stop goes on: %s", p.tail())
		s.fleet.kill(p)
	}
	s.fleet.gone(p)
	s.fleet.start(s.worker())
	return nil
}

// startWithWrongClock replaces a worker by one whose clock is a day ahead or behind.
func startWithWrongClock(s *storm) error {
	s.fleet.kill(s.any("worker"))
	s.count("kill of a worker")
	r := s.worker()
	r.program, r.env = s.wrong, []string{wrongBy + "=" + []string{"ahead", "behind"}[s.random.IntN(2)]}
	s.fleet.start(r)
	return nil
}

// lookAlike replaces a worker by one with the same process id and host name, if the system has namespaces.
func lookAlike(s *storm) error {
	s.fleet.kill(s.any("worker"))
	s.count("kill of a worker")
	r := s.worker()
	r.alike = true
	s.fleet.start(r)
	return nil
}

func (s *storm) enqueueOne(kind string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	_, err := s.client.Enqueue(ctx, kindOf{kind: kind}, &tusk.Options{Queue: queueOpen, Priority: -1, Timeout: time.Second,
		Backoff: tusk.ConstantBackoff(100 * time.Millisecond)})
	return err
}

// enqueueDeadly enqueues a task that ends its process, and waits for that.
func (s *storm) enqueueDeadly(kind string) error {
	if err := s.enqueueOne(kind); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); s.replace() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no worker has run the task of kind %s within 10s", kind)
		}
	}
	return nil
}
