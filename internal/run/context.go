package run

import (
	"context"
	"time"
)

// handlerContext is the context of an attempt's handler. Most handlers never use theirs, and
// creating a context that can end costs more than a short handler does. So the real context is
// created on first use.
type handlerContext Attempt

var _ context.Context = (*handlerContext)(nil)

func (c *handlerContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel == nil {
		c.ctx, c.cancel = context.WithCancelCause(c.ctx)
		if c.stopped != nil || c.over {
			c.cancel(c.stopped)
		}
	}
	return c.ctx
}

// Deadline implements context.Context.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.real().Deadline() }

// Done implements context.Context.
func (c *handlerContext) Done() <-chan struct{} { return c.real().Done() }

// Err implements context.Context.
func (c *handlerContext) Err() error { return c.real().Err() }

// attemptKey is the key under which a handler's context has its attempt.
type attemptKey struct{}

// Value implements context.Context. While nothing has ended the context, its values, and any cause
// of an end, are those of the claim's context, so the real context is not needed.
func (c *handlerContext) Value(key any) any {
	if key == (attemptKey{}) {
		return (*Attempt)(c)
	}
	c.mu.Lock()
	ctx, live := c.ctx, c.stopped == nil && !c.over
	c.mu.Unlock()
	if live {
		return ctx.Value(key)
	}
	return c.real().Value(key)
}

// Linger returns a context that outlasts a handler's by 3 s, for what follows when the handler has
// succeeded although its context has ended. Call done when it is no longer needed.
func Linger(ctx context.Context) (longer context.Context, done func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(3*time.Second, func() { cancel(context.Cause(ctx)) }) })
	return longer, func() { stop(); cancel(nil) }
}
