package mysql

import (
	"database/sql"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// lease is what one claim took.
type lease struct {
	token     store.Token
	worker    store.ID
	claimedAt int64
	spans     []span
}

func (l *lease) has(r ref) bool {
	for _, s := range l.spans {
		if s.has(r) {
			return true
		}
	}
	return false
}

func readLease(rows *sql.Rows) (*lease, error) {
	l := &lease{}
	var token, worker, spans []byte
	err := rows.Scan(&token, &worker, &l.claimedAt, &spans)
	if err != nil {
		return nil, err
	}
	copy(l.token[:], token)
	copy(l.worker[:], worker)
	l.spans, err = decodeSpans(spans)
	return l, err
}

// readLeases runs a statement that returns leases.
func (w *work) readLeases(text string, args ...any) (found []*lease, err error) {
	err = w.ask(func(rows *sql.Rows) error {
		l, err := readLease(rows)
		found = append(found, l)
		return err
	}, text, args...)
	return found, err
}

// open returns the tasks that a lease still holds, in the order in which they
// were claimed.
func (w *work) open(l *lease) (tasks []store.Task, err error) {
	found, err := w.read("task.read", l.spans)
	if err != nil {
		return nil, err
	}
	for _, r := range refsOf(l.spans) {
		if t := found[ref{r.place, r.n, 0}]; t != nil && t.lap == r.lap && t.State == store.Available {
			tasks = append(tasks, t.lent(l))
		}
	}
	return tasks, nil
}

// read reads the tasks of spans, whatever their lap.
func (w *work) read(name string, spans []span) (map[ref]*row, error) {
	found := map[ref]*row{}
	err := inParts(spans, maxSpans, func(part []span) error {
		text, args := among(name, part)
		return w.ask(func(rows *sql.Rows) error {
			r, err := readRow(rows)
			if err == nil {
				found[ref{r.place, r.n, 0}] = r
			}
			return err
		}, text, args...)
	})
	return found, err
}

// lent returns a task as the holder of a lease knows it.
func (r *row) lent(l *lease) store.Task {
	t := r.Task
	t.State, t.Attempt = store.Running, r.Attempt+1
	t.ClaimedAt, t.Lease, t.Worker = instant(l.claimedAt), l.token, l.worker
	return t
}

// leases remembers the open leases of this process, so that a finish need not
// look for them. Whatever is not found here is found in the database.
type leases struct {
	mu   sync.Mutex
	held map[store.Token]*heldLease
	over []store.Token // that are to be deleted
}

// maxOver is how many leases of which nothing is open are kept, to be deleted
// together. If that never happens, the leader sweeps them.
const maxOver = 16

// bury takes note of leases that are over, and returns those to delete now.
func (h *leases) bury(tokens []store.Token) (now []any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over = append(h.over, tokens...); len(h.over) < maxOver {
		return nil
	}
	for _, token := range h.over {
		now = append(now, token[:])
	}
	h.over = nil
	return now
}

type heldLease struct {
	lease
	tasks map[store.ID]ref // that have not been finished
}

func (h *leases) add(l lease, tasks map[store.ID]ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[l.token] = &heldLease{l, tasks}
}

// find returns a lease and where its task is.
func (h *leases) find(token store.Token, id store.ID) (l lease, r ref, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[token]
	if held == nil {
		return l, r, false
	}
	r, known = held.tasks[id]
	return held.lease, r, known
}

// left returns how many tasks of a lease are not finished; -1: it is not known.
func (h *leases) left(token store.Token) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.held[token]; held != nil {
		return len(held.tasks)
	}
	return -1
}

// end forgets a finished task.
func (h *leases) end(token store.Token, id store.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.held[token]; held != nil {
		if delete(held.tasks, id); len(held.tasks) == 0 {
			delete(h.held, token)
		}
	}
}

// drop forgets a lease, so that what happens to it is read from the database.
func (h *leases) drop(token store.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, token)
}

// leave forgets the leases of a worker.
func (h *leases) leave(worker store.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for token, held := range h.held {
		if held.worker == worker {
			delete(h.held, token)
		}
	}
}
