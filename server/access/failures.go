package access

import (
	"container/list"
	"sync"
	"time"
)

// Failures that may come at once: of tokens and of logins from one address, and
// of logins for one name from there. Then it is one in six seconds.
const (
	tokenBurst   = 10
	addressBurst = 50
	loginBurst   = 10
	refill       = 6 * time.Second
)

// maxCounted is how many counters there are at a time; the one that was used longest
// ago goes first.
const maxCounted = 10000

// failures counts what went wrong. An attempt is counted before it is checked, and
// given back when it was right: however many come at once, no more than the burst
// are checked.
type failures struct {
	mu    sync.Mutex
	byKey map[string]*list.Element
	order list.List // of *counter, the one used last in front
}

type counter struct {
	key  string
	left float64
	at   time.Time
}

// guess is an attempt that was counted.
type guess struct {
	of   *failures
	keys []string
}

// begin counts an attempt under each key, if all of them have room.
func (f *failures) begin(now time.Time, bursts map[string]int) (guess, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := guess{of: f}
	for key, burst := range bursts {
		if f.counter(key, burst, now).left < 1 {
			return guess{}, false
		}
		a.keys = append(a.keys, key)
	}
	for key := range bursts {
		if at := f.byKey[key]; at != nil {
			at.Value.(*counter).left--
		}
	}
	return a, true
}

// right gives back what was counted.
func (a guess) right() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	for _, key := range a.keys {
		if at := a.of.byKey[key]; at != nil {
			at.Value.(*counter).left++
		}
	}
}

// counter returns the counter of a key as it is now.
func (f *failures) counter(key string, burst int, now time.Time) *counter {
	at := f.byKey[key]
	if at == nil {
		if f.byKey == nil {
			f.byKey = map[string]*list.Element{}
		}
		if len(f.byKey) >= maxCounted {
			oldest := f.order.Back()
			delete(f.byKey, f.order.Remove(oldest).(*counter).key)
		}
		at = f.order.PushFront(&counter{key: key, left: float64(burst), at: now})
		f.byKey[key] = at
	}
	f.order.MoveToFront(at)
	c := at.Value.(*counter)
	c.left = min(float64(burst), c.left+float64(now.Sub(c.at))/float64(refill))
	c.at = now
	return c
}
