// Package harness takes a queue through a plan and measures what that took. It
// knows no queue: a Peer is one, through its own public interface.
//
// A plan is carried out in a process of its own (runner.go), so that every
// contender begins with an empty heap and its processor time and memory can be
// told apart from the harness's. That process may be this program, or one in
// another language that speaks the same few lines of JSON. What the servers used
// is read from outside (meter.go).
package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Plan is what a contender is to do in one run. It goes to the runner as JSON.
type Plan struct {
	Peer    string `json:"peer"`    // whom to run
	Variant string `json:"variant"` // which of its settings; empty: those that all share
	Target  string `json:"target"`  // DSN, address or file
	Install string `json:"install"` // a file of SQL that makes the peer, for those that are SQL

	Tasks     int `json:"tasks"`
	Batch     int `json:"batch"`     // tasks that one call enqueues, and one claim takes
	Workers   int `json:"workers"`   // handlers that run at once
	Producers int `json:"producers"` // that enqueue at once

	Order    Order         `json:"order"`
	Work     time.Duration `json:"work"`     // how long a handler takes; nothing is computed
	Rate     float64       `json:"rate"`     // tasks per second, each enqueued when it is due; 0: as fast as can be
	DueIn    time.Duration `json:"due_in"`   // all tasks come due together, this long after the beginning
	Tenants  int           `json:"tenants"`  // tasks go to them in turn, and half of all to the first
	History  int           `json:"history"`  // tasks that have been run before
	Patience time.Duration `json:"patience"` // for making the history; less is made when it is over

	Shape     Shape         `json:"shape"`     // of an everyday run: what its tasks are like
	Processes int           `json:"processes"` // that work, each with connections of its own; 0: one
	Warm      int           `json:"warm"`      // tasks of an everyday run before those that are measured
	Settle    time.Duration `json:"settle"`    // between these and what is measured
	Idle      time.Duration `json:"idle"`      // instead of tasks: the workers wait for so long
}

// Order says when tasks are produced and consumed.
type Order string

const (
	ProduceOnly Order = "produce"
	Backlog     Order = "backlog"  // produce, and then consume
	Together    Order = "together" // both at once
	Everyday    Order = "everyday" // both, at a rate, with workers that have worked before
)

// Shape says what the tasks of an everyday run are like.
type Shape string

const (
	Single   Shape = "single"   // enqueued by itself
	InTx     Shape = "in tx"    // inside a transaction that writes one row of the user's
	Unique   Shape = "unique"   // has a key of its own
	Delayed  Shape = "delayed"  // may start after Delay
	Retried  Shape = "retried"  // fails once
	Limited  Shape = "limited"  // is of one of ten tenants, each of which may run ten at a time
	Workflow Shape = "workflow" // three steps, of which only the first is enqueued by its number
)

// Tenants of tasks of the shape Limited, and how many of each may run at a time.
const (
	LimitedTenants = 10
	LimitedTo      = 10
)

// Delay of a task of the shape Delayed.
const Delay = time.Second

// Steps of a task of the shape Workflow.
const Steps = 3

// Result is what the runner counted.
type Result struct {
	Stored  int           `json:"stored"`  // tasks that were enqueued
	Calls   int           `json:"calls"`   // of the handler
	Tasks   int           `json:"tasks"`   // that the handler has seen at least once
	Took    time.Duration `json:"took"`    // until the last was finished in the database
	History int           `json:"history"` // tasks that had been run before
	Waits   Waits         `json:"waits"`
}

// Waits are times from due to started; in everyday runs, from stored to started.
type Waits struct {
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
	Max  time.Duration `json:"max"`
}

// Peer is a queue. Its methods are called in this order: Open; Enqueue, by
// several goroutines; Work, once at a time; Left; Close.
type Peer interface {
	// Open connects, and makes what the queue needs in an empty database.
	Open(ctx context.Context, p Plan) error
	// Enqueue stores tasks, durably when it returns.
	Enqueue(ctx context.Context, tasks []Task) error
	// Work runs tasks until ctx ends, and then stops as the queue's users are told
	// to: what has begun is finished. Handle is the handler's body.
	Work(ctx context.Context, handle func(n int)) error
	// Left counts tasks that are stored and not known to be finished.
	Left(ctx context.Context) (int, error)
	Close() error
}

// Task is a task that is about to be enqueued.
type Task struct {
	N      int       // who it is
	RunAt  time.Time // zero: at once
	Tenant int
	Shape  Shape // empty: Single
}

// ArgsBytes is how long the args of every task are.
const ArgsBytes = 80

// Args of a task, ArgsBytes of JSON.
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

// Number reads a task's args back.
func Number(args []byte) (int, error) {
	var a Args
	if err := json.Unmarshal(args, &a); err != nil {
		return 0, fmt.Errorf("args %.100q: %w", args, err)
	}
	return a.N, nil
}
