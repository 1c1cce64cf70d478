package scenario

import "github.com/tuskqueue/tusk/bench/harness"

var rate = Scenario{
	Name: "rate", Title: "Fixed rate", Waits: true,
	What: "Each task is enqueued by itself when it is due, whether or not those before it were stored; the times are " +
		"from due to started.",
	Plan: func(s Size, _ float64) harness.Plan {
		p := plan(harness.Together, int(s.Rate*s.RateFor.Seconds()))
		p.Rate = s.Rate
		return p
	},
}
