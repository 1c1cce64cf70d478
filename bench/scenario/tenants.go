package scenario

import "github.com/tuskqueue/tusk/bench/harness"

var tenants = Scenario{
	Name: "tenants", Title: "1,000 tenants", Waits: true,
	What: "One tenant stores half of all tasks first, then 999 others store theirs; the times are those others', from " +
		"the workers' start to the task's.",
	Plan: func(s Size, perSecond float64) harness.Plan {
		p := plan(harness.Backlog, min(s.tasks(perSecond, s.Seconds), 100000))
		p.Tenants, p.Producers = 1000, 1
		return p
	},
}
