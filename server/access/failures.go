package access

import (
	"container/list"
	"sync"
	"time"
)

// Failures that are allowed at once: of tokens and of logins from one address, and of logins with one name from
// there. After that, one every six seconds is allowed.
const (
	tokenBurst   = 10
	addressBurst = 50
	loginBurst   = 10
	refill       = 6 * time.Second
)

// maxCounted is the largest number of counters. The least recently used one is dropped first.
const maxCounted = 10000

// failures counts failed attempts. An attempt is counted before it is checked, and uncounted if it was right. So,
// however many come at once, no more than the burst are checked.
type failures struct {
	mu    sync.Mutex
	byKey map[string]*list.Element
	order list.List // of *counter, most recently used first
}

type counter struct {
	quota
	left float64
	at   time.Time
}

// quota is how many failures are allowed at once under a key.
type quota struct {
	key   string
	burst float64
}

// guess is an attempt that was counted.
type guess struct {
	of     *failures
	quotas []quota
}

// begin counts an attempt under each key, if all of them have room. If one has no room, it creates no counters for
// the keys after it.
func (f *failures) begin(now time.Time, quotas ...quota) (guess, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range quotas {
		if f.counter(q, now).left < 1 {
			return guess{}, false
		}
	}
	for _, q := range quotas {
		f.counter(q, now).left--
	}
	return guess{f, quotas}, true
}

// right uncounts an attempt. A full counter is dropped.
func (g guess) right() {
	f := g.of
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range g.quotas {
		at := f.byKey[q.key]
		if at == nil {
			continue
		}
		if c := at.Value.(*counter); c.left+1 < q.burst {
			c.left++
		} else {
			f.drop(at)
		}
	}
}

func (f *failures) drop(at *list.Element) {
	delete(f.byKey, f.order.Remove(at).(*counter).key)
}

// counter returns the current counter of a key.
func (f *failures) counter(q quota, now time.Time) *counter {
	at := f.byKey[q.key]
	if at == nil {
		if f.byKey == nil {
			f.byKey = map[string]*list.Element{}
		}
		if len(f.byKey) >= maxCounted {
			f.drop(f.order.Back())
		}
		at = f.order.PushFront(&counter{quota: q, left: q.burst, at: now})
		f.byKey[q.key] = at
	}
	f.order.MoveToFront(at)
	c := at.Value.(*counter)
	c.left = min(q.burst, c.left+float64(now.Sub(c.at))/float64(refill))
	c.at = now
	return c
}
