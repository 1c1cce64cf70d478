// Package telemetry tells Prometheus what Tusk does: what goes through a store, how full
// the queues are, how old each loop's last success is, how the database is doing.
//
// Wrap a store before a client is made of it, say what the process runs, and serve the
// handler. Labels are bounded: queues and kinds beyond the first are counted as "other".
package telemetry

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tuskqueue/tusk"
)

// Bounds of what is told apart; the rest is summed up as Other.
const (
	MaxQueues = 1000 // in depths
	MaxSeries = 200  // queues, and pairs of queue and kind, in counters and histograms
	Other     = "other"
)

// Every is how old what is read of the database may be. However many scrapers there are,
// it is read no more often.
const Every = 10 * time.Second

// Telemetry counts and tells. Make it with New.
type Telemetry struct {
	counts   counts
	registry *prometheus.Registry

	mu    sync.Mutex
	loops []func() map[string]time.Duration
	hung  []func() int

	look look
}

// New makes a Telemetry that tells of this process.
func New() *Telemetry {
	t := &Telemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(told(t.tellOwn), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return t
}

// Loops adds the ages of loops: Worker.Health, or Leader.Health.
func (t *Telemetry) Loops(ages func() map[string]time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loops = append(t.loops, ages)
}

// Hung adds a worker's number of hung handlers: Worker.Hung.
func (t *Telemetry) Hung(handlers func() int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hung = append(t.hung, handlers)
}

// Watch has it tell of the database of a client as well: depths, workers, health.
func (t *Telemetry) Watch(client *tusk.Client) {
	t.look.mu.Lock()
	defer t.look.mu.Unlock()
	t.look.client = client
}

// Registry is where metrics of the program's own may be added. Gather has them all.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Handler answers scrapes.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 15 * time.Second})
}
