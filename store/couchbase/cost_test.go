package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// docs/couchbase.md tells what a task and an idle poll cost.
func TestRequestsOfATaskAndOfAnIdlePoll(t *testing.T) {
	r := newRig(t, 1)
	r.a.sums.every = time.Hour // they cost one request a second, whatever the number of tasks
	cycle := func(n int) {
		tasks := make([]store.NewTask, n)
		for i := range tasks {
			tasks[i] = r.task(string(rune('a'+i)), nil)
		}
		if _, err := r.a.Enqueue(r.ctx(), tasks); err != nil {
			t.Fatal(err)
		}
		r.claim()
		var outcomes []store.Outcome
		for _, n := range tasks {
			outcomes = append(outcomes, r.outcome(n.Kind, store.Completed))
		}
		r.must("finish", r.finish(r.ctx(), outcomes...))
	}
	cost := func(what func()) (requests, writes, queries int64) {
		requests, writes, queries = r.f.Requests(), r.f.Writes(), r.f.Queries()
		what()
		return r.f.Requests() - requests, r.f.Writes() - writes, r.f.Queries() - queries
	}
	cycle(1) // makes the lane
	if n, _, queries := cost(func() { cycle(1) }); n > 9 || queries > 0 {
		t.Errorf("one task took %d requests and %d queries", n, queries)
	} else {
		t.Logf("one task: %d requests", n)
	}
	if n, _, queries := cost(func() { cycle(20) }); n > 5*20 || queries > 0 {
		t.Errorf("a task of twenty took %v requests, and all %d queries", float64(n)/20, queries)
	} else {
		t.Logf("twenty tasks: %d requests", n)
	}
	if n, writes, queries := cost(r.claim); n > 4 || writes > 0 || queries > 0 {
		t.Errorf("an idle poll took %d requests, %d writes and %d queries", n, writes, queries)
	}
}
