package sqlite

import (
	"math"
	"sync"
	"time"
)

// clock is the engine's clock: the computer's, but it never goes backwards. When the computer's clock is set back, this
// one continues at half speed until the two meet again. So delays and leases take at most twice as long, and none takes
// forever.
type clock struct {
	mu   sync.Mutex
	wall func() time.Time
	last int64     // the latest reading
	read time.Time // when that was read; only its monotonic part counts
}

func newClock() *clock { return &clock{wall: time.Now, read: time.Now()} }

// now returns microseconds since 1970.
func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	read := time.Now()
	if wall := micros(c.wall()); wall >= c.last {
		c.last, c.read = wall, read
		return c.last
	}
	if pass := read.Sub(c.read).Microseconds() / 2; pass > 0 {
		c.last, c.read = c.last+pass, read
	}
	return c.last
}

// meet records an instant that another process has seen.
func (c *clock) meet(high int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if high > c.last {
		c.last, c.read = high, time.Now()
	}
}

// micros and nanos convert a time to a number, limited to what the number can hold.
func micros(t time.Time) int64 {
	const limit = math.MaxInt64 / 2_000_000 // seconds
	return min(max(t.Unix(), -limit), limit)*1_000_000 + int64(t.Nanosecond()/1000)
}

func nanos(t time.Time) int64 {
	const limit = math.MaxInt64/1_000_000_000 - 1 // seconds: the years 1677 to 2262
	return min(max(t.Unix(), -limit), limit)*1_000_000_000 + int64(t.Nanosecond())
}

// at returns the time for a number of microseconds.
func at(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// after adds a duration to an instant, limited to what the number can hold.
func after(at int64, d time.Duration) int64 {
	const limit = math.MaxInt64 / 2
	return min(max(at, -limit), limit) + d.Microseconds()
}
