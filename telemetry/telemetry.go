// Package telemetry provides metrics of Tusk for Prometheus: the calls and tasks of a store,
// the depths of queues, the age of each loop's last success, and the health of the database.
//
// Wrap a store before creating a client with it, add what the process runs, and serve the
// handler. Labels are bounded: queues and kinds beyond a maximum are counted as "other".
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

// The maximum numbers of separate series. The rest is added up as Other.
const (
	MaxQueues = 1000 // queues with a depth
	MaxSeries = 200  // queues, kinds, and pairs of them, in each counter and histogram
	Other     = "other"
)

// Every is the minimum interval between reads of the database, however many scrapers there
// are.
const Every = 10 * time.Second

// Telemetry counts calls and serves metrics. Create it with New.
type Telemetry struct {
	counts   counts
	registry *prometheus.Registry

	mu    sync.Mutex
	loops []func() map[string]time.Duration
	hung  []func() int

	look look
}

// New creates a Telemetry for this process.
func New() *Telemetry {
	t := &Telemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(told(t.tellOwn), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return t
}

// Loops adds the ages of loops: pass Worker.Health or Leader.Health.
func (t *Telemetry) Loops(ages func() map[string]time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loops = append(t.loops, ages)
}

// Hung adds a worker's number of hung handlers: pass Worker.Hung.
func (t *Telemetry) Hung(handlers func() int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hung = append(t.hung, handlers)
}

// Watch adds metrics of a client's database: depths, workers and health.
func (t *Telemetry) Watch(client *tusk.Client) {
	t.look.mu.Lock()
	defer t.look.mu.Unlock()
	t.look.client = client
}

// Registry returns the registry, to which the program can add its own metrics.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Handler answers scrapes.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 15 * time.Second})
}
