package tusk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/run"
)

// BatchOptions configure how a batch handler collects its tasks.
type BatchOptions struct {
	// Max is the maximum number of tasks in one call. Default: 100. Each task takes one of the worker's slots
	// while it waits, so the worker's Concurrency also limits a call.
	Max int
	// Linger is how long the first task of a call waits for others. Default: 10 ms.
	Linger time.Duration
}

// HandleBatch registers a handler that takes many tasks in one call, for work that is cheaper together, such as a
// bulk insert or a request to a service that takes lists. fn returns an error for each task, in order (nil means
// success), or an empty slice if all succeeded. Each task is retried, snoozed or discarded according to its own
// error.
//
// The call's context ends when the contexts of all its tasks have ended. A sign of life of one task counts for all
// tasks of the call.
func HandleBatch[T Args](
	m *Mux, fn func(ctx context.Context, tasks []*Task[T]) []error, o BatchOptions, options ...HandlerOption,
) {
	kind, ok := kindNamedBy[T](m)
	if !ok {
		return
	}
	if fn == nil {
		HandleKind[T](m, kind, nil, options...)
		return
	}
	setDefault(&o.Max, 100)
	setDefault(&o.Linger, 10*time.Millisecond)
	g := &gathering[T]{fn: fn, options: o}
	HandleKind(m, kind, g.handle, options...)
}

// gathering collects the attempts of one kind.
type gathering[T any] struct {
	fn      func(ctx context.Context, tasks []*Task[T]) []error
	options BatchOptions

	mu   sync.Mutex
	open *call[T] // still accepts tasks; if nil, the next task opens one
}

// call is one call of the handler. The attempt that opened it makes it; the others wait for its result.
type call[T any] struct {
	run.Call
	tasks    []*Task[T]
	contexts []context.Context
	full     chan struct{} // closed when it accepts no more tasks
	done     chan struct{} // closed when errs is set
	errs     []error
}

func (g *gathering[T]) handle(ctx context.Context, t *Task[T]) error {
	c, place := g.join(ctx, t)
	if place == 0 {
		linger := time.NewTimer(g.options.Linger)
		defer linger.Stop()
		select {
		case <-c.full:
		case <-linger.C:
			g.close(c)
		}
		c.make(g.fn)
	}
	<-c.done
	return c.errs[place]
}

func (g *gathering[T]) join(ctx context.Context, t *Task[T]) (c *call[T], place int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = &call[T]{full: make(chan struct{}), done: make(chan struct{})}
	}
	c, place = g.open, len(g.open.tasks)
	t.attempt.Share(&c.Call)
	c.tasks, c.contexts = append(c.tasks, t), append(c.contexts, ctx)
	if len(c.tasks) >= g.options.Max {
		close(c.full)
		g.open = nil
	}
	return c, place
}

func (g *gathering[T]) close(c *call[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == c {
		close(c.full)
		g.open = nil
	}
}

// make makes the call. If the handler panics or ends its goroutine, all its tasks fail, and the panic continues in
// the attempt that made the call.
func (c *call[T]) make(fn func(ctx context.Context, tasks []*Task[T]) []error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(c.contexts[0]))
	defer cancel(nil)
	go c.cancelAfterAll(ctx, cancel)
	c.errs = same(len(c.tasks), errors.New("the batch's handler panicked or left its goroutine"))
	defer close(c.done)
	switch errs := fn(ctx, c.tasks); len(errs) {
	case 0:
		c.errs = same(len(c.tasks), nil)
	case len(c.tasks):
		c.errs = errs
	default:
		c.errs = same(len(c.tasks), fmt.Errorf("the batch's handler returned %d errors for %d tasks", len(errs),
			len(c.tasks)))
	}
}

func (c *call[T]) cancelAfterAll(call context.Context, cancel context.CancelCauseFunc) {
	for _, ctx := range c.contexts {
		select {
		case <-ctx.Done():
		case <-call.Done():
			return
		}
	}
	c.Tell()
	cancel(context.Cause(c.contexts[0]))
}

func same(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
