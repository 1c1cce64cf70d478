package scenario

import "github.com/tuskqueue/tusk/bench/harness"

var together = Scenario{
	Name: "together", Title: "Produce and consume", Main: true,
	What: "Two producers store batches of 500 while 100 handlers run them.",
	Plan: togetherPlan,
}

func togetherPlan(s Size, perSecond float64) harness.Plan {
	return plan(harness.Together, s.tasks(perSecond, s.Seconds))
}
