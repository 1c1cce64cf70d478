package scenario

import (
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

var work = Scenario{
	Name: "work", Title: "1 ms of work, 256 workers",
	What: "A backlog whose handlers wait for a millisecond each, 256 at once.",
	Plan: func(s Size, perSecond float64) harness.Plan {
		p := plan(harness.Backlog, s.tasks(perSecond, s.Seconds))
		p.Work, p.Workers = time.Millisecond, 256
		return p
	},
}
