package bulk

import (
	"testing"
	"time"
)

func TestPagesAreAsLargeAsTheirTasksAreCheap(t *testing.T) {
	for name, test := range map[string]struct {
		fixed, each time.Duration // cost of a page
		least, most int           // tasks on a page in the end
	}{
		"cheap tasks":                        {0, 100 * time.Microsecond, mostOnPage, mostOnPage},
		"dear tasks":                         {0, 20 * time.Millisecond, 12, 50},
		"very dear tasks":                    {0, time.Second, leastOnPage, leastOnPage},
		"cheap tasks on a server that waits": {5 * time.Second, 100 * time.Microsecond, mostOnPage / 2, mostOnPage},
	} {
		p := pace{size: firstOnPage}
		for range 30 {
			p.learn(p.size, test.fixed+time.Duration(p.size)*test.each)
		}
		if p.size < test.least || p.size > test.most {
			t.Errorf("%s: %d on a page, want %d to %d", name, p.size, test.least, test.most)
		}
	}
}
