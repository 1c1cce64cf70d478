package ui

import (
	"cmp"
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
	Tiles   []tile
	Queues  []queueRow
	Errors  []store.ErrorGroup
	Workers int
	Running int
	Busy    bool // there are tasks or attempts to show
	Chart   chartData
}

// tile is a number at the top of the page.
type tile struct {
	Name, Value, Hint, Live, Kind string
}

type queueRow struct {
	tusk.Queue
	Counts  map[string]int64
	Minute  int64 // attempts that ended within the last full minute
	Failing int64
	Served  bool // a live worker takes tasks from it
}

func overview(v *visit) (answer, error) {
	a := answer{page: "overview", title: "Overview", section: "overview"}
	s, err := v.Feed.Look(v.r.Context())
	if err != nil {
		return a, err
	}
	d := overviewData{Queues: v.queueRows(s)}
	for _, w := range s.Workers {
		if v.seesWorker(w) {
			d.Workers++
			d.Running += w.Running
		}
	}
	sums := v.totals(s)
	for _, state := range []string{"available", "running", "retryable", "scheduled", "pending"} {
		d.Busy = d.Busy || sums[state] > 0
	}
	if d.Chart, err = v.chart(chartOf(v.r.URL.Query())); err != nil {
		return a, err
	}
	d.Busy = d.Busy || d.Chart.Completed+d.Chart.Failed > 0
	if d.Errors, err = v.failing(store.ErrorFilter{}); err != nil {
		return a, err
	}
	gaveUp, err := v.discarded()
	if err != nil {
		return a, err
	}
	d.Tiles = tilesOf(d, sums, gaveUp, oldest(d.Queues))
	a.data = d
	return a, nil
}

func tilesOf(d overviewData, sums map[string]int64, gaveUp string, age time.Duration) []tile {
	ready := "ready to be claimed"
	if n := inPaused(d.Queues); n > 0 {
		ready = num(n) + " of them in paused queues"
	}
	return []tile{
		{"Available", num(sums["available"]), ready, "total.available", "available"},
		{"Oldest", dur(age), "the longest wait in a queue that is not paused", "total.oldest", ""},
		{"Running", num(sums["running"]), fmt.Sprintf("workers: %d", d.Workers), "total.running", "running"},
		{"Retryable", num(sums["retryable"]), "failed, will run again", "total.retryable", "retryable"},
		{"Scheduled", num(sums["scheduled"]), "not due yet", "total.scheduled", "scheduled"},
		{"Discarded", gaveUp, "gave up", "total.discarded", "discarded"},
	}
}

// oldest returns the longest wait in queues that are not paused.
func oldest(rows []queueRow) (age time.Duration) {
	for _, q := range rows {
		if !q.Paused {
			age = max(age, q.Oldest)
		}
	}
	return age
}

// inPaused counts the available tasks of paused queues.
func inPaused(rows []queueRow) (n int64) {
	for _, q := range rows {
		if q.Paused {
			n += q.Counts["available"]
		}
	}
	return n
}

// Unserved reports whether tasks wait although no worker takes them.
func (q queueRow) Unserved() bool { return !q.Served && q.Counts["available"] > 0 }

// discarded counts the discarded tasks of the queues that the visitor may see.
func (v *visit) discarded(queues ...string) (string, error) {
	d, err := v.Feed.Discarded(v.r.Context())
	return v.discardedOf(d, queues...), err
}

func (v *visit) discardedOf(d feed.Discarded, queues ...string) string {
	var n int64
	for queue, tasks := range d.Tasks {
		if v.who.SeesQueue(queue) && (len(queues) == 0 || slices.Contains(queues, queue)) {
			n += tasks
		}
	}
	if d.More {
		return num(n) + "+"
	}
	return num(n)
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

// queueRows lists the queues that the visitor may see, with the attempts of the last full minute.
func (v *visit) queueRows(s *feed.Snapshot) []queueRow {
	var rows []queueRow
	last := s.At.Truncate(time.Minute).Add(-time.Minute)
	for _, q := range s.Queues {
		if !v.who.SeesQueue(q.Name) {
			continue
		}
		row := queueRow{Queue: q, Counts: noCounts()}
		for state, n := range q.Tasks {
			row.Counts[state.String()] = n
		}
		for i := range s.Minute {
			if m := &s.Minute[i]; m.Queue == q.Name && m.At.Equal(last) {
				row.Minute += m.Ran.Count
				row.Failing += m.Failed
			}
		}
		row.Served = slices.ContainsFunc(s.Workers, func(w store.Worker) bool { return w.TakesFrom(q.Name) })
		rows = append(rows, row)
	}
	return rows
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
	More   bool // there are older groups
	Window string
}

const shownGroups = 200

var windows = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "all": 0}

func errorGroups(v *visit) (answer, error) {
	q := v.r.URL.Query()
	f := store.ErrorFilter{Queue: q.Get("queue"), Kind: q.Get("kind"), Limit: shownGroups}
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
	groups, more, err := Groups(v.r.Context(), v.client, v.who, f)
	if err != nil {
		return answer{}, err
	}
	d.More = more
	slots, err := v.trend.Of(v.r.Context(), groups, time.Now())
	if err != nil {
		return answer{}, err
	}
	for i, g := range groups {
		d.Groups = append(d.Groups, groupRow{g, sparkOf(slots[i])})
	}
	// Groups that need attention come first.
	slices.SortStableFunc(d.Groups, func(a, b groupRow) int {
		return cmp.Compare(min(b.Dead+b.Waiting, 1), min(a.Dead+a.Waiting, 1))
	})
	return answer{page: "errors", title: "Errors", section: "errors", watch: v.lists(), data: d}, nil
}

func help(*visit) (answer, error) {
	return answer{page: "help", title: "Help", section: "help"}, nil
}
