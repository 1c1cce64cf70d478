// Package memory is the simplest implementation of the contract of package store: maps, slices and one mutex. Its
// data is lost when the process ends.
//
// Examples and the tests of its callers run on it, and every other engine is compared with it. So it prefers simple
// code to fast code; still, no claim reads more tasks than it returns. It starts no goroutine and takes the time only
// from time.Now, so package testing/synctest can drive it.
//
// It may import package store, its rules, package bell and the standard library.
package memory

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Store is a database in memory. It implements store.Store and store.Notifier.
type Store struct {
	mu       sync.Mutex
	places   int64                // the last place assigned; see task.place
	tasks    map[store.ID]*task   // all tasks, including those that await a rerun
	order    []*task              // the same, smallest id first
	queues   map[string]*queue    // the available tasks
	waiting  waiting              // the scheduled and retryable tasks
	finished map[verdict][]placed // the finished tasks, in order of their end
	keys     map[rules.KeyName]*rules.Key
	children map[store.ID][]rules.Edge // open needs, by the needed task
	doubts   []store.ID                // tasks that need a task which may have failed
	turns    map[turn]*turns
	workers  map[store.ID]*worker
	counts   map[verdict]int64 // of the unfinished tasks
	leader   leader
	records  map[string]map[string]store.Record // by kind and name
	versions int64                              // the last version assigned to a record
	stats    map[slice]*store.Stat
	failures map[failure]*store.ErrorGroup
	bell     bell.Bell
	ends     ends
}

// Listen implements store.Notifier. It runs in the caller's goroutine and returns the context's error.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	return s.bell.Listen(ctx, wake)
}

// New returns an empty database.
func New() *Store {
	return &Store{
		tasks:    map[store.ID]*task{},
		queues:   map[string]*queue{},
		finished: map[verdict][]placed{},
		keys:     map[rules.KeyName]*rules.Key{},
		children: map[store.ID][]rules.Edge{},
		turns:    map[turn]*turns{},
		workers:  map[store.ID]*worker{},
		counts:   map[verdict]int64{},
		records:  map[string]map[string]store.Record{},
		stats:    map[slice]*store.Stat{},
		failures: map[failure]*store.ErrorGroup{},
	}
}

// task is a row together with its Detail and what the engine needs to find it.
type task struct {
	rules.Row
	detail store.Detail
	group  *store.ErrorGroup // of the latest failed attempt
	needs  []rules.OpenNeed

	// place grows with every change of state. Entries that are out of date are not removed from ordered lists: an
	// entry whose place is no longer the task's place is skipped when it is reached.
	place int64
}

// placed is an entry of an ordered list; see task.place.
type placed struct {
	*task
	at int64
}

func (p placed) gone() bool { return p.task.place != p.at }

// verdict is a state in a queue.
type verdict struct {
	queue string
	state store.State
}

// queue holds the available tasks of a queue in lanes, one for each priority.
type queue struct {
	priorities []int16 // of the lanes, ascending
	lanes      map[int16][]placed
}

// waiting is a heap ordered by run time, then by arrival.
type waiting []due

// due is a task with the run time that it had when it began to wait. An entry whose task has left may have a task
// with another run time, which would break the order of the heap.
type due struct {
	placed
	runAt time.Time
}

func (w waiting) Len() int { return len(w) }
func (w waiting) Less(i, j int) bool {
	if c := w[i].runAt.Compare(w[j].runAt); c != 0 {
		return c < 0
	}
	return w[i].at < w[j].at
}
func (w waiting) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)   { *w = append(*w, x.(due)) }
func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	(*w)[len(*w)-1] = due{}
	*w = (*w)[:len(*w)-1]
	return last
}

// clock returns the engine's time. It carries no monotonic reading, because it is compared with times from other
// sources.
func clock() time.Time { return time.Now().UTC().Round(0) }

// insert adds a task to the maps. put gives it its state.
func (s *Store) insert(t *task) {
	s.tasks[t.ID] = t
	at, _ := slices.BinarySearchFunc(s.order, t.ID, byID)
	s.order = slices.Insert(s.order, at, t)
}

// remove deletes a task and its history. take must have been called before.
func (s *Store) remove(t *task) {
	delete(s.tasks, t.ID)
	at, _ := slices.BinarySearchFunc(s.order, t.ID, byID)
	s.order = slices.Delete(s.order, at, at+1)
}

func byID(t *task, id store.ID) int { return slices.Compare(t.ID[:], id[:]) }

// take removes a task from the lists for its state. Until put is called, its queue, priority and run time may change.
func (s *Store) take(t *task) {
	s.tally(t, -1)
	t.place = 0
}

// put gives a task a state and appends it to the tasks in that state.
func (s *Store) put(t *task, state store.State) {
	s.places++
	t.State, t.place = state, s.places
	s.tally(t, +1)
	entry := placed{t, t.place}
	if name := bell.For(&t.Row, time.Now()); name != "" {
		s.bell.Ring(name)
	}
	switch {
	case state == store.Available:
		s.line(t.Queue).push(t.Priority, entry)
	case state == store.Scheduled || state == store.Retryable:
		heap.Push(&s.waiting, due{entry, t.RunAt})
	case t.InLine():
		s.queueUp(entry)
	case state.Finished():
		at := verdict{t.Queue, state}
		s.finished[at] = append(s.finished[at], entry)
		s.ends.add(store.End{Task: t.ID, Queue: t.Queue, State: state, At: t.FinishedAt})
	}
}

// tally updates the counts that Count and Errors return.
func (s *Store) tally(t *task, by int64) {
	if !t.State.Finished() {
		at := verdict{t.Queue, t.State}
		if s.counts[at] += by; s.counts[at] == 0 {
			delete(s.counts, at)
		}
	}
	if t.group == nil {
		return
	}
	switch t.State {
	case store.Retryable:
		t.group.Waiting += by
	case store.Discarded:
		t.group.Dead += by
	}
}

// line returns the available tasks of a queue.
func (s *Store) line(of string) *queue {
	q := s.queues[of]
	if q == nil {
		q = &queue{lanes: map[int16][]placed{}}
		s.queues[of] = q
	}
	return q
}

func (q *queue) push(priority int16, entry placed) {
	if _, known := q.lanes[priority]; !known {
		at, _ := slices.BinarySearch(q.priorities, priority)
		q.priorities = slices.Insert(q.priorities, at, priority)
	}
	q.lanes[priority] = append(q.lanes[priority], entry)
}

// first returns the task at the head of a lane, or nil if the lane is empty. It drops entries that have left the
// lane.
func (q *queue) first(priority int16) *task {
	lane := q.lanes[priority]
	for len(lane) > 0 && lane[0].gone() {
		lane[0] = placed{}
		lane = lane[1:]
	}
	q.lanes[priority] = lane
	if len(lane) == 0 {
		return nil
	}
	return lane[0].task
}

// next returns the task to claim next, or nil if the queue is empty.
func (q *queue) next() *task {
	for len(q.priorities) > 0 {
		best := q.priorities[0]
		if t := q.first(best); t != nil {
			return t
		}
		delete(q.lanes, best)
		q.priorities = q.priorities[1:]
	}
	return nil
}
