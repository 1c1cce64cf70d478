package postgres

import (
	"encoding/json"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// stats are the statistics of one flush. They are summed up before they are sent, so that
// one row of the database covers hundreds of attempts.
type stats struct {
	sums    map[statKey]*store.Stat
	last    *store.Stat // the sum of lastKey, which most outcomes share
	lastKey statKey
}

func newStats() *stats { return &stats{sums: map[statKey]*store.Stat{}} }

// statKey identifies a sum. ago is how long before the flush an attempt ended, in whole
// seconds. Only the database knows the time of the flush.
type statKey struct {
	queue, kind string
	ago         int64
}

func (s *stats) count(o *store.Outcome) {
	at := statKey{o.Task.Queue, o.Task.Kind, int64(max(o.Ago, 0) / time.Second)}
	sum := s.last
	if sum == nil || at != s.lastKey {
		if sum = s.sums[at]; sum == nil {
			sum = &store.Stat{Queue: at.queue, Kind: at.kind}
			s.sums[at] = sum
		}
		s.last, s.lastKey = sum, at
	}
	if o.Unbegun && o.State == store.Scheduled {
		return
	}
	sum.Waited.Add(o.Task.ClaimedAt.Sub(o.Task.RunAt))
	sum.Ran.Add(o.Ran)
	if o.Error != "" {
		sum.Failed++
	}
	switch o.State {
	case store.Completed:
		sum.Completed++
	case store.Discarded:
		sum.Discarded++
	case store.Cancelled:
		sum.Cancelled++
	}
}

// statJSON is a sum as it is stored.
type statJSON struct {
	Queue     string     `json:"queue"`
	Kind      string     `json:"kind"`
	Ago       int64      `json:"ago,omitempty"`
	Completed int64      `json:"completed,omitempty"`
	Failed    int64      `json:"failed,omitempty"`
	Discarded int64      `json:"discarded,omitempty"`
	Cancelled int64      `json:"cancelled,omitempty"`
	Waited    *durations `json:"waited,omitempty"`
	Ran       *durations `json:"ran,omitempty"`
}

// durations is a store.Durations with only the non-empty buckets, as pairs of
// bucket and count. Sums are in nanoseconds.
type durations struct {
	Sum     time.Duration `json:"s"`
	Max     time.Duration `json:"m"`
	Buckets [][2]int64    `json:"b"`
}

func (s *stats) encode() []byte {
	list := make([]statJSON, 0, len(s.sums))
	for at, sum := range s.sums {
		list = append(list, statJSON{
			Queue: at.queue, Kind: at.kind, Ago: at.ago,
			Completed: sum.Completed, Failed: sum.Failed, Discarded: sum.Discarded, Cancelled: sum.Cancelled,
			Waited: sparse(&sum.Waited), Ran: sparse(&sum.Ran),
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return text
}

func sparse(d *store.Durations) *durations {
	s := &durations{Sum: d.Sum, Max: d.Max}
	for i, n := range d.Buckets {
		if n > 0 {
			s.Buckets = append(s.Buckets, [2]int64{int64(i), n})
		}
	}
	return s
}

func (s *durations) addTo(d *store.Durations) {
	if s == nil {
		return
	}
	for _, b := range s.Buckets {
		if b[0] >= 0 && b[0] < store.DurationBuckets {
			d.Buckets[b[0]] += b[1]
			d.Count += b[1]
		}
	}
	d.Merge(&store.Durations{Sum: s.Sum, Max: s.Max})
}
