package telemetry

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// told is a collector of the metrics that a function emits. It describes none in advance,
// because the series depend on what happens.
type told func(e *emitter)

func (told) Describe(chan<- *prometheus.Desc) {}

func (tell told) Collect(out chan<- prometheus.Metric) {
	tell(&emitter{out: out, descs: map[string]*prometheus.Desc{}})
}

// Gather implements prometheus.Gatherer. It returns all metrics, including those that were
// added to the registry.
func (t *Telemetry) Gather() ([]*dto.MetricFamily, error) {
	read, problem := t.look.families()
	own, err := t.registry.Gather() // after the look: it includes the look's age
	all := slices.Concat(own, read)
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, errors.Join(err, problem)
}

// tellOwn emits the metrics of this process.
func (t *Telemetry) tellOwn(e *emitter) {
	e.gauge("tusk_build_info", "The version of Tusk that runs.", []string{"version"}, 1, tusk.Version())
	t.counts.tell(e)
	t.tellLoops(e)
	t.tellHung(e)
	t.tellPool(e)
	t.tellConflicts(e)
	if age, ok := t.look.age(); ok {
		e.gauge("tusk_read_age_seconds", "How long ago the database was read, for what is told of it.", nil, age.Seconds())
	}
}

// tellPool emits the metrics of the engine's connection pool, if it has one.
func (t *Telemetry) tellPool(e *emitter) {
	if t.look.client == nil {
		return
	}
	pool, ok := store.As[store.Connected](t.look.client.Store())
	if !ok {
		return
	}
	now := pool.Connections()
	e.gauge("tusk_pool_connections", "Connections of this process's pool that are in use.", nil, float64(now.Used))
	e.gauge("tusk_pool_connections_max", "Connections that this process's pool may open.", nil, float64(now.Most))
	e.counter("tusk_pool_waits_total", "How often somebody had to wait for a connection, or for one to be opened.",
		nil, now.Waits)
}

// tellConflicts emits how often the processes are in each other's way, if the engine counts it.
func (t *Telemetry) tellConflicts(e *emitter) {
	if t.look.client == nil {
		return
	}
	if m, ok := store.As[store.Meter](t.look.client.Store()); ok {
		e.counter("tusk_conflicts_total",
			"How often this process had to retry a claim or another call because another process was faster.", nil,
			m.Conflicts())
	}
}

// tellHung emits the number of hung handlers of all workers of the process, if it has any.
func (t *Telemetry) tellHung(e *emitter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := 0
	for _, handlers := range t.hung {
		sum += handlers()
	}
	if len(t.hung) > 0 {
		e.gauge("tusk_hung_handlers",
			"Handlers of this process that ignore the end of their context; their tasks run elsewhere.", nil, float64(sum))
	}
}

func (t *Telemetry) tellLoops(e *emitter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ages := map[string]time.Duration{}
	for _, of := range t.loops {
		for name, age := range of() {
			ages[name] = max(ages[name], age)
		}
	}
	for name, age := range ages {
		e.gauge("tusk_loop_age_seconds", "How long ago each loop of this process last succeeded.", []string{"loop"},
			age.Seconds(), name)
	}
}

func (c *counts) tell(e *emitter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for method, m := range c.calls {
		e.histogram("tusk_call_seconds", "How long calls of the database took.", []string{"call"}, &m.took, method)
		for class, n := range m.failed {
			e.counter("tusk_call_errors_total", "Calls of the database that failed.", []string{"call", "error"}, n,
				method, class)
		}
	}
	for of, n := range c.enqueued.rows {
		e.counter("tusk_enqueued_total", "Tasks enqueued by this process, by what became of them.",
			[]string{"queue", "result"}, n.failed, of.queue, of.result.String())
	}
	for queue, n := range c.claimed.rows {
		e.counter("tusk_claimed_total", "Tasks claimed by this process.", []string{"queue"}, n.failed, queue)
	}
	for of, n := range c.finished.rows {
		for state, count := range n.states {
			// A rate needs two values, so discarded tasks are counted from zero, as soon as the kind is known.
			if count > 0 || store.State(state) == store.Discarded {
				e.counter("tusk_finished_total", "Attempts ended by this process, by where their task went.",
					[]string{"queue", "kind", "state"}, count, of.queue, of.kind, store.State(state).String())
			}
		}
		e.counter("tusk_failed_total", "Attempts that ended with an error.", []string{"queue", "kind"}, n.failed,
			of.queue, of.kind)
	}
	for queue, d := range c.waited.rows {
		e.histogram("tusk_waited_seconds", "How long claimed tasks had been due.", []string{"queue"}, d, queue)
	}
	for kind, d := range c.ran.rows {
		e.histogram("tusk_ran_seconds", "How long handlers ran.", []string{"kind"}, d, kind)
	}
	e.counter("tusk_lost_total", "Outcomes that were refused: the lease was not open.", nil, c.lost)
	e.counter("tusk_admitted_total", "Tasks whose time came, while this process led.", nil, c.admitted)
	e.counter("tusk_rescued_total", "Attempts taken back from dead workers, while this process led.", nil, c.rescued)
	e.counter("tusk_pruned_total", "Finished tasks deleted, while this process led.", nil, c.pruned)
}

// emitter creates metrics. It creates each description once.
type emitter struct {
	out   chan<- prometheus.Metric
	descs map[string]*prometheus.Desc
}

func (e *emitter) desc(name, help string, labels []string) *prometheus.Desc {
	d := e.descs[name]
	if d == nil {
		d = prometheus.NewDesc(name, help, labels, nil)
		e.descs[name] = d
	}
	return d
}

func (e *emitter) gauge(name, help string, labels []string, value float64, values ...string) {
	e.out <- prometheus.MustNewConstMetric(e.desc(name, help, labels), prometheus.GaugeValue, value, values...)
}

func (e *emitter) counter(name, help string, labels []string, value int64, values ...string) {
	e.out <- prometheus.MustNewConstMetric(e.desc(name, help, labels), prometheus.CounterValue, float64(value), values...)
}

// edges are the bounds of histograms. Each is four times the one before, and is the edge of
// a bucket of store.Durations.
var edges = func() (all []time.Duration) {
	for us := int64(64); us <= 64<<24; us *= 4 {
		all = append(all, time.Duration(us)*time.Microsecond)
	}
	return all
}()

func (e *emitter) histogram(name, help string, labels []string, d *store.Durations, values ...string) {
	buckets := make(map[float64]uint64, len(edges))
	for _, edge := range edges {
		buckets[edge.Seconds()] = uint64(d.Below(edge))
	}
	e.out <- prometheus.MustNewConstHistogram(e.desc(name, help, labels), uint64(d.Count), d.Sum.Seconds(),
		buckets, values...)
}
