package ledgers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// settledWithin is how long a worker that signs off waits for its late calls.
const settledWithin = 5 * time.Second

// debt lists the late calls (silent.go) of a server that are not settled. A call is settled when its tasks have been
// taken or handed back.
type debt struct {
	mu     sync.Mutex
	calls  []*request
	passed []string // queues of the claims that skipped the server meanwhile
}

func (d *debt) add(late *request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, late)
}

// passOver reports whether the server has late calls, so that a claim of the queues should skip it.
func (d *debt) passOver(queues []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) == 0 {
		return false
	}
	for _, queue := range queues {
		if !slices.Contains(d.passed, queue) {
			d.passed = append(d.passed, queue)
		}
	}
	return true
}

// settle removes a call and returns the queues of the claims that skipped the server.
func (d *debt) settle(late *request) (passed []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = slices.DeleteFunc(d.calls, func(other *request) bool { return other == late })
	passed, d.passed = d.passed, nil
	close(late.settled)
	return passed
}

// of returns the late calls for a worker in a ledger.
func (d *debt) of(worker store.ID, no int) (calls []*request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, late := range d.calls {
		if late.r.Worker == worker && late.l.no == no {
			calls = append(calls, late)
		}
	}
	return calls
}

// settle ends a late call. A claim that skipped the server may have been the response to a notification of tasks there,
// so settle wakes workers again.
func (s *Store) settle(late *request) {
	if queues := late.at.debt.settle(late); len(queues) > 0 {
		s.listeners.wake(store.Hint{Queues: queues})
	}
}

// awaitSettled waits briefly until the late calls of a worker in a ledger are settled. Tasks that are still leased to a
// worker when it signs off count as crashed.
func (l *ledger) awaitSettled(ctx context.Context, worker store.ID) {
	at, _ := l.whereabouts()
	if at == nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, settledWithin)
	defer cancel()
	for _, late := range at.debt.of(worker, l.no) {
		select {
		case <-late.settled:
		case <-within.Done():
		}
	}
}
