package bulk

import "time"

// pace chooses how many tasks the next page has, so that one takes about half a second: locks
// are held for no longer, and what is done twice when a process dies is little.
type pace struct {
	size  int
	n     int // tasks of the page before, and how long it took
	took  time.Duration
	waits bool // most of the time goes by whatever is on a page
}

// learn takes note of a page. A slow one is halved for what its tasks cost, which pages of two
// sizes tell. When that is less than half of the time, the page has waited for something else:
// smaller ones would wait as often, and do less.
func (p *pace) learn(n int, took time.Duration) {
	if p.n > 0 && n != p.n {
		each := (took - p.took) / time.Duration(n-p.n)
		p.waits = time.Duration(n)*each < took/2
	}
	p.n, p.took = n, took
	switch {
	case took < 250*time.Millisecond, took > time.Second && p.waits:
		p.size = min(p.size*2, mostOnPage)
	case took > time.Second:
		p.size = max(p.size/2, leastOnPage)
	}
}

// fail takes note of a page that could not be changed: it may have been too large for the time that it
// was given.
func (p *pace) fail() { p.size, p.n = max(p.size/2, leastOnPage), 0 }
