package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// counts counts the calls and tasks of the store.
type counts struct {
	mu       sync.Mutex
	calls    map[string]*calls
	enqueued bounded[resultOf]
	claimed  bounded[string]
	finished bounded[pair]
	waited   histograms[string] // by queue
	ran      histograms[string] // by kind
	lost     int64
	admitted int64
	rescued  int64
	pruned   int64
	rescues  map[store.Token]bool // what the last Rescue returned
}

// calls counts the calls of one method.
type calls struct {
	took   store.Durations
	failed map[string]int64
}

type resultOf struct {
	queue  string
	result store.EnqueueResult
}

type pair struct{ queue, kind string }

// ends counts the outcomes of attempts: by state, and those with an error. For enqueues and claims, failed is their
// number.
type ends struct {
	states [store.Discarded + 1]int64
	failed int64
}

// bounded counts by a key. It keeps MaxSeries keys apart.
type bounded[K comparable] struct {
	rows map[K]*ends
}

// histograms has durations by a key, bounded in the same way.
type histograms[K comparable] struct{ rows map[K]*store.Durations }

func (b *bounded[K]) of(key, other K) *ends { return rowOf(&b.rows, key, other) }

func (h *histograms[K]) of(key, other K) *store.Durations { return rowOf(&h.rows, key, other) }

func rowOf[K comparable, V any](rows *map[K]*V, key, other K) *V {
	if row := (*rows)[key]; row != nil {
		return row
	}
	if *rows == nil {
		*rows = map[K]*V{}
	}
	if len(*rows) >= MaxSeries {
		if key = other; (*rows)[key] != nil {
			return (*rows)[key]
		}
	}
	row := new(V)
	(*rows)[key] = row
	return row
}

// call counts a call of a method.
func (c *counts) call(method string, began time.Time, err error) {
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	m := rowOf(&c.calls, method, Other)
	m.took.Add(took)
	if err != nil {
		if m.failed == nil {
			m.failed = map[string]int64{}
		}
		m.failed[classOf(err)]++
	}
}

// classOf returns the class of an error, in one word.
func classOf(err error) string {
	for _, class := range []struct {
		err  error
		name string
	}{
		{store.ErrWorkerDead, "worker_dead"}, {store.ErrNotLeader, "not_leader"}, {store.ErrConflict, "conflict"},
		{store.ErrFull, "full"},
		{store.ErrReadOnly, "read_only"}, {store.ErrUnavailable, "unavailable"}, {store.ErrNotCommitted, "not_committed"},
		{context.DeadlineExceeded, "timeout"}, {context.Canceled, "cancelled"},
	} {
		if errors.Is(err, class.err) {
			return class.name
		}
	}
	return Other
}

func (c *counts) enqueue(tasks []store.NewTask, results []store.Enqueued) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last resultOf
	var row *ends
	for i := range results {
		if is := (resultOf{tasks[i].Queue, results[i].Result}); row == nil || is != last {
			last, row = is, c.enqueued.of(is, resultOf{Other, is.result})
		}
		row.failed++
	}
}

func (c *counts) claim(tasks []store.Task) {
	if len(tasks) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var waited *store.Durations
	var row *ends
	last := ""
	for i := range tasks {
		t := &tasks[i]
		if row == nil || t.Queue != last {
			last, row, waited = t.Queue, c.claimed.of(t.Queue, Other), c.waited.of(t.Queue, Other)
		}
		row.failed++
		waited.Add(t.ClaimedAt.Sub(t.RunAt))
	}
}

func (c *counts) finish(outcomes []store.Outcome, lost []store.ID) {
	if len(outcomes) == 0 {
		return
	}
	gone := make(map[store.ID]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var ran *store.Durations
	var row *ends
	var last pair
	for i := range outcomes {
		o := &outcomes[i]
		if len(gone) > 0 && gone[o.Task.ID] {
			c.lost++
			continue
		}
		if is := (pair{o.Task.Queue, o.Task.Kind}); row == nil || is != last {
			last, row, ran = is, c.finished.of(is, pair{Other, Other}), c.ran.of(is.kind, Other)
		}
		row.states[o.State]++
		if o.Error != "" {
			row.failed++
		}
		ran.Add(o.Ran)
	}
}

// rescue counts the attempts that the last Rescue did not return.
func (c *counts) rescue(tasks []store.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := make(map[store.Token]bool, len(tasks))
	for i := range tasks {
		if now[tasks[i].Lease] = true; !c.rescues[tasks[i].Lease] {
			c.rescued++
		}
	}
	c.rescues = now
}
