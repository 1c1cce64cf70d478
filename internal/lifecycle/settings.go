package lifecycle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Settings is what a task carries that stores do not interpret: its limits, its retry policy and
// its user's metadata. Zero values mean the defaults. Settings that are all zero are not stored.
type Settings struct {
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Timeout     time.Duration   `json:"timeout,omitempty"`       // nanoseconds; limit of one attempt
	Stall       time.Duration   `json:"stall_timeout,omitempty"` // nanoseconds; longest time without a sign of life
	Backoff     Backoff         `json:"backoff,omitzero"`
	Metadata    json.RawMessage `json:"metadata,omitempty"` // a JSON object
	Schedule    string          `json:"schedule,omitempty"` // the schedule whose tick this is
	Tick        time.Time       `json:"tick,omitzero"`
	Node        string          `json:"node,omitempty"`        // the task's name in its workflow
	Weight      int             `json:"weight,omitempty"`      // cost in rate limits; 0 means 1
	Deadline    time.Time       `json:"deadline,omitzero"`     // when it must have ended; zero means never
	DeadlineIn  time.Duration   `json:"deadline_in,omitempty"` // the same, relative to the enqueue
	Ephemeral   bool            `json:"ephemeral,omitempty"`   // not kept once completed
	Source      time.Time       `json:"source,omitzero"`       // when the source of its key changed; zero if unknown
	Jumps       int             `json:"jumps,omitempty"`       // jumps back so far in this run of its pipeline

	// TraceContext is the W3C trace context that travels with the task: traceparent and tracestate.
	TraceContext map[string]string `json:"trace_context,omitempty"`
}

// Encode returns the stored form.
func (s Settings) Encode() ([]byte, error) {
	if s.MaxAttempts == 0 && s.Timeout == 0 && s.Stall == 0 && s.Backoff == (Backoff{}) && len(s.Metadata) == 0 &&
		s.Schedule == "" && s.Tick.IsZero() &&
		s.Node == "" && s.Weight == 0 && s.Deadline.IsZero() && s.DeadlineIn == 0 && !s.Ephemeral && s.Source.IsZero() &&
		s.Jumps == 0 && len(s.TraceContext) == 0 {
		return nil, nil
	}
	return json.Marshal(s)
}

// WithNode returns the stored settings with the task's name in its workflow added.
func WithNode(stored []byte, name string) ([]byte, error) { return with(stored, "node", name) }

// WithSource returns the stored settings with the time at which the key's source changed added.
func WithSource(stored []byte, source time.Time) ([]byte, error) {
	return with(stored, "source", source.UTC())
}

// WithJumps returns the stored settings with the number of jumps back in this run of the pipeline
// added. Zero changes nothing.
func WithJumps(stored []byte, jumps int) ([]byte, error) {
	if jumps == 0 {
		return stored, nil
	}
	return with(stored, "jumps", jumps)
}

// WithTraceContext returns the stored settings with a trace context added. An empty one changes
// nothing.
func WithTraceContext(stored []byte, trace map[string]string) ([]byte, error) {
	if len(trace) == 0 {
		return stored, nil
	}
	return with(stored, "trace_context", trace)
}

// Traced reports whether stored settings contain a trace context. It may also return true for other
// text that resembles one.
func Traced(stored []byte) bool {
	return len(stored) > 0 && bytes.Contains(stored, []byte(`"trace_context"`))
}

// with sets one field and keeps all others, including fields that this version does not know.
func with(stored []byte, field string, value any) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if len(stored) > 0 {
		if err := json.Unmarshal(stored, &fields); err != nil {
			return nil, fmt.Errorf("settings: %w", err)
		}
	}
	var err error
	if fields[field], err = json.Marshal(value); err != nil {
		return nil, fmt.Errorf("settings: %s: %w", field, err)
	}
	return json.Marshal(fields)
}

// DeadlineOf returns when the task must have ended, or the zero time if it has no deadline.
func (s Settings) DeadlineOf(t *store.Task) time.Time {
	if s.DeadlineIn == 0 {
		return s.Deadline
	}
	in := t.EnqueuedAt.Add(s.DeadlineIn)
	if s.Deadline.IsZero() || in.Before(s.Deadline) {
		return in
	}
	return s.Deadline
}

// DecodeSettings reads the stored form.
func DecodeSettings(stored []byte) (s Settings, err error) {
	if len(stored) == 0 {
		return s, nil
	}
	return decode(stored)
}

// decode is separate from DecodeSettings because its result is allocated on the heap.
func decode(stored []byte) (s Settings, err error) {
	if err = json.Unmarshal(stored, &s); err != nil {
		err = fmt.Errorf("settings of the task cannot be read: %w", err)
	}
	return s, err
}

func (s Settings) maxAttempts() int {
	if s.MaxAttempts == 0 {
		return DefaultMaxAttempts
	}
	return s.MaxAttempts
}

// Backoff is a retry policy as data. It is stored with the task, so that a leader without the
// handler's code can apply it.
type Backoff struct {
	Shape  Shape         `json:"shape,omitempty"`
	Base   time.Duration `json:"base,omitempty"`   // nanoseconds
	Max    time.Duration `json:"max,omitempty"`    // longest delay; 0 means a day, or Base if that is longer
	Jitter float64       `json:"jitter,omitempty"` // share of the delay that is random, from 0 to 1
}

// Shape says how the delay grows with the number of the attempt.
type Shape string

// The shapes. The zero Backoff is exponential from one second up to a day, with a jitter of one
// fifth.
const (
	Constant    Shape = "constant"    // base
	Linear      Shape = "linear"      // base × attempt
	Exponential Shape = "exponential" // base × 2^(attempt−1)
)

const (
	defaultBase   = time.Second
	defaultMax    = 24 * time.Hour
	defaultJitter = 0.2
)

// Delay returns how long to wait after attempt n (counted from 1) failed. It never overflows:
// attempt 10,000 waits for Max. random is in [0, 1).
func (b Backoff) Delay(n int, random float64) time.Duration {
	if b == (Backoff{}) {
		b = Backoff{Shape: Exponential, Base: defaultBase, Jitter: defaultJitter}
	}
	if b.Max <= 0 {
		b.Max = max(defaultMax, b.Base)
	}
	delay := float64(b.Base)
	switch b.Shape {
	case Linear:
		delay *= float64(n)
	case Exponential:
		delay *= math.Pow(2, float64(n-1))
	}
	delay = min(delay, float64(b.Max))
	delay -= delay * b.Jitter * random
	return clampDelay(time.Duration(delay))
}

func clampDelay(d time.Duration) time.Duration { return max(d, 0) }
