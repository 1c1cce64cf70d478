// Package bell tells those of a process who wait for tasks that a queue may have some, and
// whoever leads that there is something to do.
//
// It touches what hints and tasks are. Engines ring it; what it tells goes to whoever listens to them.
package bell

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// Bell knows who listens. Its zero value is ready.
type Bell struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

// listener is somebody who wants to be told. Ring has room for one ring, which is enough to have it look.
type listener struct {
	mail map[string]bool
	ring chan struct{}
}

// Listen hands on what the bell has rung for, in the caller's goroutine, and returns the context's error.
func (b *Bell) Listen(ctx context.Context, wake func(store.Hint)) error {
	l := &listener{mail: map[string]bool{}, ring: make(chan struct{}, 1)}
	b.mu.Lock()
	if b.listeners == nil {
		b.listeners = map[*listener]bool{}
	}
	b.listeners[l] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, l)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ring:
		}
		b.mu.Lock()
		names := slices.Collect(maps.Keys(l.mail))
		clear(l.mail)
		b.mu.Unlock()
		wake(Hint(names))
	}
}

// Ring tells that a queue may have got available tasks, or one of the names for whoever leads. It reports whether
// anybody listens.
func (b *Bell) Ring(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.listeners {
		l.mail[name] = true
		select {
		case l.ring <- struct{}{}:
		default:
		}
	}
	return len(b.listeners) > 0
}
