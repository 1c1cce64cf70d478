package bulk

import "time"

// pace chooses how many tasks the next page has, so that its tasks cost about half a second: locks
// are held for no longer, and what is done twice when a process dies is little.
type pace struct {
	size int
	n    int // tasks of the page before, and how long it took
	took time.Duration
	each time.Duration // what a task costs, by two pages of different sizes; below 0: not known
}

// learn takes note of a page. What it costs is what its tasks cost; the rest of its time goes by
// however few they are, at a server that is busy or far, and smaller pages would only wait as often.
// Until that is known all of the time counts, and a page is made larger to find out, but for a slow one.
func (p *pace) learn(n int, took time.Duration) {
	if p.n > 0 && n != p.n {
		p.each = max(0, (took-p.took)/time.Duration(n-p.n))
	}
	p.n, p.took = n, took
	cost, enough := took, slow
	if p.each >= 0 {
		cost, enough = time.Duration(n)*p.each, quick
	}
	switch {
	case cost < enough, took < quick:
		p.size = min(p.size*2, mostOnPage)
	case cost > slow:
		p.size = max(p.size/2, leastOnPage)
	}
}

const (
	quick = 250 * time.Millisecond // a page that costs less is made larger
	slow  = time.Second            // one that costs more is made smaller
)

// fail takes note of a page that could not be changed: it may have been too large for the time that it
// was given.
func (p *pace) fail() { p.size, p.n, p.each = max(p.size/2, leastOnPage), 0, -1 }
