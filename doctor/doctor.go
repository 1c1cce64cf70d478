// Package doctor finds problems of a database and of the processes that use it, and says how to fix
// them. Gather reads the facts. Examine, which is pure, derives the findings from them. The
// command, the API and the page show the same findings.
package doctor

import (
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
)

// Status is the severity of a finding.
type Status string

// The statuses.
const (
	OK       Status = "ok"
	Warn     Status = "warn"
	Critical Status = "critical"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"` // stable, such as leader or disk
	Status Status `json:"status"`
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"` // how to fix it
}

// Worst returns the worst status of findings.
func Worst(findings []Finding) Status {
	worst := OK
	for _, f := range findings {
		if f.Status == Critical || f.Status == Warn && worst == OK {
			worst = f.Status
		}
	}
	return worst
}

// Options are the thresholds. Zero fields mean the defaults.
type Options struct {
	Clock     time.Duration // how far clocks may differ; default: 2 s
	Open      time.Duration // how long a transaction may be open; default: 5 min; twelve times that is critical
	Waiting   time.Duration // how long the oldest available task may wait; default: 5 min
	Missed    time.Duration // how late a schedule may fire; default: 1 min
	Completed time.Duration // how long completed tasks are kept; default: 24 h
	Dead      float64       // dead rows per live row; default: 0.2; counts above 100,000
	Free      float64       // share of the disk that has to be free; default: 0.1; a third of that is critical
	Busy      float64       // share of the server's connections that may be open; default: 0.8
	Untold    time.Duration // how long a message of an alert or a hook may wait; default: 5 min
	Running   time.Duration // how long an attempt may run; default: 24 h
}

// Complete returns options with the defaults filled in.
func (o Options) Complete() Options {
	set(&o.Clock, 2*time.Second)
	set(&o.Open, 5*time.Minute)
	set(&o.Waiting, 5*time.Minute)
	set(&o.Missed, time.Minute)
	set(&o.Completed, 24*time.Hour)
	set(&o.Dead, 0.2)
	set(&o.Free, 0.1)
	set(&o.Busy, 0.8)
	set(&o.Untold, 5*time.Minute)
	set(&o.Running, 24*time.Hour)
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Facts are what Examine judges. The error fields say what could not be read.
type Facts struct {
	Connection error // the database cannot be opened, and nothing else is known

	Warnings []string // from the engine's own check
	Check    error

	Health    store.Health
	HealthErr error
	Unknown   bool      // the engine cannot report its health
	Local     time.Time // this process's clock when Health.Now was read
	Pool      int       // connections of this process's pool; 0 if it has none
	Exhausted bool      // meanwhile all were in use, and something waited for one
	Version   string    // of this program

	Workers   []store.Worker
	Queues    []tusk.Queue
	Schedules []tusk.ScheduleInfo
	Served    map[string]bool    // queues that have an endpoint
	Endpoints []herald.Receiver  // those that a call has ever failed to reach
	PutOff    []store.ErrorGroup // tasks of kinds that no worker had a handler for
	Receivers []herald.Receiver
	Running   []store.Task // the running tasks that were enqueued longer ago than an attempt may run
	ReadErr   error
}

// Examine judges the facts. It returns at least one finding for each check, in a fixed order.
func Examine(f Facts, o Options) []Finding {
	o = o.Complete()
	if f.Connection == nil && f.HealthErr != nil && errors.Is(f.Check, store.ErrUnavailable) {
		f.Connection = f.Check
	}
	if f.Connection != nil {
		return []Finding{{"connection", Critical, f.Connection.Error(),
			"check that the database is up and that --db names it; of many ledgers, tusk ledgers list says which are not"}}
	}
	found := []Finding{{"connection", OK, "the database answers", ""}}
	found = append(found, f.check()...)
	if f.Check != nil && f.HealthErr != nil {
		return found // nothing else can be read without the schema
	}
	found = append(found, f.health(o)...)
	if f.ReadErr != nil {
		return append(found, Finding{"tasks", Critical, f.ReadErr.Error(), "read the log of the database server"})
	}
	return append(found, f.work(o)...)
}

// Checks returns the names of all checks.
func Checks() []string {
	return []string{"bloat", "clock", "connection", "connections", "disk", "endpoints", "health", "kinds", "leader",
		"pool", "pooler", "pruning", "queues", "receivers", "running", "schedules", "schema", "server", "settings",
		"tasks", "transactions", "versions"}
}

func ok(check, format string, args ...any) Finding {
	return Finding{check, OK, fmt.Sprintf(format, args...), ""}
}
