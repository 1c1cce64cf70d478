package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// Claimed implements tusk.Tracer. It creates a span for a claim with tasks that carry no
// trace context. If that is sampled, it is the parent of their attempts. Otherwise neither
// the attempts nor their handlers' calls have spans, and the sampler is asked only once.
func (t *Tracer) Claimed(ctx context.Context, tasks []store.Task, asked time.Time) (context.Context, bool) {
	if !slices.ContainsFunc(tasks, func(task store.Task) bool { return !lifecycle.Traced(task.Settings) }) {
		return ctx, false
	}
	ctx, span := t.spans.Start(ctx, "receive "+tasks[0].Queue, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(asked))
	defer span.End()
	sampled := span.SpanContext().IsSampled()
	if sampled {
		describeReceive(span, tasks)
	}
	return ctx, sampled
}

// Follow implements tusk.Tracer. It creates a span for an attempt. The tasks that the handler
// enqueues, its children and the next stage of its pipeline belong to the attempt's trace.
func (t *Tracer) Follow(next tusk.HandlerFunc) tusk.HandlerFunc {
	return func(ctx context.Context, task *tusk.Task[json.RawMessage]) (err error) {
		ctx, span := t.begin(ctx, task)
		if !span.SpanContext().IsSampled() {
			defer span.End()
			task.TraceContext = nil
			return next(ctx, task)
		}
		describeProcess(span, task)
		carrier := propagation.MapCarrier{}
		t.w3c.Inject(ctx, carrier)
		task.TraceContext = carrier
		returned := false
		defer func() {
			if !returned {
				err = errAway
			}
			conclude(ctx, span, err)
			span.End()
		}()
		err = next(ctx, task)
		returned = true
		return err
	}
}

// asConsumer is the option of every attempt's span. It is allocated once.
var asConsumer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}

var errAway = errors.New("the handler panicked or left its goroutine")

// begin starts the span of an attempt. It is a child of the span that enqueued the task or,
// for a retry, begins a new trace that links to it. If the task carries no trace context, it
// is a child of the claim's span.
func (t *Tracer) begin(ctx context.Context, task *tusk.Task[json.RawMessage]) (context.Context, trace.Span) {
	options := asConsumer
	if len(task.TraceContext) > 0 {
		sent := t.w3c.Extract(ctx, propagation.MapCarrier(task.TraceContext))
		if task.Attempt <= 1 {
			ctx = sent
		} else {
			options = []trace.SpanStartOption{asConsumer[0], trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(sent))}
		}
	}
	return t.spans.Start(ctx, "process "+task.Queue, options...)
}

func describeReceive(span trace.Span, tasks []store.Task) {
	first := &tasks[0]
	span.SetAttributes(system, semconv.MessagingOperationTypeReceive, semconv.MessagingOperationName("receive"),
		semconv.MessagingBatchMessageCount(len(tasks)))
	if slices.ContainsFunc(tasks, func(task store.Task) bool { return task.Queue != first.Queue }) {
		span.SetName("receive")
		return
	}
	span.SetAttributes(semconv.MessagingDestinationName(first.Queue))
}

func describeProcess(span trace.Span, task *tusk.Task[json.RawMessage]) {
	span.SetAttributes(system, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"),
		semconv.MessagingDestinationName(task.Queue), semconv.MessagingMessageID(task.ID.String()),
		KindKey.String(task.Kind), AttemptKey.Int(task.Attempt))
	if !task.Workflow.IsZero() {
		span.SetAttributes(semconv.MessagingMessageConversationID(task.Workflow.String()))
	}
}

// conclude records on the span how the attempt ended, by the same rules as the worker.
func conclude(ctx context.Context, span trace.Span, err error) {
	if err == nil {
		return
	}
	cause := context.Cause(ctx)
	if cause != nil && (!errors.Is(cause, tusk.ErrShutdown) || errors.Is(err, context.Canceled)) {
		err = cause
	}
	if failed, why := failure(err); failed {
		span.SetAttributes(semconv.ErrorType(why))
		span.SetStatus(codes.Error, why.Error())
	} else {
		span.AddEvent(err.Error())
	}
}

// failure reports whether an attempt that ended with err failed, and with what error.
func failure(err error) (bool, error) {
	var snooze *lifecycle.SnoozeError
	var stop *lifecycle.StopError
	var later *lifecycle.RetryError
	switch {
	case errors.As(err, &snooze), errors.Is(err, lifecycle.ErrWait), errors.Is(err, lifecycle.ErrUnknownKind),
		errors.Is(err, tusk.ErrShutdown), errors.Is(err, tusk.ErrCancelled):
		return false, nil
	case errors.As(err, &stop):
		if stop.State == tusk.StateCancelled {
			return false, nil
		}
		if stop.Err == nil {
			return true, errors.New(stop.Reason)
		}
		return true, stop.Err
	case errors.As(err, &later):
		return true, later.Err
	}
	return true, err
}
