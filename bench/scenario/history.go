package scenario

import "github.com/tuskqueue/tusk/bench/harness"

var history = Scenario{
	Name: "history", Title: "Produce and consume with a large history",
	What: "As above, after so many tasks have been enqueued and run in the same database, through the same interface.",
	Plan: func(s Size, perSecond float64) harness.Plan {
		p := togetherPlan(s, perSecond)
		p.History, p.Patience = s.History, s.Patience
		return p
	},
}
