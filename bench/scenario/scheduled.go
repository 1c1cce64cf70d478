package scenario

import (
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

var scheduled = Scenario{
	Name: "scheduled", Title: "Scheduled tasks that come due together", Waits: true,
	What: "Tasks are stored that all may start at the same instant, two seconds later; the times are from that instant " +
		"to started.",
	Plan: func(s Size, perSecond float64) harness.Plan {
		p := plan(harness.Together, min(s.tasks(perSecond, s.Seconds), 10000))
		p.DueIn = 2 * time.Second
		return p
	},
}
