//go:build unix

package storm

import (
	"cmp"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
)

// mostMissed is the largest number of missed ticks, a second apart, that the schedule fires late.
const mostMissed = 5000

// ticks checks I11: each tick of the schedule fired exactly once. There are two exceptions: ticks before the latest
// mostMissed, if the clock jumped forward by more; and, if the clock was set back to before the schedule existed,
// ticks between that time and the schedule's beginning.
func (c *checker) ticks() {
	var ticks []time.Time
	for _, t := range c.stored {
		early := t.Tick.Before(time.Unix(0, c.begins)) && c.wrong(t.Tick)
		if t.Schedule == "clock" && !early {
			ticks = append(ticks, t.Tick)
		}
	}
	slices.SortFunc(ticks, time.Time.Compare)
	for i := 1; i < len(ticks); i++ {
		made := min(i+mostMissed, len(ticks)) - 1
		allMade := len(c.clocks) > 0 && made-i+1 == mostMissed && ticks[made].Sub(ticks[i]) == (mostMissed-1)*time.Second
		if d := ticks[i].Sub(ticks[i-1]); d != time.Second && !(allMade && d > 0) && !(d == 0 && c.wrong(ticks[i])) {
			c.violation("I11", "ticks %v and %v are %v apart", ticks[i-1], ticks[i], d)
		}
	}
	if least := int(c.lasts.Seconds() / 2); len(ticks) < least {
		c.violation("I11", "%d ticks, want at least %d", len(ticks), least)
	}
}

// wrong reports whether a tick was fired while the server's clock was being set or was set back. Such a tick may fire
// again when its time comes by the correct clock.
func (c *checker) wrong(tick time.Time) bool {
	const moment = 30 * time.Second
	for i, set := range c.clocks {
		until := set.At
		for _, next := range c.clocks[i+1:] {
			if next.Asked > set.Asked { // it was set back until then
				until = next.At
			}
			if next.Asked != set.Asked {
				break
			}
		}
		from, to := time.Unix(0, set.At+set.Asked).Add(-moment), time.Unix(0, until+set.Asked).Add(moment)
		if !tick.Before(from) && !tick.After(to) {
			return true
		}
	}
	return false
}

// leaders checks I12: a term has one leader, and writes nothing after a later one has begun.
func (c *checker) leaders() {
	who := map[int64]string{}
	began := map[int64]int64{}
	for _, e := range c.leads {
		if c.lapsed(e.At) {
			continue // the term may be used again
		}
		if who[e.Term] == "" {
			who[e.Term], began[e.Term] = e.Who, e.At
		}
		if who[e.Term] != e.Who {
			c.violation("I12", "term %d has two leaders, %s and %s", e.Term, who[e.Term], e.Who)
		}
	}
	for _, chore := range c.chores {
		for term, at := range began {
			if term > chore.Term && at < chore.asked {
				c.violation("I12", "%s of term %d wrote %v after term %d had begun", chore.Text, chore.Term,
					time.Duration(chore.asked-at), term)
				break
			}
		}
	}
}

func (c *checker) terms() int {
	terms := map[int64]bool{}
	for _, e := range c.leads {
		terms[e.Term] = true
	}
	return len(terms)
}

// sums checks I15: the counts match what is stored.
func (c *checker) sums() {
	left, err := unfinished(c.t.Context(), c.client)
	if err != nil {
		c.t.Fatal(err)
	}
	var open, done int64
	for _, t := range c.stored {
		if !t.State.Finished() {
			open++
		}
		if t.State == tusk.StateCompleted {
			done++
		}
	}
	if left != open {
		c.violation("I15", "%d unfinished tasks are counted and %d are there", left, open)
	}
	n := c.completed()
	// Couchbase does not count what a killed process had not written yet: see docs/couchbase.md.
	if c.ground.cb != nil {
		n = max(n, done)
	}
	if n != done {
		c.violation("I15", "%d completions are counted and %d tasks are completed", n, done)
	}
}

// What an idle process needs at most.
const (
	mostGoroutines = 150
	mostFiles      = 100
)

// growth checks I16: a process that has lived through the storm uses no more than an idle one needs. Of the last times
// that it counted, the one with the fewest goroutines counts: for a moment, a leader reads workers with many.
func (c *checker) growth() {
	for _, all := range c.vitals {
		last := all[max(0, len(all)-3):]
		if last[len(last)-1].At < c.ends-int64(5*time.Second) {
			continue // died before
		}
		idle := slices.MinFunc(last, func(a, b event) int { return cmp.Compare(a.Items[0].Attempt, b.Items[0].Attempt) })
		goroutines, files := idle.Items[0].Attempt, idle.Items[0].Crashes
		if goroutines > mostGoroutines || files > mostFiles {
			c.violation("I16", "process %s has %d goroutines and %d open files at rest\n%s", idle.Who, goroutines, files,
				idle.Text)
		}
	}
}
