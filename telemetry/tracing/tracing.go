// Package tracing creates OpenTelemetry spans for the tasks that a client enqueues and a
// worker runs, with the semantic conventions of messaging.
//
// Each call that enqueues has a span "send QUEUE", and each attempt a span "process QUEUE".
// If the first is sampled, its trace context travels with the tasks: the first attempt is
// its child, and a retry begins a new trace that links to it. If it is not sampled, its
// tasks carry no trace context. The attempts of such tasks are children of their claim's
// span "receive QUEUE", and have no spans if that is not sampled.
package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tuskqueue/tusk"
)

// Attributes in addition to those of the conventions.
const (
	KindKey    = attribute.Key("tusk.task.kind")
	AttemptKey = attribute.Key("tusk.task.attempt")
)

// Tracer creates the spans. Create it with New, pass a client's store through Wrap, and set
// it as the worker's Tracer.
type Tracer struct {
	spans trace.Tracer
	w3c   propagation.TraceContext
}

// New creates a tracer that creates its spans with the provider.
func New(provider trace.TracerProvider) *Tracer {
	const name = "github.com/tuskqueue/tusk/telemetry/tracing"
	version := trace.WithInstrumentationVersion(tusk.Version())
	return &Tracer{spans: provider.Tracer(name, version, trace.WithSchemaURL(semconv.SchemaURL))}
}

// system is an attribute of every span.
var system = semconv.MessagingSystemKey.String("tusk")
