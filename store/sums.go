package store

import (
	"cmp"
	"slices"
	"time"
)

// Sums adds up statistics for a StatsFilter. Create one with NewSums; the zero value is not usable.
type Sums struct {
	filter StatsFilter
	of     map[sumOf]*Stat
}

// sumOf identifies one sum.
type sumOf struct {
	at          time.Time
	queue, kind string
}

// NewSums returns empty sums for a filter.
func NewSums(f StatsFilter) *Sums {
	f.From = f.From.Truncate(time.Minute)
	f.Bucket = max(f.Bucket, time.Minute)
	return &Sums{f, map[sumOf]*Stat{}}
}

// Add adds the statistics of a minute, unless the filter excludes them.
func (s *Sums) Add(minute *Stat) {
	f := &s.filter
	if minute.At.Before(f.From) || !f.Until.IsZero() && !minute.At.Before(f.Until) ||
		f.Queue != "" && f.Queue != minute.Queue || f.Kind != "" && f.Kind != minute.Kind {
		return
	}
	of := sumOf{minute.At.Truncate(f.Bucket), minute.Queue, minute.Kind}
	if s.of[of] == nil {
		s.of[of] = &Stat{At: of.at, Queue: of.queue, Kind: of.kind}
	}
	s.of[of].Add(minute)
}

// Stats returns the sums, as Reader.Stats does.
func (s *Sums) Stats() []Stat {
	var stats []Stat
	for _, sum := range s.of {
		stats = append(stats, *sum)
	}
	slices.SortFunc(stats, func(a, b Stat) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return stats
}
