// Package harness takes a queue through a plan and measures the cost. It knows no particular queue:
// a Peer is one, through its own public interface.
//
// A plan runs in its own process (runner.go). So every contender begins with an empty heap, and its
// processor time and memory are separate from the harness's. That process may be this program, or
// one in another language that speaks the same few lines of JSON. What the servers use is read from
// outside (meter.go).
package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Plan is what a contender has to do in one run. The runner gets it as JSON.
type Plan struct {
	Peer    string `json:"peer"`    // name of the contender
	Variant string `json:"variant"` // variant of its settings; empty means the common ones
	Target  string `json:"target"`  // DSN, address or file
	Install string `json:"install"` // a file of SQL that installs the peer, if the peer is SQL

	Tasks     int `json:"tasks"`
	Batch     int `json:"batch"`     // tasks per enqueuing call and per claim
	Workers   int `json:"workers"`   // handlers that run at the same time
	Producers int `json:"producers"` // producers that enqueue at the same time

	Order    Order         `json:"order"`
	Work     time.Duration `json:"work"`     // how long a handler takes; it only waits
	Rate     float64       `json:"rate"`     // tasks per second, enqueued one by one; 0 means as fast as possible
	DueIn    time.Duration `json:"due_in"`   // all tasks come due together, this long after the start
	Tenants  int           `json:"tenants"`  // half of the tasks belong to the first; the others take turns
	History  int           `json:"history"`  // tasks that have been run before
	Patience time.Duration `json:"patience"` // for making the history, which ends early after this time

	Shape     Shape         `json:"shape"`     // of the tasks of an everyday run
	Processes int           `json:"processes"` // processes that work, each with its own connections; 0 means one
	Warm      int           `json:"warm"`      // tasks of an everyday run before the measured ones
	Settle    time.Duration `json:"settle"`    // pause between the warm-up and the measurement
	Idle      time.Duration `json:"idle"`      // the workers wait for so long instead of running tasks
}

// Order says when tasks are produced and consumed.
type Order string

const (
	ProduceOnly Order = "produce"
	Backlog     Order = "backlog"  // produce, then consume
	Together    Order = "together" // both at the same time
	Everyday    Order = "everyday" // both, at a rate, with workers that have worked before
)

// Shape is the kind of tasks of an everyday run.
type Shape string

const (
	Single   Shape = "single"   // each enqueued by itself
	InTx     Shape = "in tx"    // enqueued inside a transaction that writes one row of the user's
	Unique   Shape = "unique"   // with a key of its own
	Delayed  Shape = "delayed"  // starts after Delay at the earliest
	Retried  Shape = "retried"  // fails once
	Limited  Shape = "limited"  // belongs to one of ten tenants, each of which may run ten at a time
	Workflow Shape = "workflow" // three steps; only the first is enqueued by its number
)

// The number of tenants for the shape Limited, and how many tasks of each may run at a time.
const (
	LimitedTenants = 10
	LimitedTo      = 10
)

// Delay is the delay of a task of the shape Delayed.
const Delay = time.Second

// Steps is the number of steps of a task of the shape Workflow.
const Steps = 3

// Result is what a runner counted.
type Result struct {
	Stored  int           `json:"stored"`  // tasks that were enqueued
	Calls   int           `json:"calls"`   // calls of the handler
	Tasks   int           `json:"tasks"`   // tasks that the handler has seen at least once
	Took    time.Duration `json:"took"`    // until the last task was finished in the database
	History int           `json:"history"` // tasks that had been run before
	Waits   Waits         `json:"waits"`
}

// Waits are times from due to start or, in everyday runs, from stored to start.
type Waits struct {
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
	Max  time.Duration `json:"max"`
}

// Peer is a queue. Its methods are called in this order: Open; Enqueue, by several goroutines;
// Work, one call at a time; Left; Close.
type Peer interface {
	// Open connects, and creates what the queue needs in an empty database.
	Open(ctx context.Context, p Plan) error
	// Enqueue stores tasks. They are durable when it returns.
	Enqueue(ctx context.Context, tasks []Task) error
	// Work runs tasks until ctx ends. Then it stops as the queue's documentation advises: tasks
	// that have begun are finished. handle is the handler's body.
	Work(ctx context.Context, handle func(n int)) error
	// Left counts the tasks that are stored and not known to be finished.
	Left(ctx context.Context) (int, error)
	Close() error
}

// Task is a task to enqueue.
type Task struct {
	N      int       // its number in the run
	RunAt  time.Time // zero means at once
	Tenant int
	Shape  Shape // empty means Single
}

// ArgsBytes is the size of every task's args.
const ArgsBytes = 80

// Args are the args of a task: ArgsBytes of JSON.
type Args struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// Args returns the task's args.
func (t Task) Args() Args {
	const rest = len(`{"n":,"pad":""}`)
	return Args{t.N, pad[:ArgsBytes-rest-len(fmt.Sprint(t.N))]}
}

var pad = strings.Repeat("x", ArgsBytes)

// JSON returns the args as text, for queues that take text.
func (t Task) JSON() []byte {
	text, err := json.Marshal(t.Args())
	if err != nil {
		panic(err) // two fields that always encode
	}
	return text
}

// Number parses a task's args and returns its number.
func Number(args []byte) (int, error) {
	var a Args
	if err := json.Unmarshal(args, &a); err != nil {
		return 0, fmt.Errorf("args %.100q: %w", args, err)
	}
	return a.N, nil
}
