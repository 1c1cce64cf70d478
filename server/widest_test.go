package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
)

// widest returns a workflow with the largest number of dependencies, as JSON, and how many tasks it has.
func widest(t *testing.T) (body []byte, tasks int) {
	const needs = 100
	type task struct {
		Name  string   `json:"name"`
		Kind  string   `json:"kind"`
		After []string `json:"after,omitempty"`
	}
	var all []task
	var roots []string
	for i := range needs {
		roots = append(roots, fmt.Sprint("root", i))
		all = append(all, task{Name: roots[i], Kind: "k"})
	}
	for i := range tusk.MaxWorkflowEdges / needs {
		all = append(all, task{fmt.Sprint("leaf", i), "k", roots})
	}
	body, err := json.Marshal(map[string]any{"tasks": all})
	if err != nil {
		t.Fatal(err)
	}
	return body, len(all)
}

// enqueueBeside enqueues one task after another until it is stopped, and returns how long the slowest took.
func (s *site) enqueueBeside(t *testing.T) (stop func() time.Duration) {
	over, done := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var slowest time.Duration
		defer func() { done <- slowest }()
		for {
			begun := time.Now()
			if a := s.do("POST", "/api/v1/tasks", `{"kind":"other"}`); a.status != 201 {
				t.Errorf("another enqueue: %d %s", a.status, a.body)
			}
			slowest = max(slowest, time.Since(begun))
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration { close(over); return <-done }
}

// TestTheWidestWorkflowIsStoredAndShown enqueues the largest number of dependencies that a workflow may have. The
// workflow and its page are served in time, and other tasks are stored meanwhile without delay.
func TestTheWidestWorkflowIsStoredAndShown(t *testing.T) {
	if testing.Short() {
		t.Skip("stores 50,000 dependencies")
	}
	s := startOn(t, newClient(t, engines["sqlite"](t)))
	body, tasks := widest(t)
	stop := s.enqueueBeside(t)
	took := func(what string, do func()) {
		begun := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	var run server.WorkflowRun
	var shown server.Workflow
	took("enqueue", func() { s.do("POST", "/api/v1/workflows", body).want(t, 201, &run) })
	took("get", func() { s.do("GET", "/api/v1/workflows/"+run.ID, nil).want(t, 200, &shown) })
	took("page", func() {
		if a := s.do("GET", "/workflows/"+run.ID, nil); a.status != 200 {
			t.Errorf("the page: %d", a.status)
		}
		last := fmt.Sprintf("/workflows/%s?from=%d", run.ID, tasks-99)
		if a := s.do("GET", last, nil); a.status != 200 || !strings.Contains(a.body, "leaf499") {
			t.Errorf("its last part: %d", a.status)
		}
	})
	t.Logf("the slowest of other enqueues beside: %v", stop())
	edges := 0
	for _, n := range shown.Tasks {
		edges += len(n.Needs)
	}
	if len(shown.Tasks) != tasks || edges != tusk.MaxWorkflowEdges {
		t.Errorf("%d tasks with %d needs are shown", len(shown.Tasks), edges)
	}
}
