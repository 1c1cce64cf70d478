package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
)

// HandlerFunc runs a task whose args are still JSON: the form that middleware sees.
type HandlerFunc func(ctx context.Context, t *Task[json.RawMessage]) error

// Middleware wraps the handlers of a worker: for logging, tracing, panics that
// should be told of, transactions, and whatever else all handlers share.
type Middleware func(next HandlerFunc) HandlerFunc

// Mux knows the handler of each kind. Register all handlers before a worker is
// made with it.
type Mux struct {
	handlers  map[string]*handler
	pipelines []*Pipeline // whose stages are among them
	err       error       // the first mistake made in registering
}

type handler struct {
	run     HandlerFunc
	timeout time.Duration
	retry   lifecycle.RetryFunc
}

// NewMux makes an empty mux.
func NewMux() *Mux { return &Mux{handlers: map[string]*handler{}} }

// Kinds lists the kinds that have a handler, in alphabetical order.
func (m *Mux) Kinds() []string { return slices.Sorted(maps.Keys(m.handlers)) }

// HandlerOption sets something about one handler.
type HandlerOption func(*handler)

// WithTimeout bounds each attempt, unless the task itself says otherwise: its
// context ends then, with ErrTimeout as its cause.
func WithTimeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// WithRetry replaces the task's backoff by a function: it returns the delay
// before the next attempt, after attempt n failed with err.
func WithRetry(delay func(n int, err error) time.Duration) HandlerOption {
	return func(h *handler) { h.retry = delay }
}

// Handle registers the handler of the kind that T names. A mistake (no function,
// a kind that has a handler already) is reported by NewWorker.
func Handle[T Args](m *Mux, fn func(ctx context.Context, t *Task[T]) error, options ...HandlerOption) {
	var args T
	HandleKind(m, args.Kind(), fn, options...)
}

// HandleFunc registers a plain function as the handler of the kind that T names.
func HandleFunc[T Args](m *Mux, fn func(ctx context.Context, args T) error, options ...HandlerOption) {
	if fn == nil {
		Handle[T](m, nil, options...)
		return
	}
	Handle(m, func(ctx context.Context, t *Task[T]) error { return fn(ctx, t.Args) }, options...)
}

// HandleKind registers the handler of a kind by its name, with args of any type
// that JSON decodes to; json.RawMessage takes them as they are.
func HandleKind[T any](m *Mux, kind string, fn func(ctx context.Context, t *Task[T]) error, options ...HandlerOption) {
	if err := m.check(kind, fn == nil); err != nil {
		if m.err == nil {
			m.err = err
		}
		return
	}
	h := &handler{run: decoding(fn)}
	for _, option := range options {
		option(h)
	}
	m.handlers[kind] = h
}

func (m *Mux) check(kind string, missing bool) error {
	if missing {
		return invalid("handler", "missing", "of kind %q is nil", kind)
	}
	if m.handlers[kind] != nil {
		return invalid("handler", "duplicate_kind", "of kind %q is registered twice", kind)
	}
	return ValidateName("kind", kind)
}

func decoding[T any](fn func(ctx context.Context, t *Task[T]) error) HandlerFunc {
	return func(ctx context.Context, t *Task[json.RawMessage]) error {
		typed := &Task[T]{TaskInfo: t.TaskInfo, attempt: t.attempt, client: t.client}
		if raw, ok := any(&typed.Args).(*json.RawMessage); ok {
			*raw = t.Args
		} else if err := json.Unmarshal(t.Args, &typed.Args); err != nil {
			return fmt.Errorf("args do not fit the handler's type %T: %w", typed.Args, err)
		}
		return fn(ctx, typed)
	}
}
