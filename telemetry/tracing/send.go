package tracing

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// Wrap returns a store that creates a span for each call that enqueues, as a child of the
// span in the call's context.
func (t *Tracer) Wrap(s store.Store) store.Store {
	traced := &traced{Store: s, tracer: t}
	if x, ok := s.(store.Exchanger); ok {
		return &exchanging{traced, x}
	}
	return traced
}

// traced is a store whose enqueues are traced.
type traced struct {
	store.Store
	tracer *Tracer
}

// exchanging is a traced store of an engine with store.Exchanger.
type exchanging struct {
	*traced
	store.Exchanger
}

// Park implements store.Parker.
func (s *traced) Park(p *store.Parked) (recall func()) { return store.Park(s.Store, p) }

// Unwrap lets store.As find the capabilities of the engine.
func (s *traced) Unwrap() store.Store { return s.Store }

// Enqueue implements store.Enqueuer.
func (s *traced) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	err = s.tracer.send(ctx, tasks, func(ctx context.Context, tasks []store.NewTask) error {
		results, err = s.Store.Enqueue(ctx, tasks)
		return err
	})
	return results, err
}

// PutRecord implements store.Recorder.
func (s *traced) PutRecord(
	ctx context.Context, p store.PutRecord,
) (version int64, results []store.Enqueued, err error) {
	err = s.tracer.send(ctx, p.Tasks, func(ctx context.Context, tasks []store.NewTask) error {
		p.Tasks = tasks
		version, results, err = s.Store.PutRecord(ctx, p)
		return err
	})
	return version, results, err
}

// Tx implements store.Transactor if the engine does.
func (s *traced) Tx(tx any) (store.Tx, error) {
	engine, ok := store.As[store.Transactor](s.Store)
	if !ok {
		return nil, fmt.Errorf("transaction: %w", store.ErrUnsupported)
	}
	inside, err := engine.Tx(tx)
	if err != nil {
		return nil, err
	}
	return &tracedTx{inside, s.tracer}, nil
}

type tracedTx struct {
	store.Tx
	tracer *Tracer
}

func (x *tracedTx) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	err = x.tracer.send(ctx, tasks, func(ctx context.Context, tasks []store.NewTask) error {
		results, err = x.Tx.Enqueue(ctx, tasks)
		return err
	})
	return results, err
}

// send calls put inside a span. If that is sampled, the tasks carry its context.
func (t *Tracer) send(
	ctx context.Context, tasks []store.NewTask, put func(context.Context, []store.NewTask) error,
) error {
	if len(tasks) == 0 {
		return put(ctx, tasks)
	}
	ctx, span := t.spans.Start(ctx, "send "+tasks[0].Queue, trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	if !span.SpanContext().IsSampled() {
		return put(ctx, tasks)
	}
	describeSend(span, tasks)
	tasks, err := t.stamp(ctx, tasks)
	if err == nil {
		err = put(ctx, tasks)
	}
	if err != nil {
		span.SetAttributes(semconv.ErrorType(err))
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// describeSend sets the attributes that all tasks of a call have in common.
func describeSend(span trace.Span, tasks []store.NewTask) {
	first := &tasks[0]
	span.SetAttributes(system, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"))
	if all(tasks, func(t *store.NewTask) bool { return t.Queue == first.Queue }) {
		span.SetAttributes(semconv.MessagingDestinationName(first.Queue))
	} else {
		span.SetName("send")
	}
	if all(tasks, func(t *store.NewTask) bool { return t.Kind == first.Kind }) {
		span.SetAttributes(KindKey.String(first.Kind))
	}
	if len(tasks) == 1 {
		span.SetAttributes(semconv.MessagingMessageID(first.ID.String()))
	} else {
		span.SetAttributes(semconv.MessagingBatchMessageCount(len(tasks)))
	}
	if !first.Workflow.IsZero() {
		span.SetAttributes(semconv.MessagingMessageConversationID(first.Workflow.String()))
	}
}

func all(tasks []store.NewTask, is func(*store.NewTask) bool) bool {
	for i := range tasks {
		if !is(&tasks[i]) {
			return false
		}
	}
	return true
}

// stamp returns tasks that carry the context of the span. All get the same context, so that
// an engine can still store equal tasks together.
func (t *Tracer) stamp(ctx context.Context, tasks []store.NewTask) ([]store.NewTask, error) {
	carrier := propagation.MapCarrier{}
	t.w3c.Inject(ctx, carrier)
	tasks = slices.Clone(tasks)
	var before, after []byte
	for i := range tasks {
		if i == 0 || !bytes.Equal(tasks[i].Settings, before) {
			var err error
			before = tasks[i].Settings
			if after, err = lifecycle.WithTraceContext(before, carrier); err != nil {
				return nil, err
			}
		}
		tasks[i].Settings = after
	}
	return tasks, nil
}
