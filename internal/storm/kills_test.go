//go:build unix

package storm

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// envKills asks for the kills: workers, backends and servers, such as 200,200,20.
const envKills = "TUSK_TEST_KILLS"

// oneByPID: one in so many of PostgreSQL's backends dies by SIGKILL of its process,
// which has the server take all others down and recover; the rest are terminated.
const oneByPID = 10

// TestKillsOfWorkersBackendsAndTheServer kills until each of them was killed so often
// while producers and workers go on, and then has everything drain and the history of
// all processes checked, as a storm has.
func TestKillsOfWorkersBackendsAndTheServer(t *testing.T) {
	var workers, backends, servers int
	if text := os.Getenv(envKills); text == "" {
		t.Skip("takes a quarter of an hour for each engine: " + envKills + "=200,200,20")
	} else if _, err := fmt.Sscanf(text, "%d,%d,%d", &workers, &backends, &servers); err != nil {
		t.Fatalf("%s=%s: want three numbers, of workers, backends and servers: %v", envKills, text, err)
	}
	for _, engine := range []string{"postgres", "mysql"} {
		t.Run(engine, func(t *testing.T) { killAll(t, engine, workers, backends, servers) })
	}
}

func killAll(t *testing.T, engine string, workers, backends, servers int) {
	s := newStorm(t, engine)
	s.settings()
	for range 3 {
		s.fleet.start(s.worker())
	}
	for range 2 {
		s.fleet.start(s.role("producer"))
	}
	s.measure()
	began := time.Now()
	for _, strike := range s.kills(workers, backends, servers) {
		for !strike() && !t.Failed() { // until there is somebody to be killed
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Duration(300+s.random.IntN(900)) * time.Millisecond)
	}
	s.lasts = time.Since(began).Round(time.Second)
	t.Logf("killed for %v", s.lasts)
	s.drain()
	s.check()
	s.report()
}

// kills returns the kills in a random order. Each says whether it met somebody.
func (s *storm) kills(workers, backends, servers int) (all []func() bool) {
	for range workers {
		all = append(all, func() bool {
			s.struck["F1"]++
			return s.kill(s.any("worker")) == nil
		})
	}
	for i := range backends {
		all = append(all, func() bool {
			if i%oneByPID == 0 && s.ground.pg != nil {
				return s.killed("F5", "kill of a backend", killBackend)
			}
			return s.killed("F7", "end of a session", terminate)
		})
	}
	for range servers {
		all = append(all, func() bool { return s.killed("F5", "kill of the server", killServer) })
	}
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// killed strikes, waits until the server answers again, and reports whether somebody
// was there to be killed.
func (s *storm) killed(code, what string, strike func(*storm) error) bool {
	before := s.counts[what]
	if err := strike(s); err != nil {
		s.t.Logf("%s: %v", what, err)
		s.counts[what] = before
	}
	for end := time.Now().Add(time.Minute); s.ground.admin.PingContext(context.Background()) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("the server does not come back")
		}
	}
	if s.counts[what] == before {
		return false
	}
	s.struck[code]++
	return true
}

// terminate ends one session.
func terminate(s *storm) error {
	pid, err := s.session()
	if err != nil || pid == 0 {
		return err
	}
	s.count("end of a session")
	if s.ground.my != nil {
		return s.ground.exec(context.Background(), fmt.Sprintf("kill %d", pid))
	}
	return s.ground.exec(context.Background(), "select pg_terminate_backend($1)", pid)
}
