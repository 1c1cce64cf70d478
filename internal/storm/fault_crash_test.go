//go:build unix

package storm

import (
	"slices"
	"syscall"
	"time"
)

// crash marks in the history when the server lost what was not yet written through.
const crash = "crash"

func killServer(s *storm) error {
	s.count("kill of the server")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	return s.ground.killServer(func() error { return nil })
}

// killBackends kills some backends, one after another.
func killBackends(s *storm) error {
	for range 3 + s.random.IntN(3) {
		if err := killBackend(s); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // for the others to be taken down
	}
	return nil
}

// killBackend kills one backend by its process, which makes PostgreSQL take all
// others down and recover.
func killBackend(s *storm) error {
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	// until it has recovered from the last one
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

// cutPower takes the power from the disk, and so from whoever keeps a database on it.
func cutPower(s *storm) error {
	s.count("power cut")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	if err := s.ground.disk.keep("*.par"); err != nil { // MariaDB leaves what names a table's partitions unsynced
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
