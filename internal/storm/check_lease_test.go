//go:build unix

package storm

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
)

// finishedTwice checks I3 and I5: exactly one outcome ends a task, each token is accepted once, and no token is
// accepted after another claim.
func (c *checker) finishedTwice(p *past) {
	ends := 0
	tokens := map[string]int{}
	for _, x := range p.releases {
		if !x.yes {
			continue
		}
		if isEnd(x.State) {
			ends++
		}
		if tokens[x.Token]++; tokens[x.Token] == 2 {
			c.violation("I3", "task %s: two outcomes under one token were accepted", p.id)
		}
		at := slices.IndexFunc(p.claims, func(l claimed) bool { return l.Token == x.Token })
		if at >= 0 && at+1 < len(p.claims) && p.claims[at+1].at < x.asked && !c.lapsed(p.claims[at+1].at) &&
			!c.undecided(p.claims[at], p.claims[at+1]) {
			c.violation("I5", "task %s: an outcome (%s) was accepted %v after another claim", p.id, x.State,
				time.Duration(x.asked-p.claims[at+1].at))
		}
	}
	if ends > 1+p.retried() {
		c.violation("I3", "task %s ended %d times", p.id, ends)
	}
	if t := c.stored[p.id]; t != nil {
		done := 0
		for _, a := range t.Detail.Attempts {
			if a.Outcome == tusk.StateCompleted {
				done++
			}
		}
		if done > 1 || done == 0 && t.State == tusk.StateCompleted {
			c.violation("I3", "task %s is %v and has %d completed attempts", p.id, t.State, done)
		}
	}
}

// leasedTwice checks I4: between two claims of a task the first lease has ended.
func (c *checker) leasedTwice(p *past) {
	for i := 1; i < len(p.claims); i++ {
		a, b := p.claims[i-1], p.claims[i]
		if a.Token != b.Token && c.over(p, a) > b.at && !c.undecided(a, b) {
			c.violation("I4", "task %s (%s) was claimed twice within %v, and nothing ended the first lease", p.id, a.Kind,
				time.Duration(b.at-a.at))
		}
	}
}

// buried also checks I4: a worker whose tasks were taken back claims nothing more under its name. Of several ledgers,
// each buries on its own. The worker hears of it with its next beat, and may claim in the others until then.
func (c *checker) buried() {
	buried := map[string]int64{}
	workers := map[string]string{} // by token
	for _, p := range c.tasks {
		for _, l := range p.claims {
			workers[l.Token] = l.worker
		}
	}
	for _, p := range c.tasks {
		for _, x := range p.releases {
			if w := workers[x.Token]; w != "" && x.yes && x.Rescue && !c.lapsed(x.answered) &&
				(buried[w] == 0 || x.answered < buried[w]) {
				buried[w] = x.answered
			}
		}
	}
	for _, p := range c.tasks {
		for _, l := range p.claims {
			if at, made := buried[l.worker], c.madeBy(p, l); at != 0 && made > at+c.ground.mourning() {
				c.violation("I4", "worker %s claimed %s %v after its tasks had been taken back", l.worker, p.id,
					time.Duration(made-at))
			}
		}
	}
}

// attempts checks I13: attempts and crashes are counted as the outcomes say.
func (c *checker) attempts(p *past) {
	if p.retried() > 0 || p.unseen() {
		return
	}
	for i, b := range p.claims {
		if b.Queue == queueKeyed {
			return // a replacement starts a new count
		}
		if i == 0 {
			continue
		}
		a := p.claims[i-1]
		if c.undecided(a, b) {
			return
		}
		var of []release
		for _, x := range p.releases {
			if x.Token == a.Token && !x.no {
				of = append(of, x)
			}
		}
		if len(of) == 1 && of[0].yes && (b.Attempt != of[0].Attempt+1 || b.Crashes != of[0].Crashes) {
			c.violation("I13", "task %s: an outcome left %d attempts and %d crashes, and the next claim has %d and %d", p.id,
				of[0].Attempt, of[0].Crashes, b.Attempt, b.Crashes)
		}
		for _, x := range of {
			if x.Crashes > a.Crashes && !x.Rescue {
				c.violation("I13", "task %s: a worker that lives counted a crash", p.id)
			}
		}
	}
}

// tooEarly checks I14: nothing is claimed before its time. The engine's time of a claim may be earlier than that of
// the enqueue, because a claim that was delayed sees tasks that came meanwhile. So the check uses the end of the
// claim, by the clock that all processes share.
func (c *checker) tooEarly(p *past) {
	e := p.added()
	for i, l := range p.claims {
		if c.reset(p.began(), l.at) {
			return // cannot be decided
		}
		if early := time.Duration(l.Due - l.at - c.ahead(l.at)); early > 0 {
			c.violation("I14", "task %s was claimed %v before its time", p.id, early)
		}
		if i == 0 && e != nil && e.Key == "" && e.Delay > 0 && l.at-e.asked < e.Delay {
			c.violation("I14", "task %s was to wait for %v and was claimed after %v", p.id, time.Duration(e.Delay),
				time.Duration(l.at-e.asked))
		}
	}
}
