package couchbase

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// docs/couchbase.md states what a task and an idle poll cost.
func TestRequestsOfATaskAndOfAnIdlePoll(t *testing.T) {
	r := newRig(t, 1)
	r.a.sums.every = time.Hour // they cost one request a second, however many tasks there are
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
	cycle(1) // creates the lane
	before, err := r.a.Measure(r.ctx())
	r.must("measure", err)
	requests := r.f.Requests()
	defer func() {
		after, err := r.a.Measure(r.ctx())
		r.must("measure", err)
		if counted := after.RoundTrips - before.RoundTrips; counted != r.f.Requests()-requests {
			t.Errorf("the handle counts %d round trips, and the server %d", counted, r.f.Requests()-requests)
		}
	}()
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

// A workflow of one call costs an insert for each task, a write that ends its unit, and an append. Its end tells each
// child once: a read and a write of the child, and the pages that the children fill.
func TestRequestsOfAWorkflow(t *testing.T) {
	const children = 1000
	r := newRig(t, 1)
	r.a.sums.every = time.Hour
	r.add(r.task("first", nil)) // creates the lane
	r.claim()
	tasks := []store.NewTask{r.task("root", nil)}
	for range children {
		tasks = append(tasks, r.task("child", needs(r.ids["root"])))
	}
	before := r.f.Requests()
	_, err := r.a.Enqueue(r.ctx(), tasks)
	r.must("enqueue", err)
	enqueued := r.f.Requests() - before
	if enqueued > children+1+10 {
		t.Errorf("the enqueue took %d requests", enqueued)
	}
	r.claim()
	before = r.f.Requests()
	r.must("finish", r.finish(r.ctx(), r.outcome("root", store.Completed)))
	if n := r.f.Requests() - before; n > 2*children+10*children/pageSize+20 {
		t.Errorf("the end took %d requests", n)
	} else {
		t.Logf("%d tasks: %d requests to enqueue them, %d at the end of the one that all others need", children+1,
			enqueued, n)
	}
}

// A page reads about as many sheets as it shows. It read all sheets once, so a bulk operation on 200,000 tasks took
// minutes.
func TestAPageReadsFewSheets(t *testing.T) {
	r := newRig(t, 1)
	const all, page = 150 * blockSize, 4 * blockSize
	r.add(r.alike(all)...)
	for f := (store.Filter{Limit: page}); ; {
		before := r.f.Requests()
		tasks, err := r.b.List(r.ctx(), f)
		r.must("list", err)
		if n := r.f.Requests() - before; f.Before != (store.ID{}) && n > 2*page/blockSize+4 {
			t.Errorf("a page of %d tasks took %d requests", len(tasks), n)
		}
		if len(tasks) < page {
			break
		}
		f.Before = tasks[page-1].ID
	}
}
