package sqlite

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// How often the writer checks whether another process has written to the file: often while something happens, and less
// often after nothing has for a while.
const (
	lookOften  = 15 * time.Millisecond
	lookSeldom = 60 * time.Millisecond
	quiet      = time.Minute
)

// wakes holds the listeners of this process.
type wakes struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

// listener is one call of Listen. Its channel ring has room for one ring, which is enough to make it look.
type listener struct {
	mail map[string]bool
	any  bool // the queues are unknown
	ring chan struct{}
}

// wake tells all listeners that queues have available tasks, or rings for the leader.
func (w *wakes) wake(names map[string]bool) {
	if len(names) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.listeners {
		maps.Copy(l.mail, names)
		l.knock()
	}
}

func (l *listener) knock() {
	select {
	case l.ring <- struct{}{}:
	default:
	}
}

// read empties the mail.
func (w *wakes) read(l *listener) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	queues := slices.Sorted(maps.Keys(l.mail))
	if l.any {
		queues = nil
	}
	clear(l.mail)
	l.any = false
	return queues
}

// Listen implements store.Notifier. It tells at once what this process commits; to see what others do, it checks the
// file's version every few milliseconds.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	l := &listener{mail: map[string]bool{}, ring: make(chan struct{}, 1)}
	s.wakes.mu.Lock()
	if s.wakes.listeners == nil {
		s.wakes.listeners = map[*listener]bool{}
	}
	s.wakes.listeners[l] = true
	s.wakes.mu.Unlock()
	defer func() {
		s.wakes.mu.Lock()
		delete(s.wakes.listeners, l)
		s.wakes.mu.Unlock()
	}()
	look := time.NewTicker(lookOften)
	defer look.Stop()
	seen, often := time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		case <-look.C:
			if changed := s.peek(ctx); !changed && often && time.Since(seen) > quiet {
				often = false
				look.Reset(lookSeldom)
			}
			continue
		case <-l.ring:
		}
		wake(bell.Hint(s.wakes.read(l)))
		if seen = time.Now(); !often {
			often = true
			look.Reset(lookOften)
		}
	}
}

// peek asks the writer, unless it is busy, whether another connection has committed. If so, it rings for all listeners.
func (s *Store) peek(ctx context.Context) bool {
	answer := make(chan bool, 1)
	select {
	case s.writer.peeks <- answer:
	default:
		return false
	}
	select {
	case changed := <-answer:
		if changed {
			s.wakes.mu.Lock()
			for l := range s.wakes.listeners {
				l.any = true
				l.knock()
			}
			s.wakes.mu.Unlock()
		}
		return changed
	case <-ctx.Done():
	case <-s.closing:
	}
	return false
}
