package ui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// place is what the pages of a queue, a kind and a worker share.
type place struct {
	Name    string
	Chart   chartData
	Rows    []statRow // of the queue's kinds, or of the kind's queues
	Errors  []store.ErrorGroup
	Running []tusk.TaskInfo
	Workers []store.Worker // that take the queue's tasks, or handle the kind
}

const (
	shownRunning = 20
	shownErrors  = 6
	shownRows    = 50
)

// fill reads the data of a place.
func (v *visit) fill(d *place, q chartQuery, running tusk.Filter) (err error) {
	if d.Chart, err = v.chart(q); err != nil {
		return err
	}
	if d.Errors, err = v.failing(store.ErrorFilter{Queue: q.Queue, Kind: q.Kind}); err != nil {
		return err
	}
	running.States, running.Limit, running.NoArgs = []tusk.State{store.Running}, shownRunning, true
	d.Running, _, err = query.Visible(v.r.Context(), v.client, v.who, running)
	return err
}

// failing lists the last day's error groups that still have tasks.
func (v *visit) failing(f store.ErrorFilter) ([]store.ErrorGroup, error) {
	f.Since, f.Limit = time.Now().Add(-day), 50
	groups, _, err := Groups(v.r.Context(), v.client, v.who, f)
	groups = slices.DeleteFunc(groups, func(g store.ErrorGroup) bool { return g.Waiting+g.Dead == 0 })
	return groups[:min(len(groups), shownErrors)], err
}

type queueData struct {
	place
	Queue     queueRow
	Discarded string
	Limits    *tusk.Limits // nil if it has none
	Schedules []tusk.ScheduleInfo
}

// queuePage shows everything about one queue.
func queuePage(v *visit) (answer, error) {
	name := v.r.PathValue("queue")
	a := answer{page: "queue", title: name, section: "queues", watch: v.lists()}
	if tusk.ValidateName("queue", name) != nil || !v.who.SeesQueue(name) {
		return a, tusk.ErrNotFound
	}
	s, err := v.Feed.Look(v.r.Context())
	if err != nil {
		return a, err
	}
	d := queueData{place: place{Name: name}, Queue: queueRow{Queue: tusk.Queue{Name: name}, Counts: noCounts()}}
	rows := v.queueRows(s)
	if i := slices.IndexFunc(rows, func(r queueRow) bool { return r.Name == name }); i >= 0 {
		d.Queue = rows[i]
	} else if known, err := v.client.KnowsQueue(v.r.Context(), name); err != nil || !known {
		return a, cmp.Or(err, tusk.ErrNotFound)
	}
	d.Workers = slices.DeleteFunc(slices.Clone(s.Workers), func(w store.Worker) bool {
		return !slices.Contains(w.Queues, name)
	})
	if d.Discarded, err = v.discarded(name); err != nil {
		return a, err
	}
	if err := v.settingsOf(&d); err != nil {
		return a, err
	}
	q := chartOf(v.r.URL.Query())
	q.Queue = name
	if err := v.fill(&d.place, q, tusk.Filter{Queues: []string{name}}); err != nil {
		return a, err
	}
	d.Rows = d.Chart.Kinds[:min(len(d.Chart.Kinds), shownRows)]
	a.data = d
	return a, nil
}

// settingsOf reads the limits of a queue, and the schedules that enqueue into it.
func (v *visit) settingsOf(d *queueData) error {
	limits, err := v.client.Limits(v.r.Context())
	if err != nil {
		return err
	}
	if l, ok := limits[d.Name]; ok {
		d.Limits = &l
	}
	all, err := v.client.Schedules(v.r.Context())
	for _, s := range all {
		if s.Queue == d.Name && v.who.Sees(s.Queue, s.Tenant) {
			d.Schedules = append(d.Schedules, s)
		}
	}
	return err
}

func noCounts() map[string]int64 {
	counts := map[string]int64{}
	for _, name := range stateNames {
		counts[name] = 0
	}
	return counts
}

// kindPage shows everything about one kind.
func kindPage(v *visit) (answer, error) {
	name := v.r.PathValue("kind")
	a := answer{page: "kind", title: name, section: "kinds", watch: v.lists()}
	if tusk.ValidateName("kind", name) != nil {
		return a, tusk.ErrNotFound
	}
	all, err := v.seenWorkers(v.r.Context())
	if err != nil {
		return a, err
	}
	d := place{Name: name, Workers: slices.DeleteFunc(all, func(w store.Worker) bool {
		return !slices.Contains(w.Kinds, name)
	})}
	q := chartOf(v.r.URL.Query())
	q.Kind = name
	if err := v.fill(&d, q, tusk.Filter{Kinds: []string{name}}); err != nil {
		return a, err
	}
	d.Rows = d.Chart.Queues[:min(len(d.Chart.Queues), shownRows)]
	if len(d.Rows)+len(d.Workers)+len(d.Running)+len(d.Errors) == 0 {
		tasks, _, err := query.Visible(v.r.Context(), v.client, v.who,
			tusk.Filter{Kinds: []string{name}, Limit: 1, NoArgs: true})
		if err != nil || len(tasks) == 0 {
			return a, cmp.Or(err, tusk.ErrNotFound)
		}
	}
	a.data = d
	return a, nil
}

