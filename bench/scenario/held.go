package scenario

import (
	"context"

	"github.com/tuskqueue/tusk/bench/harness"
)

var held = Scenario{
	Name: "held", Title: "Produce and consume while a transaction is held open", Main: true,
	What: "As above, while another session keeps a transaction open that sees the time before.",
	Plan: togetherPlan,
	Around: func(t Target) harness.Surroundings {
		return func(ctx context.Context) (func(), error) { return hold(ctx, t) }
	},
}
