package tusk

import "context"

// gate is a mutex whose waiters give up when their contexts end: its holder may be waiting for a database that hangs.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter acquires the gate. The error is the context's.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }
