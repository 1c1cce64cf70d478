//go:build unix

package storm

import "time"

const networkCut = "cut of the network"

// cutNetwork resets all connections.
func cutNetwork(s *storm) error {
	s.count(networkCut)
	s.ground.proxy.cut(every)
	return nil
}

// cutOff stalls all traffic of one process for longer than its lease.
func (s *storm) cutOff(p *process) error {
	p.door.clogged.Store(true)
	time.Sleep(stormLease + stormLease/2)
	p.door.clogged.Store(false)
	s.count(networkCut)
	return nil
}

func (s *storm) clog(d time.Duration) error {
	s.count(networkCut)
	all := s.ground.proxy.all()
	for _, w := range all {
		w.clogged.Store(true)
	}
	time.Sleep(d)
	for _, w := range all {
		w.clogged.Store(false)
	}
	return nil
}

// swizzle stalls all connections and releases them one by one in another order.
func swizzle(s *storm) error {
	all := s.ground.proxy.all()
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, w := range all {
		w.clogged.Store(true)
		time.Sleep(10 * time.Millisecond)
	}
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, w := range all {
		w.clogged.Store(false)
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func flap(s *storm) error {
	for range 4 {
		s.ground.proxy.refuse.Store(true)
		s.count(networkCut)
		s.ground.proxy.cut(every)
		time.Sleep(300 * time.Millisecond)
		s.ground.proxy.refuse.Store(false)
		time.Sleep(300 * time.Millisecond)
	}
	return nil
}

func deafen(s *storm) error {
	s.ground.proxy.deaf.Store(true)
	time.Sleep(4 * time.Second)
	s.ground.proxy.deaf.Store(false)
	return nil
}

func slowDown(s *storm) error {
	s.ground.proxy.latency.Store(int64([]time.Duration{10, 50, 200}[s.random.IntN(3)] * time.Millisecond))
	time.Sleep(3 * time.Second)
	s.ground.proxy.latency.Store(0)
	return nil
}

func slice(s *storm) error {
	s.ground.proxy.sliced.Store(true)
	time.Sleep(2 * time.Second)
	s.ground.proxy.sliced.Store(false)
	return nil
}

func loseAnswers(s *storm) error {
	for range 1 + s.random.IntN(8) {
		s.ground.proxy.loseNext.Add(1)
		s.count("lost answer")
		time.Sleep(time.Duration(s.random.IntN(150)) * time.Millisecond)
	}
	return nil
}

// delayRequests delays requests. Some are of any sort; others are claims, which are repeated, so that the first
// request arrives after the second has been answered.
func delayRequests(s *storm) error {
	p := s.ground.proxy
	for range 2 + s.random.IntN(4) {
		late := &p.lateAsk
		if s.random.IntN(4) == 0 || s.ground.pg == nil {
			late = &p.lateNext
		}
		late.Add(1)
		s.count("late request")
		time.Sleep(time.Duration(300+s.random.IntN(500)) * time.Millisecond)
	}
	p.lateNext.Store(0)
	p.lateAsk.Store(0)
	return nil
}

// troubleCommits delays users' commits, and delays or loses their answers.
func troubleCommits(s *storm) error {
	s.count("trouble of commits")
	s.ground.proxy.commits.Store(true)
	time.Sleep(min(4*time.Second, s.lasts/4))
	s.ground.proxy.commits.Store(false)
	return nil
}

func restartBouncer(s *storm) error {
	s.count("restart of pgbouncer")
	s.ground.bouncer.kill()
	time.Sleep(time.Duration(s.random.IntN(500)) * time.Millisecond)
	s.ground.bouncer.start()
	return nil
}
