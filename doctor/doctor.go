// Package doctor says what of a database, or of what works on it, is ill, and what mends
// it. Gather reads the facts; Examine, which is pure, judges them. The command, the API and
// the page show the same findings.
package doctor

import (
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
)

// Status is how bad a finding is.
type Status string

// The statuses.
const (
	OK       Status = "ok"
	Warn     Status = "warn"
	Critical Status = "critical"
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"` // stable, such as leader or disk
	Status Status `json:"status"`
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"` // what mends it
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

// Options are the thresholds. Zero fields take the default.
type Options struct {
	Clock     time.Duration // how far clocks may be apart; default: 2 s
	Open      time.Duration // how long a transaction may be open; default: 5 min. Twelve times that is critical
	Waiting   time.Duration // how long the oldest available task may wait; default: 5 min
	Missed    time.Duration // how late a schedule may fire; default: 1 min
	Completed time.Duration // how long completed tasks are kept; default: 24 h
	Dead      float64       // dead rows for each live one; default: 0.2, beyond 100,000
	Free      float64       // the share of the disk that has to be free; default: 0.1. A third of that is critical
	Busy      float64       // the share of the server's connections that may be open; default: 0.8
	Untold    time.Duration // how long a message of an alert or a hook may wait for its receiver; default: 5 min
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
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Facts are what Examine judges by. An Err is that of what could not be read.
type Facts struct {
	Connection error // the database cannot be opened: nothing else is known

	Warnings []string // of the engine's own check
	Check    error

	Health    store.Health
	HealthErr error
	Unknown   bool      // the engine does not tell its health
	Local     time.Time // by this process's clock, when Health.Now was read
	Pool      int       // connections of this process's pool; 0: it has none
	Exhausted bool      // while this was gathered all were in use, and somebody waited for one
	Version   string    // of this program

	Workers   []store.Worker
	Queues    []tusk.Queue
	Schedules []tusk.ScheduleInfo
	Served    map[string]bool    // queues that have an endpoint
	PutOff    []store.ErrorGroup // tasks of kinds that nobody had a handler for
	Receivers []herald.Receiver
	ReadErr   error
}

// Examine judges the facts: one finding at least for each check, in a fixed order.
func Examine(f Facts, o Options) []Finding {
	o = o.Complete()
	if f.Connection != nil {
		return []Finding{{"connection", Critical, f.Connection.Error(),
			"check that the database is up and that --db names it"}}
	}
	found := []Finding{{"connection", OK, "the database answers", ""}}
	found = append(found, f.check()...)
	if f.Check != nil && f.HealthErr != nil {
		return found // without the schema nothing else can be read
	}
	found = append(found, f.health(o)...)
	if f.ReadErr != nil {
		return append(found, Finding{"tasks", Critical, f.ReadErr.Error(), "read the log of the database server"})
	}
	return append(found, f.work(o)...)
}

// Checks are the names that findings have.
func Checks() []string {
	return []string{"bloat", "clock", "connection", "connections", "disk", "health", "kinds", "leader", "pool",
		"pooler", "pruning", "queues", "receivers", "schedules", "schema", "server", "settings", "tasks",
		"transactions", "versions"}
}

func ok(check, format string, args ...any) Finding {
	return Finding{check, OK, fmt.Sprintf(format, args...), ""}
}
