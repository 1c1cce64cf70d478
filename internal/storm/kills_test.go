//go:build unix

package storm

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// envKills sets the number of kills of workers, backends and servers, and of cuts of the network, such as
// 400,50,100,100.
const envKills = "TUSK_TEST_KILLS"

// oneByPID says that one in ten of PostgreSQL's backends is killed with SIGKILL, which makes the server take down all
// others and recover. The rest are terminated.
const oneByPID = 10

// TestKillsOfWorkersBackendsAndTheServer kills each of them as often as envKills says, while producers and workers
// continue. Then everything drains, and the history of all processes is checked as after a storm.
func TestKillsOfWorkersBackendsAndTheServer(t *testing.T) {
	var k tally
	if text := os.Getenv(envKills); text == "" {
		t.Skip("takes ten minutes for each engine: make kills")
	} else if _, err := fmt.Sscanf(text, "%d,%d,%d,%d", &k.workers, &k.backends, &k.servers, &k.cuts); err != nil {
		t.Fatalf("%s=%s: want four numbers, of workers, backends, servers and cuts: %v", envKills, text, err)
	}
	for _, name := range []string{"postgres", "pgbouncer", "mysql"} {
		t.Run(name, func(t *testing.T) { killAll(t, name, k) })
	}
}

// tally is how many of each to kill or cut.
type tally struct{ workers, backends, servers, cuts int }

func killAll(t *testing.T, name string, k tally) {
	s := newStorm(t, name)
	s.settings()
	for range 3 {
		s.fleet.start(s.worker())
	}
	for range 2 {
		s.fleet.start(s.role("producer"))
	}
	s.measure()
	began := time.Now()
	for _, strike := range s.kills(k) {
		for !strike() && !t.Failed() { // until there is something to kill
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Duration(100+s.random.IntN(500)) * time.Millisecond)
	}
	s.lasts = time.Since(began).Round(time.Second)
	t.Logf("killed for %v", s.lasts)
	s.drain()
	s.check()
	s.report()
}

// kills returns the kills in random order. Each reports whether it killed something.
func (s *storm) kills(k tally) (all []func() bool) {
	for range k.workers {
		all = append(all, func() bool {
			s.struck["F1"]++
			return s.kill(s.any("worker")) == nil
		})
	}
	for i := range k.backends {
		all = append(all, func() bool {
			if i%oneByPID == 0 && s.ground.pg != nil {
				return s.killed("F5", "kill of a backend", killBackend)
			}
			return s.killed("F7", "end of a session", terminate)
		})
	}
	for range k.cuts {
		all = append(all, func() bool { return s.cutSome() })
	}
	for range k.servers {
		all = append(all, func() bool { return s.killed("F5", "kill of the server", killServer) })
	}
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// cutSome resets the connections of all processes, or of one.
func (s *storm) cutSome() bool {
	s.struck["F10"]++
	s.count(networkCut)
	if s.random.IntN(3) > 0 {
		s.ground.proxy.cut(every)
		return true
	}
	p := s.any("worker")
	s.ground.proxy.cut(func(w *wire) bool { return w.door == p.door })
	return true
}

// killed strikes, waits until the server answers again, and reports whether there was something to kill.
func (s *storm) killed(code, what string, strike func(*storm) error) bool {
	before := s.counts[what]
	if err := strike(s); err != nil {
		s.t.Logf("%s: %v", what, err)
		s.counts[what] = before
	}
	end := time.Now().Add(time.Minute)
	for ; s.ground.admin.PingContext(context.Background()) != nil; time.Sleep(50 * time.Millisecond) {
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