// kinds shows statistics of attempts by kind.
func kinds(v *visit) (answer, error) {
	a := answer{page: "kinds", title: "Kinds", section: "kinds", watch: v.lists()}
	q := chartOf(v.r.URL.Query())
	if !v.r.URL.Query().Has("range") {
		q.Range = "24h"
	}
	c, err := v.chart(q)
	if err != nil {
		return a, err
	}
	all, err := v.seenWorkers(v.r.Context())
	if err != nil {
		return a, err
	}
	rows := c.Kinds
	for _, w := range all { // include kinds that have a worker but no attempts
		for _, kind := range w.Kinds {
			if !slices.ContainsFunc(rows, func(r statRow) bool { return r.Name == kind }) {
				r := statRow{Name: kind}
				r.close()
				rows = append(rows, r)
			}
		}
	}
	a.data = place{Chart: c, Rows: rows}
	return a, nil
}

// seenWorkers lists the live workers that the visitor may see, each with the queues that the visitor may see.
func (v *visit) seenWorkers(ctx context.Context) ([]store.Worker, error) {
	all, err := v.client.Workers(ctx)
	seen := slices.DeleteFunc(all, func(w store.Worker) bool { return !v.seesWorker(w) })
	for i := range seen {
		seen[i].Queues = slices.DeleteFunc(slices.Clone(seen[i].Queues), func(q string) bool { return !v.who.SeesQueue(q) })
	}
	return seen, err
}

func workers(v *visit) (answer, error) {
	all, err := v.seenWorkers(v.r.Context())
	return answer{page: "workers", title: "Workers", section: "workers", data: all}, err
}

type workerData struct {
	store.Worker
	Tasks []tusk.TaskInfo // that it is running
	More  bool            // some are not shown
}

// workerPage shows everything about one live worker.
func workerPage(v *visit) (answer, error) {
	a := answer{section: "workers"}
	w, err := v.findWorker()
	if err != nil {
		return a, err
	}
	id := w.ID
	d := workerData{Worker: w}
	f := tusk.Filter{Queues: d.Queues, States: []tusk.State{store.Running}, Limit: store.MaxPage, NoArgs: true}
	running, more, err := query.Visible(v.r.Context(), v.client, v.who, f)
	if err != nil {
		return a, err
	}
	for _, t := range running {
		if t.Worker == id {
			d.Tasks = append(d.Tasks, t)
		}
	}
	d.More = !more.IsZero() && len(d.Tasks) < d.Running
	return answer{page: "worker", title: "Worker " + id.String()[24:], section: "workers", watch: v.lists(), data: d}, nil
}

// findWorker finds the worker in the path if the visitor may see it.
func (v *visit) findWorker() (store.Worker, error) {
	id, err := tusk.ParseID(v.r.PathValue("worker"))
	if err != nil {
		return store.Worker{}, tusk.ErrNotFound
	}
	v.target = id.String()
	all, err := v.seenWorkers(v.r.Context())
	if err != nil {
		return store.Worker{}, err
	}
	i := slices.IndexFunc(all, func(w store.Worker) bool { return w.ID == id })
	if i < 0 {
		return store.Worker{}, failure(http.StatusNotFound,
			"No living worker has this id: it has stopped, or it was declared dead and its tasks run elsewhere.")
	}
	return all[i], nil
}

func quietWorker(v *visit) (answer, error) { return v.changeWorker("quiet", v.client.QuietWorker) }
func wakeWorker(v *visit) (answer, error)  { return v.changeWorker("awake", v.client.WakeWorker) }

// changeWorker requires access to all of a worker's queues.
func (v *visit) changeWorker(about string, do func(ctx context.Context, id tusk.ID) error) (answer, error) {
	w, err := v.findWorker()
	if err != nil {
		return answer{}, err
	}
	all, err := v.client.Workers(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	i := slices.IndexFunc(all, func(other store.Worker) bool { return other.ID == w.ID })
	if !v.who.SeesAllTenants() || i < 0 || len(all[i].Queues) > len(w.Queues) {
		return answer{}, failure(http.StatusForbidden, "It takes tasks of queues that you may not change.")
	}
	return goTo("/workers/"+w.ID.String(), about), do(v.r.Context(), w.ID)
}
