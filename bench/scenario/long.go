package scenario

import (
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
)

var long = Scenario{
	Name: "long", Title: "Long tasks, one by one",
	What: "A backlog whose handlers wait for 20 ms each, one at a time: 50 tasks per second would be all there is.",
	Plan: func(s Size, _ float64) harness.Plan {
		p := plan(harness.Backlog, int(50*s.Seconds))
		p.Work, p.Workers = 20*time.Millisecond, 1
		return p
	},
}
