package server

import (
	"net/http"
	"time"

	"github.com/tuskqueue/tusk/store"
)

type statsInput struct {
	Bucket string    `query:"bucket" enum:"minute,hour,day" default:"minute"`
	From   time.Time `query:"from" doc:"a time, or how long ago; default: 60 buckets ago"`
	Until  time.Time `query:"until"`
	Queue  string    `query:"queue" rule:"value"`
	Kind   string    `query:"kind" rule:"value"`
}

// Stat sums up the attempts of a queue and kind that ended in a slice of time.
type Stat struct {
	At        time.Time `json:"at"`
	Queue     string    `json:"queue"`
	Kind      string    `json:"kind"`
	Completed int64     `json:"completed"`
	Failed    int64     `json:"failed"`
	Discarded int64     `json:"discarded"`
	Cancelled int64     `json:"cancelled"`
	Waited    Span      `json:"waited" doc:"from due to claimed"`
	Ran       Span      `json:"ran"`
}

// Span sums up durations, in seconds.
type Span struct {
	Count int64   `json:"count"`
	Total float64 `json:"total"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// StatList is a list of statistics, oldest first.
type StatList struct {
	Stats []Stat `json:"stats"`
}

const (
	maxBuckets = 1500
	maxStats   = 50_000

	// Statistics as they are read are ten times as large as in the response, so few of them are read at a time.
	statsAtOnce   = 5000
	firstBuckets  = 10
	bucketsAtOnce = 100
)

var buckets = map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

func listStats(c *call, in statsInput) (StatList, error) {
	list := StatList{Stats: []Stat{}}
	bucket := buckets[in.Bucket]
	now := time.Now().UTC()
	if in.From.IsZero() {
		in.From = now.Add(-60 * bucket)
	}
	if end := in.Until; end.IsZero() && now.Sub(in.From) > maxBuckets*bucket || !end.IsZero() &&
		end.Sub(in.From) > maxBuckets*bucket {
		return list, fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "from",
			"asks for more than %d buckets: use a larger bucket", maxBuckets)
	}
	from, span := in.From, firstBuckets
	for more := true; more; {
		until := from.Truncate(bucket).Add(time.Duration(span) * bucket)
		if in.Until.IsZero() && until.After(now) || !in.Until.IsZero() && !until.Before(in.Until) {
			until, more = in.Until, false
		}
		stats, err := c.client.Stats(c.r.Context(), store.StatsFilter{Bucket: bucket, From: from, Until: until,
			Queue: in.Queue, Kind: in.Kind})
		if err != nil {
			return list, err
		}
		for i := range stats {
			if s := &stats[i]; c.who.SeesQueue(s.Queue) {
				list.Stats = append(list.Stats, viewStat(s))
			}
		}
		if len(list.Stats) > maxStats {
			return list, fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "from",
				"there are more than %d statistics since then: use a larger bucket, or name a queue or a kind", maxStats)
		}
		from, span = until, min(max(1, statsAtOnce*span/max(1, len(stats))), bucketsAtOnce)
	}
	return list, nil
}

func viewStat(s *store.Stat) Stat {
	return Stat{At: utc(s.At), Queue: s.Queue, Kind: s.Kind, Completed: s.Completed, Failed: s.Failed,
		Discarded: s.Discarded, Cancelled: s.Cancelled, Waited: viewSpan(&s.Waited), Ran: viewSpan(&s.Ran)}
}

func viewSpan(d *store.Durations) Span {
	return Span{d.Count, d.Sum.Seconds(), d.Mean().Seconds(), d.Quantile(0.5).Seconds(), d.Quantile(0.95).Seconds(),
		d.Quantile(0.99).Seconds(), d.Max.Seconds()}
}
