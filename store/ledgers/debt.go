package ledgers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// settledWithin is how long a worker that signs off waits for its late calls, in all ledgers together.
const settledWithin = 5 * time.Second

// debt lists the late calls (silent.go) of a server that are not settled. A call is settled when its tasks have been
// taken or handed back.
type debt struct {
	mu     sync.Mutex
	calls  []*request
	passed []string // queues of the claims that skipped ledgers of the server meanwhile
}

func (d *debt) add(late *request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, late)
}

// passOver reports whether a claim of the queues should skip a ledger of the server: a call to it is late, or a call to
// another ledger is and the probe has not shown yet that this one answers.
func (d *debt) passOver(l *ledger, queues []string) bool {
	probed := l.probed()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(d.calls, func(late *request) bool { return probed || late.l == l }) {
		return false
	}
	for _, queue := range queues {
		if !slices.Contains(d.passed, queue) {
			d.passed = append(d.passed, queue)
		}
	}
	return true
}

// settle removes a call and returns the queues of the claims that skipped ledgers of the server.
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

// settle ends a late call. A claim that skipped a ledger may have been the response to a notification of tasks there,
// so settle wakes workers again.
func (s *Store) settle(late *request) {
	if queues := late.at.debt.settle(late); len(queues) > 0 {
		s.listeners.wake(store.Hint{Queues: queues})
	}
}

// awaitSettled waits until the late calls of a worker in a ledger are settled, or until ctx ends. Tasks that are still
// leased to a worker when it signs off count as crashed.
func (l *ledger) awaitSettled(ctx context.Context, worker store.ID) {
	at, _ := l.whereabouts()
	if at == nil {
		return
	}
	for _, late := range at.debt.of(worker, l.no) {
		select {
		case <-late.settled:
		case <-ctx.Done():
		}
	}
}
