package bulk

import "time"

// pace chooses the number of tasks on the next page, so that a page takes about half a second. This
// bounds how long locks are held, and how much is done twice when a process dies.
type pace struct {
	size  int
	n     int // tasks on the previous page, and how long it took
	took  time.Duration
	waits bool // most of the time does not depend on the size of the page
}

// learn adjusts to a page. After a slow page, the next one is half as large, to save the time that
// its tasks cost. Two pages of different sizes show that cost. If it is less than half of the time,
// the page waited for something else: smaller pages would wait as often and do less.
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

// fail adjusts to a page that failed, which may have been too large for its time limit.
func (p *pace) fail() { p.size, p.n = max(p.size/2, leastOnPage), 0 }
