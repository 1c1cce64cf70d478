package ui

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// rangeOf is a period that charts show.
type rangeOf struct {
	Span, Bucket time.Duration
}

var ranges = map[string]rangeOf{
	"1h":  {time.Hour, time.Minute},
	"24h": {24 * time.Hour, time.Hour},
	"30d": {30 * 24 * time.Hour, 24 * time.Hour},
}

// chartQuery says what a chart shows.
type chartQuery struct {
	Range       string // 1h, 24h or 30d
	View        string // attempts or durations
	Queue, Kind string // empty means all
}

// chartOf reads a chart's range and view from a URL's query.
func chartOf(q url.Values) chartQuery {
	c := chartQuery{Range: q.Get("range"), View: q.Get("view")}
	if _, ok := ranges[c.Range]; !ok {
		c.Range = "1h"
	}
	if c.View != "durations" {
		c.View = "attempts"
	}
	return c
}

// Values encodes the query for the series.
func (c chartQuery) Values() string {
	return url.Values{"range": {c.Range}, "view": {c.View}, "queue": {c.Queue}, "kind": {c.Kind}}.Encode()
}

// chartData is a series for uPlot, with its totals for people who cannot see the chart.
type chartData struct {
	Query     chartQuery `json:"-"`
	Range     string     `json:"range"`
	View      string     `json:"view"`
	Times     []int64    `json:"t"`
	Done      []int64    `json:"done"`
	Fails     []int64    `json:"fails"`
	Wait      []float64  `json:"wait"` // seconds, p95
	Ran       []float64  `json:"ran"`
	Completed int64      `json:"completed"`
	Failed    int64      `json:"failed"`
	WaitP95   string     `json:"wait_p95"`
	RanP95    string     `json:"ran_p95"`

	Kinds, Queues []statRow `json:"-"`
}

// statRow sums up the attempts of one kind or queue.
type statRow struct {
	Name                                     string
	Completed, Failed, Discarded             int64
	WaitP50, WaitP95, WaitP99, P50, P95, P99 string

	waited, ran store.Durations
}

func (r *statRow) add(s *store.Stat) {
	r.Completed += s.Completed
	r.Failed += s.Failed
	r.Discarded += s.Discarded
	r.waited.Merge(&s.Waited)
	r.ran.Merge(&s.Ran)
}

func (r *statRow) close() {
	of := func(d *store.Durations, q float64) string { return dur(d.Quantile(q)) }
	r.WaitP50, r.WaitP95, r.WaitP99 = of(&r.waited, 0.5), of(&r.waited, 0.95), of(&r.waited, 0.99)
	r.P50, r.P95, r.P99 = of(&r.ran, 0.5), of(&r.ran, 0.95), of(&r.ran, 0.99)
}

