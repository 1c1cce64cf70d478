package harness

import (
	"slices"
	"sync/atomic"
	"time"
)

// tally counts the tasks that the handler has seen, and notes when each began.
type tally struct {
	began time.Time
	due   []atomic.Int64 // since began, in nanoseconds
	start []atomic.Int64 // of the first call; 0 if not seen
	calls atomic.Int64
	seen  atomic.Int64
	all   chan struct{}
}

func newTally(tasks int) *tally {
	return &tally{began: time.Now(), due: make([]atomic.Int64, tasks), start: make([]atomic.Int64, tasks),
		all: make(chan struct{})}
}

// dueAt notes when a task may start.
func (t *tally) dueAt(n int, at time.Time) { t.due[n].Store(int64(at.Sub(t.began))) }

// storedAt is dueAt for a task that may have started before its caller learned that it is stored.
// Such a task has not waited.
func (t *tally) storedAt(n int, at time.Time) {
	due := int64(at.Sub(t.began))
	if start := t.start[n].Load(); start != 0 {
		due = min(due, start)
	}
	t.due[n].Store(due)
}

// handle counts a call. It ignores numbers that are not of this run.
func (t *tally) handle(n int) {
	if n < 0 || n >= len(t.start) {
		return
	}
	t.calls.Add(1)
	if t.start[n].CompareAndSwap(0, max(int64(time.Since(t.began)), 1)) && t.seen.Add(1) == int64(len(t.start)) {
		close(t.all)
	}
}

// waits returns the waits of the tasks that were seen and that only accepts.
func (t *tally) waits(only func(n int) bool) Waits {
	var all []time.Duration
	for n := range t.start {
		if start := t.start[n].Load(); start != 0 && only(n) {
			all = append(all, time.Duration(start-t.due[n].Load()))
		}
	}
	if len(all) == 0 {
		return Waits{}
	}
	slices.Sort(all)
	at := func(share float64) time.Duration { return all[min(int(share*float64(len(all))), len(all)-1)] }
	return Waits{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: all[len(all)-1]}
}
