package couchbase

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// bell tells those of this process who wait for tasks. The server has no cheap way to tell other processes; they
// poll.
type bell struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

// listener is somebody who wants to be told. Ring has room for one ring, which is enough to have it look.
type listener struct {
	mail map[string]bool
	ring chan struct{}
}

// Listen implements store.Notifier.
func (s *Store) Listen(ctx context.Context, wake func(queues ...string)) error {
	l := &listener{mail: map[string]bool{}, ring: make(chan struct{}, 1)}
	s.bell.mu.Lock()
	if s.bell.listeners == nil {
		s.bell.listeners = map[*listener]bool{}
	}
	s.bell.listeners[l] = true
	s.bell.mu.Unlock()
	defer func() {
		s.bell.mu.Lock()
		defer s.bell.mu.Unlock()
		delete(s.bell.listeners, l)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ring:
		}
		s.bell.mu.Lock()
		queues := slices.Collect(maps.Keys(l.mail))
		clear(l.mail)
		s.bell.mu.Unlock()
		wake(queues...)
	}
}

// wake tells that a queue may have got available tasks.
func (s *Store) wake(queue string) {
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	for l := range s.bell.listeners {
		l.mail[queue] = true
		select {
		case l.ring <- struct{}{}:
		default:
		}
	}
}
