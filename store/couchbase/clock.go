package couchbase

import (
	"context"
	"time"

	"github.com/couchbase/gocb/v2"
)

// resync is how often a handle compares its clock with the server's.
const resync = 30 * time.Second

// sync learns the server's clock from the CAS of a write, which is its hybrid clock in nanoseconds. Of several
// samples the one with the shortest trip counts; its error is half a trip.
func (s *Store) sync(ctx context.Context) error {
	best := time.Hour
	for range 4 {
		var done *gocb.MutationResult
		var begun time.Time
		err := s.again(ctx, func() (err error) {
			begun = time.Now()
			done, err = s.meta.Upsert("clock", 1, &gocb.UpsertOptions{Context: ctx})
			return err
		})
		if err != nil {
			return err
		}
		if took := time.Since(begun); took < best {
			best = took
			s.offset.Store(int64(done.Cas())/1000 - begun.Add(took/2).UnixMicro())
		}
	}
	s.synced.Store(time.Now().UnixNano())
	return nil
}

// now is the server's clock in microseconds. It goes on by this process's monotonic clock.
func (s *Store) now(ctx context.Context) int64 {
	if at := s.synced.Load(); time.Now().UnixNano()-at > int64(resync) &&
		s.synced.CompareAndSwap(at, time.Now().UnixNano()) {
		_ = s.sync(ctx) // the offset that is known stays
	}
	return s.opened.Add(time.Since(s.opened)).UnixMicro() + s.offset.Load()
}

// instant and micros turn instants of documents into Go's and back; 0 is none.
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
