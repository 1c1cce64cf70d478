package bulk

import "time"

// pace chooses how many tasks the next page has, so that one takes about half a second: locks
// are held for no longer, and what is done twice when a process dies is little.
type pace struct {
	size int
	n    int // tasks of the page before, and how long it took
	took time.Duration
}

// learn takes note of a page. A slow one is halved for what its tasks cost; when half of them
// took hardly less, the page had waited for something else, and smaller ones would wait as often
// and do less.
func (p *pace) learn(n int, took time.Duration) {
	waited := n > 0 && p.n >= 2*n && took > p.took*3/4
	p.n, p.took = n, took
	switch {
	case took < 250*time.Millisecond, took > time.Second && waited:
		p.size = min(p.size*2, mostOnPage)
	case took > time.Second:
		p.size = max(p.size/2, leastOnPage)
	}
}

// fail takes note of a page that could not be changed: it may have been too large for the time that it
// was given.
func (p *pace) fail() { p.size, p.n = max(p.size/2, leastOnPage), 0 }
