package archive

import (
	"context"
	"time"
)

// Archiving works for a slice of time, and then judges whether others need the database, by how long
// its requests took and by whether others were seen at work. If they do it rests for a multiple of the
// slice, which doubles from rest to rest, but not where it would fall behind: not in a batch that
// follows a full one, and not for longer than mostRests after a batch was begun.
const (
	slice      = 100 * time.Millisecond
	sliceLeast = 3         // requests
	glance     = slice / 4 // between two looks at who else is at work
	slowLeast  = 3         // slices, less those that were not: one may be slow by chance, and a program that starts is
	slowMost   = 6         // counted: a rest is at most 16 times as long as the slice
	longRest   = 10 * time.Second
	mostRests  = 5 * time.Minute
	crowded    = 1.7 // times as much as the quickest request took for each byte
)

// pace tells whether others need the database, by how long requests of one kind take for each
// byte. While nobody else is there, the mean of a slice is mostly less than half as much again as
// the least. Beside others it is mostly more than twice as much, since requests wait for the
// processors and disks. A machine whose own speed varies looks the same. So an engine that sees who
// else is at work is asked as well, and a slice without others is never slow.
type pace struct {
	others func(context.Context) (int, error) // how many are at work; nil: that cannot be seen
	looked time.Time
	seen   bool // somebody else in this slice

	least    float64   // nanoseconds that a byte of the quickest request took
	until    time.Time // no rest after it
	begun    time.Time // of this slice
	took     time.Duration
	bytes    int
	requests int
	slow     int // slices, less those that were not
}

// begin is called at the beginning of a batch, with whether it follows a full one.
func (p *pace) begin(behind bool) {
	p.until = time.Now().Add(mostRests)
	if behind {
		p.until = time.Time{}
	}
}

// start begins a slice.
func (p *pace) start() {
	p.begun, p.took, p.bytes, p.requests = time.Now(), 0, 0, 0
	p.seen = p.others == nil
}

// add takes in what a request took, and how large its answer or its argument was.
func (p *pace) add(took time.Duration, bytes int) {
	if bytes == 0 {
		return
	}
	p.least += p.least / 1000 // what was once quick need not be possible for ever
	if each := float64(took) / float64(bytes); p.least == 0 || each < p.least {
		p.least = each
	}
	p.took, p.bytes, p.requests = p.took+took, p.bytes+bytes, p.requests+1
}

// due returns how long to rest after so much work.
func (p *pace) due(worked time.Duration) time.Duration {
	if worked < slice || p.requests < sliceLeast {
		return 0
	}
	if p.seen && float64(p.took) > crowded*p.least*float64(p.bytes) {
		p.slow = min(p.slow+1, slowMost)
	} else {
		p.slow = max(p.slow-1, 0)
	}
	p.start()
	if p.slow < slowLeast || time.Now().After(p.until) {
		return 0
	}
	return min(worked<<(p.slow-slowLeast+1), longRest)
}

// look looks at whether others are at work. Where that fails, they are thought to be.
func (p *pace) look(ctx context.Context) {
	if p.seen || time.Since(p.looked) < glance {
		return
	}
	n, err := p.others(ctx)
	p.seen, p.looked = n > 0 || err != nil, time.Now()
}

// rest leaves the database to others for a while, if they need it.
func (p *pace) rest(ctx context.Context) error {
	p.look(ctx)
	d := p.due(time.Since(p.begun))
	if d == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		p.begun = time.Now()
		return nil
	}
}
