//go:build unix

package storm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// patience is how long nothing may move at the end. Couchbase's leader finds within twenty seconds what a crash has
// left in no page.
func (g *ground) patience() time.Duration {
	if g.cb != nil {
		return 40 * time.Second
	}
	return 15 * time.Second
}

// drain waits until everything has ended, without further faults and within a limited time.
func (s *storm) drain() {
	if p := s.ground.proxy; p != nil {
		p.deaf.Store(true) // the last tasks must be found without notifications
		time.Sleep(time.Second)
	}
	for _, p := range slices.Clone(s.fleet.living) {
		if p.role.name == "producer" {
			s.fleet.kill(p)
		}
	}
	if err := os.WriteFile(filepath.Join(s.fleet.dir, over), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	// The remaining workers may all serve only one queue; of two consecutive workers at most one does.
	for range 2 {
		s.fleet.start(s.worker())
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) { // the server may be recovering from the last fault
		err := s.client.RemoveSchedule(s.t.Context(), "clock")
		if err == nil || errors.Is(err, tusk.ErrNotFound) {
			break
		}
		if time.Since(began) > time.Minute {
			s.t.Fatal(err)
		}
	}
	s.callOff(s.finite) // a task that is due far in the future would hide an infinite one from the leader
	began := time.Now()
	s.log.write(event{Op: opCalm, Text: "drain"})
	for last, moved := int64(-1), began; ; time.Sleep(50 * time.Millisecond) {
		left, err := unfinished(s.t.Context(), s.client)
		if err != nil {
			s.t.Fatal(err)
		}
		hostile := s.hostileLeft()
		if left == int64(len(hostile)) { // only those are left
			s.callOff(hostile)
		}
		if s.replace() == 0 && left == 0 && s.release() == 0 {
			break
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if time.Since(moved) > s.ground.patience() {
			s.violation("I1", "%d unfinished tasks have not moved for %v: %s", left, s.ground.patience(), s.stuck())
			break
		}
	}
	s.t.Logf("all ended %v after the last fault", time.Since(began).Round(time.Millisecond))
	time.Sleep(3 * time.Second) // for the vitals of idle processes
	for _, p := range slices.Clone(s.fleet.living) {
		s.end(p)
	}
}

// end stops a worker that has nothing left to do. It must stop without an error.
func (s *storm) end(p *process) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if p.err != nil {
			s.violation("F3", "a worker that was told to stop ended with %v: %s", p.err, p.tail())
		}
		s.fleet.gone(p)
	case <-time.After(30 * time.Second):
		s.violation("F3", "a worker without work does not stop: %s", p.tail())
		s.fleet.kill(p)
	}
}

// release frees tasks from quarantine: they did not kill their workers.
func (s *storm) release() (released int) {
	for f := (tusk.Filter{States: []tusk.State{tusk.StateDiscarded}, Limit: store.MaxPage}); ; {
		page, err := s.client.List(s.t.Context(), f)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, task := range page {
			if strings.HasPrefix(task.Reason, "quarantined") && task.Kind != doKiller && !slices.Contains(s.hostile, task.ID) {
				released += s.retry(task.ID)
			}
		}
		if len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
	}
	s.mu.Lock()
	s.counts["release from quarantine"] += released
	s.mu.Unlock()
	return released
}

func (s *storm) retry(id tusk.ID) int {
	edited, err := s.client.Edit(s.t.Context(), []tusk.ID{id}, tusk.Change{Op: tusk.OpRetry})
	if err != nil {
		s.t.Fatal(err)
	}
	if edited[0].Result == store.Changed {
		return 1
	}
	return 0
}

func (s *storm) stuck() string {
	tasks, err := s.client.List(s.t.Context(), tusk.Filter{States: []tusk.State{tusk.StatePending, tusk.StateAvailable,
		tusk.StateRunning, tusk.StateRetryable, tusk.StateScheduled}, Limit: 3, Detail: true})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	text.WriteString(s.ground.activity(s.t.Context()))
	for _, t := range tasks {
		fmt.Fprintf(&text,
			"\n%s kind %s queue %s key %q partition %q %v attempt %d crashes %d run at %v claimed %v worker %v needs %v", t.ID,
			t.Kind, t.Queue, t.Key, t.Partition, t.State, t.Attempt, t.Crashes, t.RunAt, t.ClaimedAt, t.Worker, t.Detail.Needs)
	}
	return text.String()
}
