package mysql

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A place identifies one call of Enqueue. It has 41 bits of milliseconds since 2024, so that places grow with time
// and partitions can be cut by it, 16 bits that distinguish processes, and 6 bits that count. The milliseconds follow
// the server's clock as last read, and decide nothing.
const (
	placeEpoch = 1704067200000 // 2024-01-01 in milliseconds since 1970
	placeShift = 22
	nodeShift  = 6
)

// maxSpan is the maximum number of tasks that a row of tusk_ready covers, and maxPlace the maximum number that share
// a place.
const (
	maxSpan  = 32
	maxPlace = 1024
)

// places hands out places.
type places struct {
	mu    sync.Mutex
	node  int64
	last  int64         // the last one handed out, without the node
	ahead time.Duration // the server's clock minus ours
}

// renew chooses another number for this process, because another process has the same.
func (p *places) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = rand.Int64N(1 << 16)
}

// learn records the server's time.
func (p *places) learn(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = time.Until(time.UnixMicro(now))
}

// now returns an estimate of the server's clock, in microseconds.
func (p *places) now() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.ahead).UnixMicro()
}

// next returns an unused place.
func (p *places) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ms := max(time.Now().Add(p.ahead).UnixMilli()-placeEpoch, 0)
	p.last = max(ms<<nodeShift, p.last+1)
	return p.last>>nodeShift<<placeShift | p.node<<nodeShift | p.last&(1<<nodeShift-1)
}

// placeAt returns the smallest place of an instant.
func placeAt(at time.Time) int64 { return max(at.UnixMilli()-placeEpoch, 0) << placeShift }
