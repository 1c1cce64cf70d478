package postgres

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

const (
	// The workers of this process have nearPatience to claim a task, or twice as long as their claims take, in addition
	// to the time between their claims.
	nearPatience = 4 * time.Millisecond
	mostPatience = 50 * time.Millisecond

	// After they did not claim one in time, others are notified at once: for firstRest, and each further time in a row
	// for twice as long, up to mostRest.
	firstRest = 10 * time.Millisecond
	mostRest  = time.Second

	mostNear   = 256             // tasks that are expected at a time
	mostQueues = 10000           // queues that are remembered
	leadsFor   = 2 * time.Second // how long after its last round this process counts as the leader
)

// near offers tasks to the workers of this process before it notifies others. A task that one of these workers claims
// costs no notification and wakes no other process.
type near struct {
	bell  bell.Bell    // heard by the listeners of this process
	leads atomic.Int64 // when this process was known to lead, in nanoseconds

	claims typical // how long claims take, which depends on how far the server is and how much it has to do

	busy atomic.Bool // as many tasks run in this process as it has slots or processors, so none are offered

	mu       sync.Mutex
	workers  map[store.ID]beaten // the workers of this process
	expected map[store.ID]fate   // tasks that no worker of this process has claimed yet
	parked   []*store.Parked     // claims of the workers of this process
	queues   map[string]*offered
}

// typical is a moving average of the times that calls take.
type typical struct{ nanoseconds atomic.Int64 }

func (t *typical) add(took time.Duration) {
	t.nanoseconds.Add((int64(took) - t.nanoseconds.Load()) / 8)
}

func (t *typical) time() time.Duration { return time.Duration(t.nanoseconds.Load()) }

// beaten is the state of a worker according to its last beat and claim.
type beaten struct {
	queues  []string
	slots   int
	running int
	every   time.Duration // the shortest time between two claims
	until   time.Time
}

// fate says whether an expected task is certain to be stored.
type fate int

const (
	stored fate = iota // it is stored, or forgotten as soon as storing it fails
	unsure             // it depends on a user's transaction
)

// offered are tasks of a queue that others will be notified of if they are not claimed.
type offered struct {
	spans  map[store.ID]span
	timer  *time.Timer   // nil if no task is offered
	rest   time.Duration // zero if the last task was claimed in time
	rested time.Time     // the end of the rest
}

// span is the time that the workers of this process have to claim a task.
type span struct{ from, until time.Time }

// beat records a beat of a worker of this process.
func (n *near) beat(b *store.Beat) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.workers == nil {
		n.workers = map[store.ID]beaten{}
	}
	n.workers[b.Worker.ID] = beaten{b.Worker.Queues, b.Worker.Concurrency, n.workers[b.Worker.ID].running,
		b.Worker.ClaimEvery, time.Now().Add(b.TTL)}
	n.count()
}

// count counts slots and running tasks. The caller holds the lock.
func (n *near) count() {
	running, slots := 0, 0
	for id, w := range n.workers {
		if !time.Now().Before(w.until) {
			delete(n.workers, id)
			continue
		}
		running, slots = running+w.running, slots+w.slots
	}
	n.busy.Store(running >= min(slots, runtime.GOMAXPROCS(0)))
}

// has is serves for callers that do not hold the lock.
func (n *near) has(queue string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.serves(queue)
}

// serves reports whether a worker of this process claims from a queue. The caller holds the lock.
func (n *near) serves(queue string) bool { return n.patience(queue) > 0 }

// patience returns how long the workers of this process have to claim a task of a queue. It is zero if none of them
// claims from the queue. The caller holds the lock.
func (n *near) patience(queue string) (least time.Duration) {
	for _, w := range n.workers {
		if has := n.leastPatience() + w.every; (least == 0 || has < least) && slices.Contains(w.queues, queue) &&
			time.Now().Before(w.until) {
			least = has
		}
	}
	return least
}

func (n *near) leastPatience() time.Duration {
	return min(max(nearPatience, 2*n.claims.time()), mostPatience)
}

// servesAlone reports whether all workers of a queue are in this process, as far as is known.
func (s *Store) servesAlone(queue string) bool {
	all, mine := s.workersOf(queue), s.attendant.idsOf(s)
	return len(all) > 0 && len(all) < mostCounted && !slices.ContainsFunc(all, func(id store.ID) bool {
		return !slices.Contains(mine, id)
	})
}

// expect remembers tasks of a queue that are about to be stored or to become available. It reports false and remembers
// none of them if no worker of this process claims from the queue, if too many tasks are expected, or if as many tasks
// run here as there are slots or processors and another process has workers of the queue.
func (s *Store) expect(queue string, ids []store.ID, as fate) bool {
	n := &s.near
	if len(ids) == 0 || n.busy.Load() && !s.servesAlone(queue) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.expected)+len(ids) > mostNear || !n.serves(queue) {
		return false
	}
	if n.expected == nil {
		n.expected, n.queues = map[store.ID]fate{}, map[string]*offered{}
	}
	for _, id := range ids {
		n.expected[id] = as
	}
	return true
}

