// Package gate has a mutex for those who may wait for something slow, such as a database, while they
// hold it.
package gate

import "context"

// Gate is a mutex whose waiters give up when their contexts end: its holder may be waiting for
// something that hangs. Make it with New.
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
