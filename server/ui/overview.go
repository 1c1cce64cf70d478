package ui

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/feed"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

type overviewData struct {
	Range   string // 1h, 24h or 30d
	Totals  []total
	Tiles   []tile
	Queues  []queueRow
	Errors  []store.ErrorGroup
	Workers int
	Running int
	Busy    bool // there is anything at all
	Chart   chartData
}

type total struct {
	State string
	Tasks int64
}

// tile is one number at the top.
type tile struct {
	Name, Value, Hint, Live, Kind string
}

type queueRow struct {
	tusk.Queue
	Counts  map[string]int64
	Minute  int64 // attempts that ended within the last full minute
	Failing int64
}

// rangeOf is a stretch of time that charts show.
type rangeOf struct {
	Span, Bucket time.Duration
}

var ranges = map[string]rangeOf{
	"1h":  {time.Hour, time.Minute},
	"24h": {24 * time.Hour, time.Hour},
	"30d": {30 * 24 * time.Hour, 24 * time.Hour},
}

func overview(v *visit) (answer, error) {
	a := answer{page: "overview", title: "Overview", section: "overview"}
	s, err := v.Feed.Look(v.r.Context())
	if err != nil {
		return a, err
	}
	d := overviewData{Range: v.rangeName(), Queues: v.queueRows(s)}
	for _, w := range s.Workers {
		if v.seesWorker(w) {
			d.Workers++
			d.Running += w.Running
		}
	}
	sums := v.totals(s)
	for _, state := range []string{"available", "running", "retryable", "scheduled", "pending"} {
		d.Totals = append(d.Totals, total{state, sums[state]})
		d.Busy = d.Busy || sums[state] > 0
	}
	if d.Chart, err = v.chart(d.Range, ""); err != nil {
		return a, err
	}
	d.Busy = d.Busy || d.Chart.Completed+d.Chart.Failed > 0
	groups, err := v.client.Errors(v.r.Context(), store.ErrorFilter{Since: time.Now().Add(-24 * time.Hour), Limit: 50})
	if err != nil {
		return a, err
	}
	for _, g := range groups {
		if v.who.SeesQueue(g.Queue) && g.Waiting+g.Dead > 0 && len(d.Errors) < 6 {
			d.Errors = append(d.Errors, g)
		}
	}
	d.Tiles = tilesOf(d, sums, oldest(d.Queues))
	a.data = d
	return a, nil
}

func tilesOf(d overviewData, sums map[string]int64, age time.Duration) []tile {
	return []tile{
		{"Available", num(sums["available"]), "ready to be claimed", "total.available", "available"},
		{"Oldest", dur(age), "the longest wait right now", "total.oldest", ""},
		{"Running", num(sums["running"]), fmt.Sprintf("on %d workers", d.Workers), "total.running", "running"},
		{"To retry", num(sums["retryable"]), "failed, will run again", "total.retryable", "retryable"},
		{"Scheduled", num(sums["scheduled"]), "not due yet", "total.scheduled", "scheduled"},
	}
}

func oldest(rows []queueRow) (age time.Duration) {
	for _, q := range rows {
		age = max(age, q.Oldest)
	}
	return age
}

func (v *visit) totals(s *feed.Snapshot) map[string]int64 {
	sums := map[string]int64{}
	for _, q := range s.Queues {
		if v.who.SeesQueue(q.Name) {
			for state, n := range q.Tasks {
				sums[state.String()] += n
			}
		}
	}
	return sums
}

