package tusk

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/words"
)

// Backoff is how long to wait before the next attempt of a failed task. It is stored with the task. The zero value
// is exponential: one second, doubled after every attempt up to one day, with a jitter of a fifth. Create others
// with ConstantBackoff, LinearBackoff and ExponentialBackoff. The base must be above 0; ConstantBackoff of a
// millisecond retries at once.
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

// storedBackoff returns a stored backoff in a form that can be entered. Older programs could store one without a
// base, which retries at once.
func storedBackoff(b Backoff) Backoff {
	if b.Base == 0 && b != (Backoff{}) {
		return atOnce
	}
	return b
}

var atOnce = ConstantBackoff(time.Millisecond)

const backoffForm = "constant:5s, linear:5m or exponential:BASE[:MAX[:JITTER]]"

// ParseBackoff parses the text form of a backoff: constant:5s, linear:5m or exponential:BASE[:MAX[:JITTER]].
func ParseBackoff(text string) (Backoff, error) {
	wrong := func(why string) (Backoff, error) {
		return Backoff{}, invalid("backoff", "invalid_backoff", "%swant %s", why, backoffForm)
	}
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 4 {
		return wrong("")
	}
	base, err := duration.Parse(parts[1])
	if err != nil || base == 0 {
		return wrong("the base must be a duration above 0: ")
	}
	var b Backoff
	switch parts[0] {
	case "constant":
		b = ConstantBackoff(base)
	case "linear":
		b = LinearBackoff(base)
	case "exponential":
		b = ExponentialBackoff(base, max(base, 24*time.Hour), 0.2)
	default:
		return wrong(words.Hinted(fmt.Sprintf("unknown shape %q", cutText(parts[0])), parts[0],
			[]string{"constant", "linear", "exponential"}) + ": ")
	}
	if len(parts) > 2 {
		if b.Max, err = duration.Parse(parts[2]); err != nil || b.Max == 0 {
			return wrong("the maximum must be a duration above 0: ")
		}
	}
	if len(parts) > 3 {
		if b.Jitter, err = strconv.ParseFloat(parts[3], 64); err != nil || !(b.Jitter >= 0 && b.Jitter <= 1) {
			return wrong("the jitter must be a share from 0 to 1: ")
		}
	}
	return b, validateBackoff(b)
}
