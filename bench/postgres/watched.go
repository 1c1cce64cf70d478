package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/telemetry"
	"github.com/tuskqueue/tusk/telemetry/export"
	"github.com/tuskqueue/tusk/telemetry/tracing"
)

// watched produces and consumes with metrics that are scraped every second and with traces, 1 % of
// which are sampled and sent to a receiver. It compares that with the same run without.
func watched(ctx context.Context, b *bench) (bars []bar, err error) {
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(200_000, 1_000_000)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer receiver.Close()
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL,
		"OTEL_METRICS_EXPORTER": "none",
		"OTEL_TRACES_SAMPLER":   "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	all, err := compare(ctx, b, "watched", []contender{
		{"metrics and traces", func(ctx context.Context, pool *pgxpool.Pool, clock *clock) (int, error) {
			w, err := newWatch(ctx)
			if err != nil {
				return 0, err
			}
			defer w.stop(ctx)
			return tuskRun{tasks: tasks, batch: 500, watch: w}.run(ctx, pool, clock)
		}},
		{"neither", tuskRun{tasks: tasks, batch: 500}.run},
	})
	if err != nil {
		return nil, err
	}
	with, without := all["metrics and traces"], all["neither"]
	return []bar{
		atLeast(0.97, ratios(with, without, speed), "tasks/s with metrics and traces (1 % sampled), of those without",
			"%.0f to %.0f", medianOf(with, speed), medianOf(without, speed)),
		atMost(1/0.97, ratios(with, without, cpu), "CPU per task with metrics and traces, over that without",
			"%.2f to %.2f us", medianOf(with, cpu), medianOf(without, cpu)),
	}, nil
}

// watch is the observability that a run has.
type watch struct {
	metrics *telemetry.Telemetry
	tracer  *tracing.Tracer
	sent    *export.Exporter
	scraped chan struct{} // closed to end the scrapes
}

func newWatch(ctx context.Context) (*watch, error) {
	sent, err := export.Start(ctx, nil, discard)
	if err != nil {
		return nil, err
	}
	return &watch{metrics: telemetry.New(), tracer: tracing.New(sent.Tracer()), sent: sent, scraped: make(chan struct{})},
		nil
}

// wrap returns a store whose calls are counted and traced.
func (w *watch) wrap(s store.Store) store.Store { return w.metrics.Wrap(w.tracer.Wrap(s)) }

// begin scrapes every second until the watch stops.
func (w *watch) begin(client *tusk.Client) {
	w.metrics.Watch(client)
	handler := w.metrics.Handler()
	go func() {
		for tick := time.Tick(time.Second); ; {
			select {
			case <-w.scraped:
				return
			case <-tick:
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
			}
		}
	}()
}

func (w *watch) stop(ctx context.Context) {
	close(w.scraped)
	_ = w.sent.Stop(ctx)
}
