package mysql

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// work is a transaction and what it adds to the sums.
type work struct {
	session
	gathered
	now int64 // the server's time; 0 if not read yet
	// How many tasks were listed one by one. Each is listed a microsecond later.
	covered int64
	sums    delta
	// The transaction is a user's, so its isolation is unknown.
	user bool
	// It does not wait for locks that a user's transaction may hold.
	hasty  bool
	passes bool // it skips locked rows
	// Its session waits for locks for a shorter time than others.
	limited bool
	// What to announce: queues with new tasks, and names of package bell.
	woken map[string]bool
	// The answer reports what another transaction has stored.
	echoes bool

	batch *rules.Batch                // decides; nil if nothing does
	keys  map[rules.KeyName]*identity // locked keys
	rows  map[ref]*row                // locked or new tasks
	ids   map[store.ID]*row           // the same by id
	// Tasks that were found, but are not locked yet.
	where map[store.ID]ref
	// Tasks for which it matters whether they are available or running.
	exact map[store.ID]bool
	lent  map[store.ID]*attempt // tasks whose attempts end
	// For restored tasks: the groups of errors that are known.
	groups map[group]bool
	// Finished tasks of these days must not be read.
	dropping days

	after []func() // called after the commit

	plain  []*end     // written last, all or none
	buried []leaseKey // finished leases, deleted with them
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

// locking returns a statement that locks rows. If the transaction must not wait, the statement fails at once.
func (w *work) locking(text string) string {
	switch {
	case w.passes:
		return text + " skip locked"
	case w.hasty:
		return text + " nowait"
	}
	return text
}

// current returns a query that does not read outdated rows. In a user's transaction, only a locking one ensures that.
func (w *work) current(text string) string {
	if w.user {
		return text + "\nfor update"
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
	if w.limited {
		w.do(lockWait(w.store.lockWait))
	}
	w.do("commit")
	return w.flush()
}

// limitWaits makes the server stop waiting for locks when the caller does, or within a second after that. The end of
// the caller's context closes only the connection: the server's thread would wait on, and hold what it has locked.
func (w *work) limitWaits() {
	deadline, limited := w.ctx.Deadline()
	left := time.Until(deadline)
	if !limited || w.limited || w.hasty || w.user || left >= w.store.lockWait {
		return
	}
	w.limited = true
	w.do(lockWait(left))
}

// lockWait returns a statement that limits how long a session waits for a lock, to a second or more.
func lockWait(limit time.Duration) string {
	return fmt.Sprintf("set session innodb_lock_wait_timeout = %d", max(int(math.Ceil(limit.Seconds())), 1))
}

// nothing is a delta that changes no sum.
var nothing = []byte("{}")

// settle writes what is left to write before a commit: plain ends, and the sums.
//
// InnoDB shows what a transaction has stored before that is on disk, and only a commit that has written something waits
// until everything before it is on disk. So a transaction that reports what others have stored writes something, too.
// Otherwise a power failure could lose what it has reported.
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

// holdPlain locks the tasks of plain ends that are written after others, if the transaction must not wait for them.
func (w *work) holdPlain() error {
	if !w.hasty {
		return nil
	}
	refs := make([]ref, len(w.plain))
	for i, e := range w.plain {
		refs[i] = e.anyLap()
	}
	return inParts(apart(refs), maxSpans, func(part []span) error {
		text, args := among("task.hold", part)
		return w.ask(func(*sql.Rows) error { return nil }, w.locking(text), args...)
	})
}

// judge returns what an error of settling means.
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
	taken             uint32 // tasks that were taken off, as bits counted from first
	// The rows that replaced it; nil if it is unchanged.
	pieces []*ready
}

// rest returns the tasks that are left in a row after others were taken.
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

// uncover takes a locked task off the list of available ones.
func (w *work) uncover(r *row) {
	r.ready.taken |= 1 << (r.n - r.ready.first)
	w.cut.add(r.ready)
	r.ready = nil
}

// cover lists a task as available, at the end of its lane. A task that follows the last one there shares its row.
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

// follows reports whether a task can share a row of tusk_ready with the tasks in it.
func (y *ready) follows(r *row) bool {
	return y.place == r.place && y.last+1 == r.n && y.lap == r.lap && r.n-y.first < maxSpan
}

// listing returns a row of tusk_ready for one task.
func (r *row) listing(at int64) *ready {
	return &ready{queue: r.Queue, priority: r.Priority, at: at, place: r.place, first: r.n, next: r.n,
		last: r.n, lap: r.lap}
}

// standIn makes a task wait for its turn.
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
