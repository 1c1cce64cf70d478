package mysql

import (
	"cmp"
	"database/sql"
	"errors"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// work is a transaction and what it adds to the sums.
type work struct {
	session
	gathered
	now     int64 // by the server's clock; 0: not asked yet
	covered int64 // how many tasks were listed one by one: each comes a microsecond later
	sums    delta
	user    bool            // the transaction is a user's: its isolation is unknown
	hasty   bool            // it waits for no lock that a user's transaction may hold
	passes  bool            // and passes over what is locked
	woken   map[string]bool // what to ring for: queues that get available tasks, and names of package bell
	echoes  bool            // the answer tells what another transaction has stored

	batch    *rules.Batch                // what decides; nil: nothing does
	keys     map[rules.KeyName]*identity // that are locked
	rows     map[ref]*row                // that are locked, or new
	ids      map[store.ID]*row           // the same by id
	where    map[store.ID]ref            // of tasks that were found, but not locked yet
	exact    map[store.ID]bool           // tasks of which it matters whether they are available or running
	lent     map[store.ID]*attempt       // tasks whose attempts end
	groups   map[group]bool              // groups of errors that are known, for tasks that are restored
	dropping days                        // finished tasks of these are not to be seen

	after []func() // what to do once it has been committed

	plain  []*end     // that are written last, all or none
	buried []leaseKey // with them: leases that are done with
}

// clock returns the server's time, the same for the whole transaction.
func (w *work) clock() (int64, error) {
	if w.now != 0 {
		return w.now, nil
	}
	err := w.ask(func(rows *sql.Rows) error { return rows.Scan(&w.now) }, q("clock"))
	if err == nil && w.now == 0 {
		err = errors.New("the server's clock cannot be read")
	}
	return w.now, err
}

// locking returns a statement that locks rows, and fails at once where it must not wait.
func (w *work) locking(text string) string {
	switch {
	case w.passes:
		return text + " skip locked"
	case w.hasty:
		return text + " nowait"
	}
	return text
}

// finale ends a transaction: with a commit, unless all of it is one procedure.
func (w *work) finale() error {
	if w.pour(); len(w.plain) > 0 && len(w.buf) == 0 && w.begin != nil {
		w.begin = w.store.isolate()
		return w.complete("tusk_finish")
	}
	if err := w.settle(); err != nil {
		return err
	}
	w.do("commit")
	return w.flush()
}

// nothing is a delta that changes no sum.
var nothing = []byte("{}")

// settle writes what is left to write before a commit: plain ends, and the sums.
// InnoDB shows what a transaction has stored before that is on the disk, and only a
// commit that has written something waits until all before it is: who tells others
// what was found writes something, lest it be lost with the power after all.
func (w *work) settle() error {
	w.pour()
	if len(w.plain) > 0 {
		if err := w.holdPlain(); err != nil {
			return err
		}
		if err := w.complete("tusk_complete"); err != nil {
			return err
		}
	} else {
		w.deleteLeases(w.buried)
		body := w.sums.encode()
		if body == nil && w.echoes {
			body = nothing
		}
		if body != nil {
			w.do(q("delta.add"), body)
		}
	}
	w.sums = delta{}
	return nil
}

// holdPlain locks the tasks of plain ends that are written after others, where the
// transaction must not wait for them.
func (w *work) holdPlain() error {
	if !w.hasty {
		return nil
	}
	refs := make([]ref, len(w.plain))
	for i, e := range w.plain {
		refs[i] = ref{e.place, e.n, 0}
	}
	return inParts(apart(refs), maxSpans, func(part []span) error {
		text, args := among("task.hold", part)
		return w.ask(func(*sql.Rows) error { return nil }, w.locking(text), args...)
	})
}

// judge returns what an error means that settling brought.
func (w *work) judge(err error) error {
	if codeOf(err) == codeEnded {
		return errCareful
	}
	return err
}

// ready is a row of tusk_ready.
type ready struct {
	queue             string
	priority          int16
	at, place         int64
	first, next, last int16
	lap               int32
	taken             uint32   // which of its tasks were taken off, counted from first
	pieces            []*ready // that were written in its stead; nil: it is as it was
}

// rest returns what is left of a row of which tasks were taken.
func (y *ready) rest() []*ready {
	left := []*ready{}
	for n := int(y.next); n <= int(y.last); n++ {
		if y.taken&(1<<(n-int(y.first))) != 0 {
			continue
		}
		if i := len(left) - 1; i >= 0 && int(left[i].last) == n-1 {
			left[i].last++
			continue
		}
		at := int16(n)
		left = append(left, &ready{queue: y.queue, priority: y.priority, at: y.at, place: y.place, first: at, next: at,
			last: at, lap: y.lap})
	}
	return left
}

func readReady(rows *sql.Rows, more ...any) (*ready, error) {
	y := &ready{}
	var queue []byte
	err := rows.Scan(append([]any{&queue, &y.priority, &y.at, &y.place, &y.first, &y.next, &y.last, &y.lap}, more...)...)
	y.queue = string(queue)
	return y, err
}

func byLane(a, b *ready) int {
	return cmp.Or(strings.Compare(a.queue, b.queue), cmp.Compare(a.priority, b.priority), cmp.Compare(a.at, b.at),
		cmp.Compare(a.place, b.place), cmp.Compare(a.first, b.first))
}

// uncover takes a held task off the list of available ones.
func (w *work) uncover(r *row) {
	r.ready.taken |= 1 << (r.n - r.ready.first)
	w.cut.add(r.ready)
	r.ready = nil
}

// cover lists a task as available, at the end of its lane. One that lies behind the last one
// there shares its row.
func (w *work) cover(r *row) {
	at := lane{r.Queue, r.Priority, store.Available}
	if last := w.lasts[at]; last != nil && last.follows(r) {
		last.last++
		r.ready = last
		return
	}
	r.ready = r.listing(w.now + w.covered)
	w.covered++
	if w.lasts == nil {
		w.lasts = map[lane]*ready{}
	}
	w.lasts[at] = r.ready
	w.listed = append(w.listed, r.ready)
}

// follows reports whether a task may share a row of tusk_ready with those that are in it.
func (y *ready) follows(r *row) bool {
	return y.place == r.place && y.last+1 == r.n && y.lap == r.lap && r.n-y.first < maxSpan
}

// listing is a row of tusk_ready for a task alone.
func (r *row) listing(at int64) *ready {
	return &ready{queue: r.Queue, priority: r.Priority, at: at, place: r.place, first: r.n, next: r.n,
		last: r.n, lap: r.lap}
}

// standIn puts a task in line for its turn.
func (w *work) standIn(r *row) {
	if r.since = 0; w.now != 0 {
		r.since = w.now + w.covered
		w.covered++
	}
	w.lines.insert(r)
}

// addLabels writes all labels of tasks.
func (w *work) addLabels(rows ...*row) {
	for _, r := range rows {
		for _, label := range r.labels() {
			w.named.insert(labelRow{label, r.ID, r.place, r.n})
		}
	}
}
