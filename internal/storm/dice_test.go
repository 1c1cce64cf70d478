//go:build unix

package storm

import (
	"math/rand/v2"
	"sync"
)

// dice is a random source that is safe for several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

// IntN returns a number below n.
func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// Shuffle puts elements into random order.
func (d *dice) Shuffle(n int, swap func(i, j int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.r.Shuffle(n, swap)
}
