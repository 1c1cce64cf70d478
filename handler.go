package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// HandlerFunc runs a task whose args are still JSON. This is the form that middleware sees.
type HandlerFunc func(ctx context.Context, t *Task[json.RawMessage]) error

// Middleware wraps the handlers of a worker, for example for logging, tracing, panic reports, transactions and
// whatever else all handlers share.
type Middleware func(next HandlerFunc) HandlerFunc

// Tracer traces some attempts at no cost to the others; middleware costs each attempt a Task. Package
// telemetry/tracing has an implementation.
type Tracer interface {
	// Claimed is called with the tasks of a claim before they run, and the time at which the worker asked for
	// them. It returns the parent of their handlers' contexts, and whether to trace all of them. Tasks that carry
	// a trace context are traced in any case.
	Claimed(ctx context.Context, tasks []store.Task, asked time.Time) (context.Context, bool)
	// Follow wraps the handlers of the attempts that are traced.
	Follow(next HandlerFunc) HandlerFunc
}

// Mux maps each kind to its handler. Register all handlers before creating a worker with it.
type Mux struct {
	handlers  map[string]*handler
	pipelines []*Pipeline // whose stages are among the handlers
	err       error       // the first mistake made in registering
}

type handler struct {
	run     func(ctx context.Context, d delivery) error
	timeout time.Duration
	stall   time.Duration
	retry   lifecycle.RetryFunc
	streams bool // reads its args as a Content
}

// NewMux creates an empty mux.
func NewMux() *Mux { return &Mux{handlers: map[string]*handler{}} }

// Kinds lists the kinds that have a handler, in alphabetical order.
func (m *Mux) Kinds() []string { return slices.Sorted(maps.Keys(m.handlers)) }

// HandlerOption sets an option of one handler.
type HandlerOption func(*handler)

// WithTimeout limits the duration of each attempt, unless the task has a timeout of its own. The handler's context
// then ends, with ErrTimeout as its cause.
func WithTimeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// WithStallTimeout limits how long an attempt may go without a sign of life, unless the task has a stall timeout
// of its own. The handler's context then ends, with ErrStalled as its cause. SetProgress, a line of Logger and
// Alive are signs of life.
func WithStallTimeout(d time.Duration) HandlerOption { return func(h *handler) { h.stall = d } }

// WithRetry replaces the task's backoff with a function. It returns the delay before the next attempt, after
// attempt n failed with err.
func WithRetry(delay func(n int, err error) time.Duration) HandlerOption {
	return func(h *handler) { h.retry = delay }
}

// Handle registers the handler of the kind that T names. NewWorker reports mistakes, such as a nil function or a
// kind that already has a handler.
func Handle[T Args](m *Mux, fn func(ctx context.Context, t *Task[T]) error, options ...HandlerOption) {
	if kind, ok := kindNamedBy[T](m); ok {
		HandleKind(m, kind, fn, options...)
	}
}

// kindNamedBy returns the kind that T names. Without one, NewWorker reports the mistake.
func kindNamedBy[T Args](m *Mux) (kind string, ok bool) {
	defer func() {
		if p := recover(); p != nil && m.err == nil {
			m.err = invalid("handler", "invalid_type", "of %v cannot ask it for its kind (Kind panics: %v): "+
				"take the type itself, not a pointer, or name the kind with HandleKind", reflect.TypeFor[T](), p)
		}
	}()
	var args T
	return args.Kind(), true
}

// HandleFunc registers a plain function as the handler of the kind that T names.
func HandleFunc[T Args](m *Mux, fn func(ctx context.Context, args T) error, options ...HandlerOption) {
	kind, ok := kindNamedBy[T](m)
	if !ok {
		return
	}
	m.add(kind, fn == nil, func(ctx context.Context, d delivery) error {
		var args T
		if err := decodeArgs(d.args, &args); err != nil {
			return err
		}
		return fn(ctx, args)
	}, options)
}

// HandleKind registers the handler of a kind by name. T may be any type that JSON decodes into; json.RawMessage
// receives the args unchanged, and Content receives them as a stream.
func HandleKind[T any](m *Mux, kind string, fn func(ctx context.Context, t *Task[T]) error, options ...HandlerOption) {
	var none T
	if _, streams := any(none).(Content); streams {
		options = append(options, func(h *handler) { h.streams = true })
	}
	m.add(kind, fn == nil, func(ctx context.Context, d delivery) error {
		t := &Task[T]{attempt: d.attempt, client: d.client}
		if err := d.describe(&t.TaskInfo); err != nil {
			return err
		}
		var err error
		if content, streams := any(&t.Args).(*Content); streams {
			*content, err = d.content()
		} else {
			err = decodeArgs(d.args, &t.Args)
		}
		if err != nil {
			return err
		}
		return fn(ctx, t)
	}, options)
}

func (m *Mux) add(kind string, missing bool, run func(ctx context.Context, d delivery) error, options []HandlerOption) {
	if err := m.check(kind, missing); err != nil {
		if m.err == nil {
			m.err = err
		}
		return
	}
	h := &handler{run: run}
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

// delivery is a task on its way to its handler.
type delivery struct {
	task    *store.Task
	info    *TaskInfo // task information as middleware left it; nil means what task says
	args    json.RawMessage
	attempt *run.Attempt
	client  *Client
}

// describe fills in the information that the handler gets about its task.
func (d delivery) describe(info *TaskInfo) error {
	if d.info != nil {
		*info = *d.info
		return nil
	}
	return info.read(d.task)
}

// content returns the args for a handler that reads them as a stream.
func (d delivery) content() (Content, error) {
	if payload.Reserved(d.args) { // as they are stored
		return d.client.argsOf(d.task)
	}
	return Content{text: d.args}, nil
}

// decodeArgs decodes the JSON of args into the handler's value.
func decodeArgs[T any](args []byte, into *T) error {
	if raw, ok := any(into).(*json.RawMessage); ok {
		*raw = args
		return nil
	}
	d := decoders.Get().(*decoder)
	if d.decode(args, into) {
		if len(args) <= mostKept {
			decoders.Put(d)
		}
		return nil
	}
	*into = *new(T)
	if err := json.Unmarshal(args, into); err != nil {
		return fmt.Errorf("args do not fit the handler's type %T: %w", *into, err)
	}
	return nil
}

// mostKept is the maximum size of args whose decoder is kept for reuse.
const mostKept = 64 << 10

// decoder does the same as json.Unmarshal, but can be reused: the allocations of each call are most of the cost of
// a short task. As with Unmarshal, an UnmarshalJSON that keeps its input must copy it.
type decoder struct {
	text bytes.Reader
	json *json.Decoder
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.json = json.NewDecoder(&d.text)
	return d
}}

// decode reports whether decoding succeeded. If not, the decoder must not be used again.
func (d *decoder) decode(text []byte, into any) bool {
	d.text.Reset(text)
	before := d.json.InputOffset()
	return d.json.Decode(into) == nil && d.json.InputOffset()-before == int64(len(text))
}
