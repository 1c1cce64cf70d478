package alert

import (
	"context"
	"maps"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	pieceOfSpan = 15 * time.Minute // how much of a span is read at once: statistics are large
	// How far back statistics are read again, and how often: an attempt counts in the minute in which it ended, but its
	// transaction may be committed later, and on some engines the leader sums up what has ended.
	lateBy    = 10 * time.Minute
	lateEvery = time.Minute
)

// reader reads statistics.
type reader = func(context.Context, store.StatsFilter) ([]store.Stat, error)

// ends remembers when attempts ended, because a span may be 30 days: most engines read every minute of it.
type ends struct {
	since, until time.Time            // the time that was read
	again        time.Time            // when it was last read again
	last         map[string]time.Time // the last minute in which an attempt ended in a queue
}

// add learns the statistics since some time. They must reach until now.
func (e *ends) add(stats []store.Stat, since, now time.Time) {
	if e.last == nil || e.until.Before(since) { // what lies between is not known
		*e = ends{since: since, again: now, last: map[string]time.Time{}}
	}
	e.learn(stats)
	e.until = now.Truncate(time.Minute)
	maps.DeleteFunc(e.last, func(_ string, at time.Time) bool { return at.Before(now.Add(-MaxSpan - time.Hour)) })
}

// reread reads the last minutes again, now and then.
func (e *ends) reread(ctx context.Context, now time.Time, read reader) error {
	from := now.Add(-lateBy).Truncate(time.Minute)
	if from.Before(e.since) {
		from = e.since
	}
	if now.Sub(e.again) < lateEvery || !from.Before(e.until) {
		return nil
	}
	stats, err := read(ctx, store.StatsFilter{Bucket: time.Minute, From: from, Until: e.until})
	if err == nil {
		e.learn(stats)
		e.again = now
	}
	return err
}

func (e *ends) learn(stats []store.Stat) {
	for i := range stats {
		s := &stats[i]
		if s.Completed+s.Failed+s.Discarded+s.Cancelled > 0 && s.At.After(e.last[s.Queue]) {
			e.last[s.Queue] = s.At
		}
	}
}

// reach reads further back, piece by piece, until it knows all since from or an attempt has ended in each of the
// queues. If it fails, it goes on from there the next time.
func (e *ends) reach(ctx context.Context, from time.Time, queues []string, read reader) error {
	for e.since.After(from) && !e.all(from, queues) {
		start := e.since.Add(-pieceOfSpan)
		if start.Before(from) {
			start = from
		}
		stats, err := read(ctx, store.StatsFilter{Bucket: time.Minute, From: start, Until: e.since})
		if err != nil {
			return err
		}
		e.learn(stats)
		e.since = start
	}
	return nil
}

// all reports whether an attempt has ended in each of the queues since some time.
func (e *ends) all(since time.Time, queues []string) bool {
	for _, q := range queues {
		if e.last[q].Before(since) {
			return false
		}
	}
	return true
}

// in returns the queues in which attempts have ended since some time.
func (e *ends) in(since time.Time) map[string]bool {
	ended := map[string]bool{}
	for queue, at := range e.last {
		if !at.Before(since) {
			ended[queue] = true
		}
	}
	return ended
}
