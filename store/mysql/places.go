package mysql

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A place names one call of Enqueue: 41 bits of milliseconds since 2024, so that
// places grow with time and partitions can be cut by it, 16 bits that tell
// processes apart, and 6 that count. The milliseconds follow the server's clock as it
// was heard of lately, and nothing is decided by them.
const (
	placeEpoch = 1704067200000 // 2024-01-01 in milliseconds since 1970
	placeShift = 22
	nodeShift  = 6
)

// maxSpan is the most tasks that a row of tusk_ready stands for, maxPlace the
// most that share a place.
const (
	maxSpan  = 32
	maxPlace = 1024
)

// places gives places away.
type places struct {
	mu    sync.Mutex
	node  int64
	last  int64         // the last one given away, without the node
	ahead time.Duration // the server's clock less ours
}

// renew takes another number for this process: somebody has the same.
func (p *places) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = rand.Int64N(1 << 16)
}

// learn takes note of the server's time.
func (p *places) learn(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = time.Until(time.UnixMicro(now))
}

// now returns about what the server's clock says, in microseconds.
func (p *places) now() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.ahead).UnixMicro()
}

// next returns a place that nobody has.
func (p *places) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ms := max(time.Now().Add(p.ahead).UnixMilli()-placeEpoch, 0)
	p.last = max(ms<<nodeShift, p.last+1)
	return p.last>>nodeShift<<placeShift | p.node<<nodeShift | p.last&(1<<nodeShift-1)
}

// placeAt returns the smallest place of an instant.
func placeAt(at time.Time) int64 { return max(at.UnixMilli()-placeEpoch, 0) << placeShift }
