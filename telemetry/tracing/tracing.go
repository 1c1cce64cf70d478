// Package tracing makes OpenTelemetry spans of what a client enqueues and a worker runs,
// with the semantic conventions of messaging.
//
// Each call that enqueues is a span "send QUEUE", and each attempt a span "process QUEUE".
// If the first is sampled, its trace context travels with the tasks: the first attempt is
// its child; a retry begins a new trace that links to it. Tasks of a span that is not
// sampled carry nothing. Attempts of tasks that carry nothing are children of their claim's
// span "receive QUEUE", and have no spans if that is not sampled.
package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tuskqueue/tusk"
)

// Attributes beside those of the conventions.
const (
	KindKey    = attribute.Key("tusk.task.kind")
	AttemptKey = attribute.Key("tusk.task.attempt")
)

// Tracer makes the spans. Make it with New: wrap the store that a client is made of in
// Wrap, and make it the worker's Tracer.
type Tracer struct {
	spans trace.Tracer
	w3c   propagation.TraceContext
}

// New makes a tracer whose spans go where the provider sends them.
func New(provider trace.TracerProvider) *Tracer {
	const name = "github.com/tuskqueue/tusk/telemetry/tracing"
	version := trace.WithInstrumentationVersion(tusk.Version())
	return &Tracer{spans: provider.Tracer(name, version, trace.WithSchemaURL(semconv.SchemaURL))}
}

// system is an attribute of every span.
var system = semconv.MessagingSystemKey.String("tusk")
