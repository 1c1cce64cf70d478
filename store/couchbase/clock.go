package couchbase

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
)

// resync is how often a handle reads the server's clock, resyncAfter how soon it tries again after a failure, and
// resyncWithin how long the caller that reads it waits.
const (
	resync       = 30 * time.Second
	resyncAfter  = 5 * time.Second
	resyncWithin = 2 * time.Second
)

// clockKey is the document whose CAS tells the time.
const clockKey = "clock"

// clock is what a handle knows of the server's clock.
type clock struct {
	offset   atomic.Int64  // server's clock minus this process's, in microseconds
	behind   atomic.Int64  // by how many microseconds at most the handle's time is behind the server's
	synced   atomic.Int64  // when the offset was last measured; 0 if never
	learning chan struct{} // full while a caller measures it for the first time
}

// sync reads the server's hybrid clock, in nanoseconds, from the CAS of a write. It takes several samples and uses the
// one with the shortest round trip. It assumes that the write happened at the end of the trip, so the handle's time is
// behind the server's by up to one trip and never ahead, and nothing is claimed before its time.
func (s *Store) sync(ctx context.Context) error {
	best, offset := time.Hour, int64(0)
	for range 4 {
		var done *gocb.MutationResult
		var begun time.Time
		err := s.again(ctx, func() (err error) {
			begun = time.Now()
			done, err = s.meta.Upsert(clockKey, 1, &gocb.UpsertOptions{Context: ctx})
			return err
		})
		if err != nil {
			return err
		}
		ended := time.Now()
		if took := ended.Sub(begun); took < best {
			best, offset = took, int64(done.Cas())/1000-s.local(ended)
		}
	}
	s.clock.offset.Store(offset)
	s.clock.behind.Store(best.Microseconds() + 1)
	s.clock.synced.Store(time.Now().UnixNano())
	return nil
}

// now returns the server's time in microseconds. Between syncs it follows the process's monotonic clock.
func (s *Store) now(ctx context.Context) int64 {
	at := s.clock.synced.Load()
	switch {
	case at == 0:
		s.learn(ctx)
	case time.Now().UnixNano()-at > int64(resync) && s.clock.synced.CompareAndSwap(at, time.Now().UnixNano()):
		within, cancel := context.WithTimeout(ctx, resyncWithin)
		defer cancel()
		if s.sync(within) != nil { // the known offset stays
			s.clock.synced.Store(time.Now().Add(resyncAfter - resync).UnixNano())
		}
	}
	return s.local(time.Now()) + s.clock.offset.Load()
}

// local returns an instant in microseconds by the process's clock. Setting that clock while the handle is open has no
// effect.
func (s *Store) local(at time.Time) int64 { return s.opened.Add(at.Sub(s.opened)).UnixMicro() }

// learn reads the server's clock for the first time. All callers wait until that has succeeded, their context ends, or
// the server refuses the request: the process's own clock may be wrong by any amount.
func (s *Store) learn(ctx context.Context) {
	select {
	case s.clock.learning <- struct{}{}:
		defer func() { <-s.clock.learning }()
	case <-ctx.Done():
		return
	}
	for try := 0; s.clock.synced.Load() == 0 && pause(ctx, try) == nil; try++ {
		if err := s.sync(ctx); err != nil && (!unknown(err) || missing(err)) {
			return
		}
	}
}

// missing reports whether a request timed out waiting for a collection that does not exist.
func missing(err error) bool {
	var late *gocb.TimeoutError
	return errors.As(err, &late) && slices.Contains(late.RetryReasons, gocb.KVCollectionOutdatedRetryReason)
}

// instant and micros convert between documents' microseconds and Go's times; 0 is the zero time.
func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