// forget removes tasks from those that are expected.
func (n *near) forget(ids []store.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		delete(n.expected, id)
	}
}

// took records the tasks that a worker of this process has claimed.
func (n *near) took(r *store.ClaimRequest, tasks []store.Task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w, is := n.workers[r.Worker]; is {
		w.running = r.Running + len(tasks)
		n.workers[r.Worker] = w
		n.count()
	}
	for i := range tasks {
		if len(n.expected) == 0 {
			return
		}
		delete(n.expected, tasks[i].ID)
	}
}

// still returns the tasks that are expected.
func (n *near) still(ids []store.ID) []store.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.left(ids)
}

// left is still for callers that hold the lock.
func (n *near) left(ids []store.ID) []store.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id store.ID) bool {
		_, is := n.expected[id]
		return !is
	})
}

// settle forgets the tasks that are certain to be stored. The caller holds the lock.
func (n *near) settle(ids []store.ID) {
	for _, id := range ids {
		if n.expected[id] == stored {
			delete(n.expected, id)
		}
	}
}

// offer notifies the workers of this process of expected tasks of a queue, and others of the tasks that these do not
// claim. If they have recently failed to claim tasks of the queue, it notifies others at once.
func (s *Store) offer(queue string, ids []store.ID) {
	n := &s.near
	n.mu.Lock()
	if ids = n.left(ids); len(ids) == 0 {
		n.mu.Unlock()
		return
	}
	o := n.queues[queue]
	if o == nil {
		if len(n.queues) >= mostQueues {
			clear(n.queues)
		}
		o = &offered{spans: map[store.ID]span{}}
		n.queues[queue] = o
	}
	if time.Now().Before(o.rested) || !n.bell.Ring(queue) {
		n.settle(ids)
		n.mu.Unlock()
		s.ring(queue)
		return
	}
	patience := max(n.patience(queue), n.leastPatience())
	now := time.Now()
	for _, id := range ids {
		o.spans[id] = span{now, now.Add(patience)}
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(patience, func() { s.lapse(queue, o) })
	}
	n.mu.Unlock()
}

// present notifies workers of tasks that have become available in queues. It offers them if they are few and of one
// queue. ids is empty if not all of them are known.
func (s *Store) present(queues []string, ids []store.ID) {
	if len(queues) == 1 && len(ids) <= fewTogether && !s.quiet && s.expect(queues[0], ids, stored) {
		s.offer(queues[0], ids)
		return
	}
	s.ring(queues...)
}

// lapse notifies others of a queue if tasks of it that were offered for long enough are still unclaimed.
func (s *Store) lapse(queue string, o *offered) {
	n := &s.near
	n.mu.Lock()
	now, wait := time.Now(), time.Duration(-1)
	var tell, missed, taken bool
	for id, had := range o.spans {
		as, is := n.expected[id]
		left := had.until.Sub(now)
		if is && left > 0 {
			wait = left
			continue
		}
		delete(o.spans, id)
		tell, taken = tell || is, taken || !is
		if is && as == stored {
			delete(n.expected, id)
			missed = missed || !had.from.Before(o.rested) // tasks offered before a rest began do not prolong it
		}
	}
	switch {
	case missed:
		o.rest = min(max(2*o.rest, firstRest), mostRest)
		o.rested = now.Add(o.rest)
	case taken && !tell:
		o.rest = 0
	}
	if o.timer = nil; wait >= 0 {
		o.timer = time.AfterFunc(wait, func() { s.lapse(queue, o) })
	}
	n.mu.Unlock()
	if tell {
		s.ring(queue)
	}
}

// lapseAll notifies others at once of everything that is offered.
func (s *Store) lapseAll() {
	n := &s.near
	n.mu.Lock()
	var names []string
	for queue, o := range n.queues {
		for id := range o.spans {
			if _, is := n.expected[id]; is {
				names = append(names, queue)
				break
			}
		}
	}
	n.mu.Unlock()
	s.ring(names...)
}

// news are tasks that are being stored, and how to announce them.
type news struct {
	s    *Store
	have *survey
	ids  []store.ID // the tasks that are expected; if nil, others are notified at once
}

// herald returns the news of tasks that are about to be stored. They will be offered if they are few, of one queue,
// and may run at once.
func (s *Store) herald(tasks []store.NewTask, have *survey, as fate) *news {
	n := &news{s: s, have: have}
	if !have.ready || len(have.queues) != 1 || len(tasks) > fewTogether || s.quiet {
		return n
	}
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	if s.expect(have.queues[0], ids, as) {
		n.ids = ids
	}
	return n
}

// tell announces the tasks after they were stored.
func (n *news) tell(results []store.Enqueued) {
	if slices.ContainsFunc(results, func(r store.Enqueued) bool { return r.Result != store.Added }) {
		n.drop()
	}
	if n.ids == nil {
		n.s.ring(n.have.rings()...)
		return
	}
	n.s.offer(n.have.queues[0], n.ids)
}

// drop removes the tasks from those that are expected.
func (n *news) drop() {
	if n.ids != nil {
		n.s.near.forget(n.ids)
		n.ids = nil
	}
}