// queueRows lists the queues that the visitor may see, the busiest minute known
// for each.
func (v *visit) queueRows(s *feed.Snapshot) []queueRow {
	var rows []queueRow
	last := s.At.Truncate(time.Minute).Add(-time.Minute)
	for _, q := range s.Queues {
		if !v.who.SeesQueue(q.Name) {
			continue
		}
		row := queueRow{Queue: q, Counts: map[string]int64{}}
		for _, name := range stateNames {
			row.Counts[name] = 0
		}
		for state, n := range q.Tasks {
			row.Counts[state.String()] = n
		}
		for i := range s.Minute {
			if m := &s.Minute[i]; m.Queue == q.Name && m.At.Equal(last) {
				row.Minute += m.Ran.Count
				row.Failing += m.Failed
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// chartData is a series for uPlot, and its sums for those who cannot see it.
type chartData struct {
	Range     string    `json:"range"`
	Times     []int64   `json:"t"`
	Done      []int64   `json:"done"`
	Fails     []int64   `json:"fails"`
	Wait      []float64 `json:"wait"` // seconds, p95
	Ran       []float64 `json:"ran"`
	Completed int64     `json:"completed"`
	Failed    int64     `json:"failed"`
	WaitP95   string    `json:"wait_p95"`
	RanP95    string    `json:"ran_p95"`
}

func (v *visit) rangeName() string {
	name := v.r.URL.Query().Get("range")
	if _, ok := ranges[name]; !ok {
		return "1h"
	}
	return name
}

func (v *visit) chart(name, queue string) (chartData, error) {
	r := ranges[name]
	now := time.Now().UTC()
	from := now.Add(-r.Span).Truncate(r.Bucket)
	c := chartData{Range: name}
	stats, err := v.client.Stats(v.r.Context(), store.StatsFilter{Bucket: r.Bucket, From: from, Queue: queue})
	if err != nil {
		return c, err
	}
	type slot struct {
		done, fails int64
		wait, ran   store.Durations
	}
	slots := map[int64]*slot{}
	for t := from; !t.After(now); t = t.Add(r.Bucket) {
		c.Times = append(c.Times, t.Unix())
		slots[t.Unix()] = &slot{}
	}
	var wait, ran store.Durations
	for i := range stats {
		s := &stats[i]
		at := slots[s.At.Unix()]
		if at == nil || !v.who.SeesQueue(s.Queue) {
			continue
		}
		at.done += s.Completed
		at.fails += s.Failed
		at.wait.Merge(&s.Waited)
		at.ran.Merge(&s.Ran)
		wait.Merge(&s.Waited)
		ran.Merge(&s.Ran)
	}
	for _, t := range c.Times {
		s := slots[t]
		c.Done, c.Fails = append(c.Done, s.done), append(c.Fails, s.fails)
		c.Wait, c.Ran = append(c.Wait, s.wait.Quantile(0.95).Seconds()), append(c.Ran, s.ran.Quantile(0.95).Seconds())
		c.Completed += s.done
		c.Failed += s.fails
	}
	c.WaitP95, c.RanP95 = dur(wait.Quantile(0.95)), dur(ran.Quantile(0.95))
	return c, nil
}

// series is the chart's data, for the script that redraws it.
func series(v *visit) (answer, error) {
	c, err := v.chart(v.rangeName(), "")
	if err != nil {
		return answer{}, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Cache-Control", "no-store")
	_, _ = v.w.Write(body) // who asked may have gone
	return answer{done: true}, nil
}

func workers(v *visit) (answer, error) {
	all, err := v.client.Workers(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	seen := slices.DeleteFunc(all, func(w store.Worker) bool { return !v.seesWorker(w) })
	for i := range seen {
		seen[i].Queues = slices.DeleteFunc(slices.Clone(seen[i].Queues), func(q string) bool { return !v.who.SeesQueue(q) })
	}
	return answer{page: "workers", title: "Workers", section: "workers", data: seen}, nil
}

func (v *visit) seesWorker(w store.Worker) bool {
	return len(v.who.Queues) == 0 || slices.ContainsFunc(w.Queues, v.who.SeesQueue)
}

// groupRow is an error group with its failures over the last hours.
type groupRow struct {
	store.ErrorGroup
	Spark *spark
}

type errorsData struct {
	Groups []groupRow
	Window string
}

var windows = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "all": 0}

func errorGroups(v *visit) (answer, error) {
	q := v.r.URL.Query()
	f := store.ErrorFilter{Queue: q.Get("queue"), Kind: q.Get("kind"), Limit: 200}
	if err := errors.Join(query.Text("queue", f.Queue), query.Text("kind", f.Kind)); err != nil {
		return answer{}, err
	}
	d := errorsData{Window: q.Get("window")}
	span, ok := windows[d.Window]
	if !ok {
		d.Window, span = "24h", windows["24h"]
	}
	if span > 0 {
		f.Since = time.Now().Add(-span)
	}
	groups, err := v.client.Errors(v.r.Context(), f)
	if err != nil {
		return answer{}, err
	}
	slots, err := v.trend.Of(v.r.Context(), groups, time.Now())
	if err != nil {
		return answer{}, err
	}
	for i, g := range groups {
		if v.who.SeesQueue(g.Queue) {
			d.Groups = append(d.Groups, groupRow{g, sparkOf(slots[i])})
		}
	}
	// What needs somebody comes first.
	slices.SortStableFunc(d.Groups, func(a, b groupRow) int {
		return cmp.Compare(min(b.Dead+b.Waiting, 1), min(a.Dead+a.Waiting, 1))
	})
	return answer{page: "errors", title: "Errors", section: "errors", watch: v.lists(), data: d}, nil
}

func help(*visit) (answer, error) {
	return answer{page: "help", title: "Help", section: "help"}, nil
}
