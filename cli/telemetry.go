package cli

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/telemetry"
	"github.com/tuskqueue/tusk/telemetry/export"
	"github.com/tuskqueue/tusk/telemetry/tracing"
)

// startTelemetry makes the process count what it does, if it can be scraped or OpenTelemetry's variables request
// metrics, and trace it, if they request traces.
func (app *App) startTelemetry(ctx context.Context, scraped bool) (stop func(), err error) {
	if scraped || export.Metrics() {
		app.metrics = telemetry.New()
	}
	if !export.Traces() && !export.Metrics() {
		return func() {}, nil
	}
	var metrics prometheus.Gatherer
	if app.metrics != nil {
		metrics = app.metrics
	}
	sent, err := export.Start(ctx, metrics, app.Log)
	if err != nil {
		return nil, usage("docs/monitoring.md lists the variables", "%v", err)
	}
	if provider := sent.Tracer(); provider != nil {
		app.tracer = tracing.New(provider)
	}
	return func() {
		if err := sent.Stop(ctx); err != nil {
			app.Log.Warn("stop", "error", err)
		}
	}, nil
}

// observed wraps the store of a process that counts or traces what it does.
func (app *App) observed(s store.Store) store.Store {
	if app.tracer != nil {
		s = app.tracer.Wrap(s)
	}
	if app.metrics != nil {
		s = app.metrics.Wrap(s)
	}
	return s
}

// observeServer makes requests carry on the traces that they belong to.
func (app *App) observeServer(c *server.Config) {
	c.Metrics = app.metrics.Handler()
	if app.tracer != nil {
		c.Around = app.tracer.Handler
	}
}
