//go:build unix

package storm

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// If a clock was set twice to amounts that differ by a few seconds, both may seem to fit a claim. The better fit
// tells when the claim was made.
func TestClaimsAreOrderedByTheClockThatFitsBest(t *testing.T) {
	const s = int64(time.Second)
	id := tusk.NewID()
	claim := func(token string, claimedAt, asked, at int64) claimed {
		return claimed{item: item{ID: id, Token: token, Claimed: claimedAt}, asked: asked, at: at}
	}
	p := &past{id: id, claims: []claimed{
		claim("second", 121*s+577*s/1000, 115*s+165*s/1000, 115*s+272*s/1000), // by a clock that is 6.3 s ahead
		claim("first", 118*s+992*s/1000, 114*s+86*s/1000, 114*s+290*s/1000),   // by a clock that is 4.7 s ahead
	}}
	r := &record{tasks: map[tusk.ID]*past{id: p}, clocks: []event{
		{At: 10 * s, Asked: 19 * s / 100}, {At: 50 * s, Asked: 47 * s / 10}, {At: 103 * s, Asked: 63 * s / 10}}}
	r.order()
	if p.claims[0].Token != "first" {
		t.Errorf("the claim that was made at %v comes before that of %v", time.Duration(r.made(p.claims[0])),
			time.Duration(r.made(p.claims[1])))
	}
}

// A process may have read the server's clock late, and report a time before its own request. No claim was made before
// its request or after its answer.
func TestAClaimWasMadeBetweenItsRequestAndItsAnswer(t *testing.T) {
	const s = int64(time.Second)
	id := tusk.NewID()
	claim := func(token string, claimedAt, asked, at int64) claimed {
		return claimed{item: item{ID: id, Token: token, Claimed: claimedAt}, asked: asked, at: at}
	}
	p := &past{id: id, claims: []claimed{
		claim("second", 19*s, 20*s, 21*s),
		claim("first", 19*s+1, 19*s, 19*s+s/2),
		claim("third", 23*s, 21*s, 22*s),
		claim("fourth", 22*s+s/2, 22*s, 24*s),
	}}
	r := &record{tasks: map[tusk.ID]*past{id: p}}
	r.order()
	for i, token := range []string{"first", "second", "third", "fourth"} {
		if p.claims[i].Token != token {
			t.Errorf("claim %d is the %s", i+1, p.claims[i].Token)
		}
	}
}

// If the answer to a claim came late, a clock that was set since may make the claim seem to come after a rescue. A
// task that a rescue took back was claimed before it.
func TestWhatARescueHasTakenBackWasClaimedBefore(t *testing.T) {
	const s = int64(time.Second)
	id, worker := tusk.NewID(), tusk.NewID().String()
	p := &past{id: id,
		claims: []claimed{{item: item{ID: id, Token: "lent", Claimed: 20 * s}, asked: 10 * s, at: 20 * s, worker: worker}},
		releases: []release{{ask{asked: 11 * s, answered: 12 * s, yes: true},
			item{ID: id, Token: "lent", Rescue: true}}}}
	c := &checker{storm: &storm{}, record: &record{tasks: map[tusk.ID]*past{id: p}}}
	if c.buried(); len(c.violations) > 0 {
		t.Error(c.violations)
	}
	later := tusk.NewID()
	c.tasks[later] = &past{id: later, claims: []claimed{{item: item{ID: later, Token: "dead", Claimed: 20 * s},
		asked: 13 * s, at: 20 * s, worker: worker}}}
	if c.buried(); len(c.violations) != 1 {
		t.Errorf("a claim of the dead is found %d times", len(c.violations))
	}
}
