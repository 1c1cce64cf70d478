package archive

import (
	"context"
	"time"
)

// Archiving works for a slice of time, and then judges whether others need the database: by how
// long its requests took, and by whether there was other activity. If others need it, archiving
// rests for a multiple of the slice, which doubles with each rest. It does not rest if it would
// fall behind: in a batch that follows a full one, or later than mostRests after a batch began.
const (
	slice      = 100 * time.Millisecond
	sliceLeast = 3         // requests in a slice that can be judged
	glance     = slice / 4 // time between two checks for other activity
	slowLeast  = 3         // slow slices, minus others, before a rest: one may be slow by chance
	slowMost   = 6         // most of them that count: a rest lasts at most 16 times as long as the slice
	longRest   = 10 * time.Second
	mostRests  = 5 * time.Minute
	crowded    = 1.7 // a slice is slow if each byte took this many times as long as in the quickest request
)

// pace judges whether others need the database, by how long requests of one kind take per byte.
// While nobody else uses the database, the mean of a slice is usually less than 1.5 times the
// minimum. While others use it, the mean is usually more than twice the minimum, since requests
// wait for processors and disks. A machine whose own speed varies looks the same. So an engine that
// can report other activity is queried as well, and a slice without other activity is never slow.
type pace struct {
	others func(context.Context) (int, error) // number of other active sessions; nil if unknown
	looked time.Time
	seen   bool // others were seen in this slice

	least    float64   // nanoseconds per byte of the quickest request
	until    time.Time // no rests after this time
	begun    time.Time // of this slice
	took     time.Duration
	bytes    int
	requests int
	slow     int // slow slices, minus others
}

// begin is called at the beginning of a batch. behind says whether it follows a full one.
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

// add records how long a request took, and the size of its answer or argument.
func (p *pace) add(took time.Duration, bytes int) {
	if bytes == 0 {
		return
	}
	p.least += p.least / 1000 // the quickest request of the past may not be possible any more
	if each := float64(took) / float64(bytes); p.least == 0 || each < p.least {
		p.least = each
	}
	p.took, p.bytes, p.requests = p.took+took, p.bytes+bytes, p.requests+1
}

// due returns how long to rest after working for some time.
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

// look checks whether there is other activity. If the check fails, it assumes so.
func (p *pace) look(ctx context.Context) {
	if p.seen || time.Since(p.looked) < glance {
		return
	}
	n, err := p.others(ctx)
	p.seen, p.looked = n > 0 || err != nil, time.Now()
}

// rest leaves the database to others for a while if they need it.
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
