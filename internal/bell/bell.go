// Package bell notifies the workers of a process that a queue may have tasks, and the leader that there may be work.
//
// It uses only hints and tasks. Engines ring the bell, and the listeners of an engine get its hints.
package bell

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// Bell rings for its listeners. Its zero value is ready to use.
type Bell struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

// listener is one call of Listen. Its channel ring has room for one ring, which is enough to make it check.
type listener struct {
	mail map[string]bool
	ring chan struct{}
}

// Listen calls wake with the hints, in the caller's goroutine, until the context ends, and returns the context's
// error.
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

// Ring says that a queue may have available tasks, or rings one of the names for the leader. It reports whether there
// are listeners.
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

// Heard reports whether there are listeners.
func (b *Bell) Heard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.listeners) > 0
}
