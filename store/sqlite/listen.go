package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// How often the writer checks whether another process has written to the file: often during activity, and less often
// after a while without.
const (
	lookOften  = 15 * time.Millisecond
	lookSeldom = 60 * time.Millisecond
	quiet      = time.Minute
)

// Listen implements store.Notifier. It reports at once what this process commits; for other processes, it checks the
// file's version every few milliseconds.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var heard atomic.Int64
	looking.Go(func() { end(s.keepLooking(ctx, &heard)) })
	s.bell.Listen(ctx, func(h store.Hint) {
		heard.Store(time.Now().UnixNano())
		wake(h)
	})
	return context.Cause(ctx)
}

// keepLooking checks for commits of other processes until the context ends or the store is closed. heard is when
// there was last one.
func (s *Store) keepLooking(ctx context.Context, heard *atomic.Int64) error {
	heard.Store(time.Now().UnixNano())
	for {
		pace := lookOften
		if time.Since(time.Unix(0, heard.Load())) > quiet {
			pace = lookSeldom
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		case <-time.After(pace):
			s.peek(ctx)
		}
	}
}

// peek checks with the writer, unless it is busy, whether another connection has committed. If so, it notifies all
// listeners.
func (s *Store) peek(ctx context.Context) {
	answer := make(chan bool, 1)
	select {
	case s.writer.peeks <- answer:
	default:
		return
	}
	select {
	case changed := <-answer:
		if changed {
			s.bell.Ring(bell.Any)
		}
	case <-ctx.Done():
	case <-s.closing:
	}
}
