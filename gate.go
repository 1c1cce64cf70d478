package tusk

import "context"

// gate lets one in at a time. Unlike at a mutex, whoever waits goes away when its context ends: the one inside may be
// waiting for a database that hangs.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits for its turn. The error is the context's.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }
