package scenario

import "github.com/tuskqueue/tusk/bench/harness"

var consume = Scenario{
	Name: "consume", Title: "Consume a backlog", Main: true,
	What: "Handlers that do nothing run what was stored before, 100 at once.",
	Plan: func(s Size, perSecond float64) harness.Plan {
		return plan(harness.Backlog, s.tasks(perSecond, s.Seconds))
	},
}
