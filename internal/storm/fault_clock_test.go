//go:build unix

package storm

import (
	"context"
	"fmt"
	"time"
)

// mostForward is how often the clock may go forward by an hour. Finished tasks are kept for longer than that.
const mostForward = 8

// setForward moves the clock forward by an hour: leases and terms expire, waiting tasks are due, and the schedule has
// missed an hour.
func setForward(s *storm) error {
	if s.ground.clock.get() >= mostForward*time.Hour {
		return setBack(s)
	}
	s.count("clock forward")
	return s.setClock(s.ground.clock.get() + time.Hour)
}

// setBack sets the clock back for longer than a lease lasts, and forward again. It kills the leader and a worker;
// both must be replaced quickly.
func setBack(s *storm) error {
	s.count("clock back")
	was := s.ground.clock.get()
	if err := s.setClock(was - 10*time.Minute); err != nil {
		return err
	}
	leader := s.leader()
	began := instant()
	s.kill(leader)
	for end := time.Now().Add(15 * time.Second); s.ledSince(began) == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.violation("F16", "nobody leads %v after the clock was set back and the leader was killed", 15*time.Second)
			break
		}
	}
	return s.setClock(was)
}

// ledSince returns a worker that has recorded after a given time that it leads.
func (s *storm) ledSince(at int64) *process {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	for _, p := range s.fleet.living {
		if p.role.name == "worker" && lastLed(p.history()) > at {
			return p
		}
	}
	return nil
}

// setClock sets the server's clock and waits until the server reports the new time.
func (s *storm) setClock(ahead time.Duration) error {
	s.log.write(event{Op: opClock, Asked: int64(ahead)})
	defer s.log.write(event{Op: opClock, Asked: int64(ahead)})
	if err := s.ground.clock.set(ahead); err != nil {
		return err
	}
	ask := "select extract(epoch from clock_timestamp())::float8"
	if s.ground.my != nil {
		ask = "select cast(unix_timestamp(sysdate(6)) as double)"
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		var now float64
		err := s.ground.admin.QueryRowContext(ctx, ask).Scan(&now)
		cancel()
		says := time.Duration(now*1e9 - float64(instant()))
		if err == nil && (says-ahead).Abs() < 5*time.Second {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server's clock is %v ahead, not %v: %w", says, ahead, err)
		}
	}
}
