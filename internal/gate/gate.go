// Package gate provides a mutex that may be held during slow calls, such as those to a database.
package gate

import "context"

// Gate is a mutex whose waiters give up when their contexts end, because its holder may be in a call
// that hangs. Create it with New.
type Gate chan struct{}

// New returns an open gate.
func New() Gate { return make(Gate, 1) }

// Enter acquires the gate. The error is the context's.
func (g Gate) Enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave releases the gate.
func (g Gate) Leave() { <-g }
