package mysql

import (
	"database/sql"
	"slices"
	"strings"
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// lease is the tasks of one claim.
type lease struct {
	token     store.Token
	worker    store.ID
	claimedAt int64
	spans     []span
	damaged   bool // it has further spans, which cannot be read
}

func (l *lease) key() leaseKey { return leaseKey{l.token, l.claimedAt} }

func (l *lease) has(r ref) bool {
	for _, s := range l.spans {
		if s.has(r) {
			return true
		}
	}
	return false
}

// lease reads a lease. A damaged lease contains what can be read of it, and is kept.
func (s *Store) lease(rows *sql.Rows) (*lease, error) {
	l := &lease{}
	var token, worker, spans []byte
	err := rows.Scan(&token, &worker, &l.claimedAt, &spans)
	if err != nil {
		return nil, err
	}
	copy(l.token[:], token)
	copy(l.worker[:], worker)
	l.spans, l.damaged = s.spansIn(spans, "tusk_lease, token "+l.token.String()), len(spans)%spanBytes != 0
	return l, nil
}

// readLeases runs a statement that returns leases.
func (w *work) readLeases(text string, args ...any) (found []*lease, err error) {
	err = w.ask(func(rows *sql.Rows) error {
		l, err := w.store.lease(rows)
		found = append(found, l)
		return err
	}, text, args...)
	return found, err
}

// stage is how far a task has got according to its row. InnoDB may show a task as it was before it became available;
// see reread.
type stage struct {
	lap   int32
	state store.State
}

// holds reports whether an attempt in the given lap is open.
func (s stage) holds(lap int32) bool { return s.lap == lap && s.state == store.Available }

// past reports whether an attempt in the given lap is definitely over. A row that shows the task still waiting, or in
// an older lap, is outdated and says nothing about that, because the task became available before it was leased.
func (s stage) past(lap int32) bool { return s.lap > lap || s.lap == lap && s.state.Finished() }

// open returns the tasks that a lease still holds, in the order in which they were claimed. It also returns how many of
// its tasks have no row, no row yet, or an outdated row.
func (w *work) open(l *lease) (tasks []store.Task, unseen int, err error) {
	found, err := w.read("task.read", l.spans)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range refsOf(l.spans) {
		switch t := found[r.anyLap()]; {
		case t == nil:
			unseen++
		case t.stage().holds(r.lap):
			tasks = append(tasks, t.lent(l))
		case !t.stage().past(r.lap):
			unseen++
		}
	}
	return tasks, unseen, nil
}

// read reads the tasks of spans, in whatever lap they are.
func (w *work) read(name string, spans []span) (map[ref]*row, error) {
	found := map[ref]*row{}
	err := inParts(spans, maxSpans, func(part []span) error {
		text, args := among(name, part)
		return w.ask(func(rows *sql.Rows) error {
			r, err := readRow(rows)
			if err == nil {
				found[r.anyLap()] = r
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

// leases remembers the open leases of this process, so that a finish need not look them up. It decides nothing: a lease
// that is not found here is found in the database, and a finish of a task that is no longer in the lap of its lease
// finds nothing to change.
type leases struct {
	mu   sync.Mutex
	held map[store.Token]*heldLease
	over []leaseKey // leases to be deleted
}

// leaseKey names one lease uniquely. A token alone does not: it is used again if a claim is repeated after everything
// that it got has ended.
type leaseKey struct {
	token     store.Token
	claimedAt int64
}

type heldLease struct {
	lease
	tasks   map[store.ID]ref // tasks that are not finished
	doubted bool             // some were finished in a transaction that may roll back
}

// maxOver is how many leases without open tasks are collected, to be deleted together. The leader sweeps up those that
// are forgotten.
const maxOver = 16

func (h *leases) add(l lease, tasks map[store.ID]ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[l.token] = &heldLease{lease: l, tasks: tasks}
}

// find returns a lease, and where one of its tasks is.
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

// end forgets a task that is no longer open, and a lease with its last task. The lease may be deleted only if all its
// tasks ended in committed transactions.
func (h *leases) end(token store.Token, id store.ID, certain bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[token]
	if held == nil {
		return
	}
	held.doubted = held.doubted || !certain
	if delete(held.tasks, id); len(held.tasks) > 0 {
		return
	}
	delete(h.held, token)
	if !held.doubted {
		h.over = append(h.over, leaseKey{token, held.claimedAt})
	}
}

// bury returns the leases to delete now.
func (h *leases) bury() (over []leaseKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.over) < maxOver {
		return nil
	}
	over, h.over = h.over, nil
	return over
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

// deleteLeases deletes leases without open tasks.
func (w *work) deleteLeases(over []leaseKey) {
	for part := range slices.Chunk(over, maxSpans) {
		var args []any
		for _, l := range part {
			args = append(args, l.token[:], l.claimedAt)
		}
		condition := strings.TrimSuffix(strings.Repeat("token = ? and claimed_at = ? or ", len(part)), " or ")
		w.do(strings.Replace(q("lease.delete"), ":leases", condition, 1), args...)
	}
}
