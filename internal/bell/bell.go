// Package bell tells those of a process who wait for tasks that a queue may have some.
//
// It touches nothing. Engines ring it; what it tells goes to whoever listens to them.
package bell

import (
	"context"
	"maps"
	"slices"
	"sync"
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

// Listen hands on which queues the bell has rung for, in the caller's goroutine, and returns the context's error.
func (b *Bell) Listen(ctx context.Context, wake func(queues ...string)) error {
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
		queues := slices.Collect(maps.Keys(l.mail))
		clear(l.mail)
		b.mu.Unlock()
		wake(queues...)
	}
}

// Ring tells that a queue may have got available tasks.
func (b *Bell) Ring(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.listeners {
		l.mail[queue] = true
		select {
		case l.ring <- struct{}{}:
		default:
		}
	}
}
