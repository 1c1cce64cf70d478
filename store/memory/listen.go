package memory

import (
	"context"
	"maps"
	"slices"
)

// listener is somebody who wants to be told. Its mail is guarded by the store's
// mutex; ring has room for one ring, which is enough to have it look.
type listener struct {
	mail map[string]bool
	ring chan struct{}
}

// Listen implements store.Notifier. It runs in the caller's goroutine and
// returns the context's error.
func (s *Store) Listen(ctx context.Context, wake func(queues ...string)) error {
	l := &listener{mail: map[string]bool{}, ring: make(chan struct{}, 1)}
	s.mu.Lock()
	s.listeners[l] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ring:
		}
		s.mu.Lock()
		queues := slices.Collect(maps.Keys(l.mail))
		clear(l.mail)
		s.mu.Unlock()
		wake(queues...)
	}
}

// wake tells all listeners that a queue has got an available task. The mutex is
// held.
func (s *Store) wake(queue string) {
	for l := range s.listeners {
		l.mail[queue] = true
		select {
		case l.ring <- struct{}{}:
		default:
		}
	}
}
