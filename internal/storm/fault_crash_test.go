//go:build unix

package storm

import (
	"slices"
	"syscall"
	"time"
)

// crash marks in the history that the server lost what it had not synced yet.
const crash = "crash"

func killServer(s *storm) error {
	s.count("kill of the server")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	return s.ground.killServer(func() error { return nil })
}

// killBackends kills several backends, one after another.
func killBackends(s *storm) error {
	for range 3 + s.random.IntN(3) {
		if err := killBackend(s); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // for the other backends to be taken down
	}
	return nil
}

// killBackend kills the process of one backend, which makes PostgreSQL take down all others and recover.
func killBackend(s *storm) error {
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	// The server may still be recovering from the last kill.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		pid, err := s.session()
		if pid != 0 && err == nil && syscall.Kill(int(pid), syscall.SIGKILL) == nil {
			s.count("kill of a backend")
			return nil
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// cutPower cuts the disk's power, and so stops the servers that have a database on it.
func cutPower(s *storm) error {
	s.count("power cut")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	if err := s.ground.disk.keep("*.par"); err != nil { // MariaDB does not sync its *.par files
		return err
	}
	if err := s.ground.disk.cut(); err != nil {
		return err
	}
	if s.ground.engine != "sqlite" {
		return s.ground.killServer(s.ground.disk.restore)
	}
	s.replace()
	var roles []role
	for _, p := range slices.Clone(s.fleet.living) {
		roles = append(roles, p.role)
		s.fleet.kill(p)
	}
	s.close()
	s.ground.admin.Close()
	if err := s.ground.disk.restore(); err != nil {
		return err
	}
	if err := s.connect(s.t.Context()); err != nil {
		return err
	}
	for _, r := range roles {
		s.fleet.start(s.role(r.name))
	}
	var err error
	s.ground.admin, err = engines[s.ground.engine].pool(s.ground.dsn)
	return err
}
