package archive

import (
	"context"
	"errors"
	"testing"
	"time"
)

// slices makes a pace work for slices. In each slice, each of four requests takes the given time
// for 1,000 bytes. It returns the rests.
func (p *pace) slices(each ...time.Duration) (rests []time.Duration) {
	for _, took := range each {
		for range 4 {
			p.add(took, 1000)
		}
		rests = append(rests, p.due(slice))
	}
	return rests
}

func TestArchivingRestsWhereTheDatabaseIsSlowerThanItCanBe(t *testing.T) {
	const quick, slow = time.Millisecond, 2 * time.Millisecond
	var p pace
	p.begin(false)
	for i, rest := range p.slices(quick, slow, quick, quick, slow, slow, quick, quick) {
		if rest > 0 {
			t.Errorf("slice %d: it rests for %v beside nobody", i, rest)
		}
	}
	var grow []time.Duration
	for _, rest := range p.slices(slow, slow, slow, slow, slow, slow, slow) {
		grow = append(grow, rest/slice)
	}
	for i, want := range []time.Duration{0, 0, 2, 4, 8, 16, 16} {
		if grow[i] != want {
			t.Fatalf("rests of %v slices", grow)
		}
	}
	p.begin(true)
	if rests := p.slices(slow, slow); rests[0] > 0 || rests[1] > 0 {
		t.Errorf("it rests for %v although it is behind", rests)
	}
}

func TestArchivingRestsForOthersOnlyWhereTheyAreSeen(t *testing.T) {
	const quick, slow = time.Millisecond, 2 * time.Millisecond
	for _, c := range []struct {
		others int
		err    error
		rests  bool
	}{{0, nil, false}, {1, nil, true}, {0, errors.New("away"), true}} {
		p := pace{others: func(context.Context) (int, error) { return c.others, c.err }}
		p.begin(false)
		p.start()
		p.slices(quick)
		var rests time.Duration
		for range 8 {
			p.looked = time.Time{}
			p.look(t.Context())
			rests += p.slices(slow)[0]
		}
		if (rests > 0) != c.rests {
			t.Errorf("%d others, error %v: it rests for %v", c.others, c.err, rests)
		}
	}
}
