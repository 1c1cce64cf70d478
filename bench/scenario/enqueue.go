package scenario

import "github.com/tuskqueue/tusk/bench/harness"

var enqueue = Scenario{
	Name: "enqueue", Title: "Enqueue", Main: true,
	What: "Two producers store batches of 500; nobody consumes.",
	Plan: func(s Size, perSecond float64) harness.Plan {
		return plan(harness.ProduceOnly, s.tasks(perSecond, s.Seconds))
	},
}
