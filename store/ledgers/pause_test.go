package ledgers

import (
	"testing"
	"time"
)

func TestPausesBetweenProbesGrowAndAreRandom(t *testing.T) {
	for _, c := range []struct{ probed, longest time.Duration }{
		{0, probeAgain},
		{2 * time.Second, 2 * probeAgain},
		{time.Hour, probeMost},
	} {
		low, high := time.Hour, time.Duration(0)
		for range 1000 {
			pause := new(ledger).pause(c.probed)
			low, high = min(low, pause), max(high, pause)
		}
		if low < c.longest/2 || low > c.longest*6/10 || high < c.longest*9/10 || high > c.longest {
			t.Errorf("after %v: between %v and %v, want %v and %v", c.probed, low, high, c.longest/2, c.longest)
		}
	}
}

// The ledgers of a server are probed together, but one that went away just now does not wait for one that has been away
// for long.
func TestTheLedgersOfAServerAreProbedTogether(t *testing.T) {
	for _, c := range []struct{ first, second, least, most time.Duration }{
		{0, time.Hour, 0, probeAgain},
		{time.Hour, time.Hour, probeMost/2 - probeAgain, probeMost},
		{time.Hour, 0, probeAgain / 2, probeAgain},
	} {
		at := new(server)
		one, other := ledger{at: at}, ledger{at: at}
		first, second := one.pause(c.first), other.pause(c.second)
		if second < c.least || second > c.most || c.second > 0 && first-second > probeAgain/2 {
			t.Errorf("after %v and %v: pauses of %v and %v", c.first, c.second, first, second)
		}
	}
}