// rowsBy sums up statistics by name, those with the most attempts first.
func rowsBy(stats []store.Stat, name func(*store.Stat) string) []statRow {
	byName := map[string]*statRow{}
	for i := range stats {
		s := &stats[i]
		if byName[name(s)] == nil {
			byName[name(s)] = &statRow{Name: name(s)}
		}
		byName[name(s)].add(s)
	}
	rows := make([]statRow, 0, len(byName))
	for _, r := range byName {
		r.close()
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b statRow) int {
		return cmp.Or(cmp.Compare(b.Completed+b.Failed, a.Completed+a.Failed), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// chart reads the statistics that the visitor may see.
func (v *visit) chart(q chartQuery) (chartData, error) {
	r := ranges[q.Range]
	now := time.Now().UTC()
	from := now.Add(-r.Span).Truncate(r.Bucket)
	stats, err := v.client.Stats(v.r.Context(), store.StatsFilter{Bucket: r.Bucket, From: from, Queue: q.Queue,
		Kind: q.Kind})
	if err != nil {
		return chartData{}, err
	}
	stats = slices.DeleteFunc(stats, func(s store.Stat) bool { return !v.who.SeesQueue(s.Queue) })
	c := chartData{Query: q, Range: q.Range, View: q.View}
	slots := map[int64]*statRow{}
	for t := from; !t.After(now); t = t.Add(r.Bucket) {
		c.Times = append(c.Times, t.Unix())
		slots[t.Unix()] = &statRow{}
	}
	var all statRow
	for i := range stats {
		if at := slots[stats[i].At.Unix()]; at != nil {
			at.add(&stats[i])
			all.add(&stats[i])
		}
	}
	for _, t := range c.Times {
		s := slots[t]
		c.Done, c.Fails = append(c.Done, s.Completed), append(c.Fails, s.Failed)
		c.Wait, c.Ran = append(c.Wait, s.waited.Quantile(0.95).Seconds()), append(c.Ran, s.ran.Quantile(0.95).Seconds())
	}
	all.close()
	c.Completed, c.Failed, c.WaitP95, c.RanP95 = all.Completed, all.Failed, all.WaitP95, all.P95
	c.Kinds = rowsBy(stats, func(s *store.Stat) string { return s.Kind })
	c.Queues = rowsBy(stats, func(s *store.Stat) string { return s.Queue })
	return c, nil
}

// series returns the chart's data, for the script that redraws it.
func series(v *visit) (answer, error) {
	values := v.r.URL.Query()
	q := chartOf(values)
	q.Queue, q.Kind = values.Get("queue"), values.Get("kind")
	if err := errors.Join(query.Text("queue", q.Queue), query.Text("kind", q.Kind)); err != nil {
		return answer{}, err
	}
	c, err := v.chart(q)
	if err != nil {
		return answer{}, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Cache-Control", "no-store")
	_, _ = v.w.Write(body) // the client may have gone
	return answer{done: true}, nil
}

// picture is the chart for browsers without scripts: bars with their numbers as text. Failed attempts are drawn below
// completed ones; durations are drawn side by side.
type picture struct {
	Width, Height int
	Bars          []pictureBar
}

type pictureBar struct {
	bar
	Class, Text string
}

const (
	pictureWidth  = 960
	pictureHeight = 180
)

// Picture draws the series.
func (c chartData) Picture() picture {
	p := picture{Width: pictureWidth, Height: pictureHeight}
	step := pictureWidth / max(len(c.Times), 1)
	height := func(value, most float64) int {
		if value <= 0 {
			return 0
		}
		return max(int(value/most*pictureHeight), 2)
	}
	add := func(i int, class string, b bar) { p.Bars = append(p.Bars, pictureBar{b, class, c.text(i)}) }
	if c.View == "durations" {
		most, half := max(0.001, slices.Max(c.Wait), slices.Max(c.Ran)), max(step*2/5, 1)
		for i := range c.Times {
			wait, ran := height(c.Wait[i], most), height(c.Ran[i], most)
			add(i, "wait", bar{i * step, pictureHeight - wait, half, wait})
			add(i, "done", bar{i*step + half, pictureHeight - ran, half, ran})
		}
		return p
	}
	most := 5.0
	for i := range c.Times {
		most = max(most, float64(c.Done[i]+c.Fails[i]))
	}
	for i := range c.Times {
		fails, done := height(float64(c.Fails[i]), most), height(float64(c.Done[i]), most)
		add(i, "fails", bar{i * step, pictureHeight - fails, max(step*4/5, 1), fails})
		add(i, "done", bar{i * step, max(pictureHeight-fails-done, 0), max(step*4/5, 1), done})
	}
	return p
}

// text describes the numbers of one point in time.
func (c chartData) text(i int) string {
	at := time.Unix(c.Times[i], 0).UTC().Format("2006-01-02 15:04 UTC")
	if c.View == "durations" {
		return at + ": waited " + dur(seconds(c.Wait[i])) + ", ran " + dur(seconds(c.Ran[i])) + " (p95)"
	}
	return at + ": " + num(c.Done[i]) + " completed, " + num(c.Fails[i]) + " failed"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
