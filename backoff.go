package tusk

import (
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
)

// Backoff is how long to wait before the next attempt of a failed task. It is stored with the task. The zero value
// is exponential: one second, doubled after every attempt up to one day, with a jitter of a fifth. Create others
// with ConstantBackoff, LinearBackoff and ExponentialBackoff.
type Backoff = lifecycle.Backoff

// ConstantBackoff waits the same time after every attempt.
func ConstantBackoff(every time.Duration) Backoff {
	return Backoff{Shape: lifecycle.Constant, Base: every}
}

// LinearBackoff waits step times the number of attempts so far, up to one day. For example, with a step of 5
// minutes it waits 5 minutes × attempt.
func LinearBackoff(step time.Duration) Backoff {
	return Backoff{Shape: lifecycle.Linear, Base: step}
}

// ExponentialBackoff waits base, doubled after every attempt up to max. A random part, up to the share jitter (0
// to 1), is subtracted from each delay so that tasks that failed together are not retried together.
func ExponentialBackoff(base, max time.Duration, jitter float64) Backoff {
	return Backoff{Shape: lifecycle.Exponential, Base: base, Max: max, Jitter: jitter}
}
