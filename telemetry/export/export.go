// Package export sends traces and metrics with OpenTelemetry, as configured by the standard
// environment variables: OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER,
// OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and the others of
// the specification.
//
// Unlike the specification, nothing is sent unless an exporter or an endpoint is set.
package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tuskqueue/tusk"
)

// Traces reports whether the environment asks for traces.
func Traces() bool { return asked("TRACES") }

// Metrics reports whether the environment asks for metrics.
func Metrics() bool { return asked("METRICS") }

func asked(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if exporter := os.Getenv("OTEL_" + signal + "_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// Exporter sends until it is stopped. It drops what it cannot deliver, so it never delays a
// task.
type Exporter struct {
	traces  *sdk.TracerProvider   // nil if no traces are sent
	metrics *metric.MeterProvider // nil if no metrics are sent
}

// Start begins to send what the environment asks for: the traces of Tracer, and the metrics
// of the gatherer, which may be nil. Later errors are logged.
func Start(ctx context.Context, metrics prometheus.Gatherer, log *slog.Logger) (*Exporter, error) {
	e := &Exporter{}
	about, err := describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("opentelemetry: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("opentelemetry", "error", err) }))
	if Traces() {
		spans, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: %w", os.Getenv("OTEL_TRACES_EXPORTER"), err)
		}
		e.traces = sdk.NewTracerProvider(sdk.WithBatcher(spans), sdk.WithResource(about))
	}
	if Metrics() && metrics != nil {
		autoexport.WithFallbackMetricProducer(func(context.Context) (metric.Producer, error) {
			return bridge.NewMetricProducer(bridge.WithGatherer(metrics)), nil
		})
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			err = fmt.Errorf("OTEL_METRICS_EXPORTER=%s: %w", os.Getenv("OTEL_METRICS_EXPORTER"), err)
			return nil, errors.Join(err, e.Stop(ctx))
		}
		e.metrics = metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about))
	}
	return e, nil
}

// describe returns the attributes of this process. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES override them.
func describe(ctx context.Context) (*resource.Resource, error) {
	self := resource.WithAttributes(semconv.ServiceName("tusk"), semconv.ServiceVersion(tusk.Version()),
		semconv.ServiceInstanceID(tusk.NewID().String()))
	return resource.New(ctx, resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), self,
		resource.WithFromEnv())
}

// Tracer returns the provider of the traces to send, or nil if the environment asks for none.
func (e *Exporter) Tracer() trace.TracerProvider {
	if e.traces == nil {
		return nil
	}
	return e.traces
}

// Stop sends what is left, for up to five seconds.
func (e *Exporter) Stop(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if e.traces != nil {
		err = e.traces.Shutdown(ctx)
	}
	if e.metrics != nil {
		err = errors.Join(err, e.metrics.Shutdown(ctx))
	}
	if err != nil {
		return fmt.Errorf("opentelemetry: %w", err)
	}
	return nil
}
