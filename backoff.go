package tusk

import (
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
)

// Backoff says how long to wait before the next attempt of a failed task. It is
// stored with the task. The zero value is exponential: one second, doubled after
// every attempt up to a day, with a fifth of jitter. Make others with
// ConstantBackoff, LinearBackoff and ExponentialBackoff.
type Backoff = lifecycle.Backoff

// ConstantBackoff waits for the same time after every attempt.
func ConstantBackoff(every time.Duration) Backoff {
	return Backoff{Shape: lifecycle.Constant, Base: every}
}

// LinearBackoff waits for step times the number of attempts so far: the rule of
// "5 minutes × attempt", up to a day.
func LinearBackoff(step time.Duration) Backoff {
	return Backoff{Shape: lifecycle.Linear, Base: step}
}

// ExponentialBackoff waits for base, doubled after every attempt up to max. A
// random part, up to the share jitter (0 to 1), is taken off each delay so that
// tasks which failed together do not come back together.
func ExponentialBackoff(base, max time.Duration, jitter float64) Backoff {
	return Backoff{Shape: lifecycle.Exponential, Base: base, Max: max, Jitter: jitter}
}
