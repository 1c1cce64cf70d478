//go:build unix

package storm

import "time"

// failover marks in the history that acknowledged writes may have been lost with the server.
const failover = "failover"

// failOver kills the server. An asynchronous standby, which lacks the last moments, takes its place.
func failOver(s *storm) error {
	s.count("failover")
	defer s.log.write(event{Op: opCalm, Text: failover})
	return with(s.ground.environment(), func() error {
		return s.ground.pg.FailOver(func() {
			s.log.write(event{Op: opFault, Text: failover})
		}, func() {
			time.Sleep(time.Duration(300+s.random.IntN(2000)) * time.Millisecond)
		})
	})
}
