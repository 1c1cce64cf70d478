//go:build unix

package storm

import (
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// rage makes faults strike, one after another, until the storm has lasted long enough and enough tasks have
// completed.
func (s *storm) rage() {
	began := time.Now()
	for (time.Since(began) < s.lasts || s.fewer()) && !s.t.Failed() {
		f := s.draw()
		s.log.write(event{Op: opFault, Text: f.code + " " + f.name})
		s.mu.Lock()
		s.struck[f.code]++
		s.mu.Unlock()
		if err := f.strike(s); err != nil {
			s.t.Logf("%s %s: %v", f.code, f.name, err)
		}
		s.log.write(event{Op: opCalm, Text: f.code + " " + f.name})
		time.Sleep(time.Duration(100+s.random.IntN(600)) * time.Millisecond)
	}
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, end := range pending {
		end()
	}
}

// fewer reports whether too few tasks have completed for the storm to end.
func (s *storm) fewer() bool { return s.enough > 0 && s.completed() < s.enough }

// draw picks a fault that the ground supports.
func (s *storm) draw() *fault {
	var all []*fault
	for i := range s.faults {
		if f := &s.faults[i]; f.rages(s.ground.name) && mayStrike(f.code) && s.can(f.code) {
			for range f.weight {
				all = append(all, f)
			}
		}
	}
	if len(all) == 0 {
		s.t.Fatalf("%s=%s names no fault that %s has", envFaults, os.Getenv(envFaults), s.ground.name)
	}
	return all[s.random.IntN(len(all))]
}

// mayStrike reports whether the environment allows a fault.
func mayStrike(code string) bool {
	only := strings.Split(os.Getenv(envFaults), ",")
	return only[0] == "" || slices.Contains(only, code)
}

// can reports whether the ground has what a fault needs.
func (s *storm) can(code string) bool {
	switch code {
	case "F8", "F39", "F53": // these take long
		return s.long
	case "F52":
		return !s.ground.cluster.split.Load()
	case "F6":
		return s.ground.disk != nil
	case "F16":
		return s.ground.clock != nil
	case "F17":
		return s.wrong != ""
	case "F41", "F42":
		return s.objects != nil
	}
	return true
}

// later ends a fault after a while, or at the end of the storm.
func (s *storm) later(d time.Duration, end func()) {
	once := sync.OnceFunc(end)
	time.AfterFunc(d, once)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, once)
}

// any picks a process with a role.
func (s *storm) any(name string) *process {
	s.replace()
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	var all []*process
	for _, p := range s.fleet.living {
		if p.role.name == name {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		s.t.Fatalf("no %s is left", name)
	}
	return all[s.random.IntN(len(all))]
}

// leader returns the worker that was the last to record that it leads.
func (s *storm) leader() *process {
	var last int64
	best := s.any("worker")
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	for _, p := range s.fleet.living {
		if at := lastLed(p.history()); p.role.name == "worker" && at > last {
			last, best = at, p
		}
	}
	return best
}

// replace replaces workers that a task has killed.
func (s *storm) replace() (n int) {
	s.fleet.mu.Lock()
	all := slices.Clone(s.fleet.living)
	s.fleet.mu.Unlock()
	for _, p := range all {
		if p.killedByTask() {
			s.fleet.gone(p)
			s.count("end of a worker by its task")
			s.fleet.start(s.worker())
			n++
		}
	}
	return n
}
