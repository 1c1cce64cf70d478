package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

// This file has the API's views of tasks, queues and other things: stable names, times in UTC, durations as text.

// Duration is text such as 1m30s or 7d, or a number of seconds.
type Duration time.Duration

// String returns the duration as text such as 168h, without days, which not every program can read.
func (d Duration) String() string { return duration.Hours(time.Duration(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := duration.Parse(string(text))
	if err != nil {
		return problem(422, "invalid_duration", "%q: %v", short(string(text)), err)
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error { return durationFrom(text, d.UnmarshalText, d) }

// durationFrom reads a number of seconds into d, and reads anything else as text.
func durationFrom(json []byte, asText func([]byte) error, d *Duration) error {
	if json[0] == '"' {
		plain, err := strconv.Unquote(string(json)) // text that JSON escapes is not a duration
		if err != nil {
			plain = string(json)
		}
		return asText([]byte(plain))
	}
	seconds, err := strconv.ParseFloat(string(json), 64)
	if err != nil || !(seconds >= 0 && seconds <= maxSeconds) {
		return problem(422, "invalid_duration", "want "+duration.Form+", not %s", short(string(json)))
	}
	*d = Duration(seconds * float64(time.Second))
	return nil
}

const maxSeconds = 9e9 // 285 years, which fit into a time.Duration

// Schema implements huma.SchemaProvider.
func (Duration) Schema(huma.Registry) *huma.Schema { return durationSchema("") }

func durationSchema(description string) *huma.Schema {
	seconds := huma.Schema{Type: huma.TypeNumber, Description: "seconds"}
	numbers(0, maxSeconds)(&seconds)
	words := huma.Schema{Type: huma.TypeString}
	text(1, 64, durationPattern)(&words)
	return &huma.Schema{Description: description, Examples: []any{"1m30s", "7d", 90},
		AnyOf: []*huma.Schema{&words, &seconds}}
}

// Instant is an RFC 3339 time in JSON.
type Instant struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Instant) UnmarshalText(text []byte) error {
	v, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return problem(422, "invalid_time", "want an instant like 2026-01-31T12:00:00Z, not %q", short(string(text)))
	}
	t.Time = v
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. Otherwise that of time.Time would be used.
func (t *Instant) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return problem(422, "invalid_time", "want an instant like 2026-01-31T12:00:00Z")
	}
	return t.UnmarshalText([]byte(s))
}

// Schema implements huma.SchemaProvider.
func (Instant) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Format: "date-time"}
}

// Task is a task as the API shows it.
type Task struct {
	ID           string            `json:"id"`
	Kind         string            `json:"kind"`
	Queue        string            `json:"queue"`
	Tenant       string            `json:"tenant,omitempty"`
	State        string            `json:"state"`
	Reason       string            `json:"reason,omitempty"`
	Priority     int16             `json:"priority"`
	Attempt      int               `json:"attempt"`
	MaxAttempts  int               `json:"max_attempts"`
	Crashes      int               `json:"crashes,omitempty"`
	Args         json.RawMessage   `json:"args"`
	Tags         []string          `json:"tags,omitempty"`
	Key          string            `json:"key,omitempty"`
	Partition    string            `json:"partition,omitempty"`
	Weight       int               `json:"weight" doc:"how much it counts in rates"`
	Ephemeral    bool              `json:"ephemeral,omitempty" doc:"not kept once it is completed"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Timeout      Duration          `json:"timeout,omitempty"`
	StallTimeout Duration          `json:"stall_timeout,omitempty" doc:"limit for an attempt without a sign of life"`
	Schedule     string            `json:"schedule,omitempty"`
	Tick         time.Time         `json:"tick,omitzero"`
	EnqueuedAt   time.Time         `json:"enqueued_at"`
	RunAt        time.Time         `json:"run_at"`
	ExpiresAt    time.Time         `json:"expires_at,omitzero"`
	Deadline     time.Time         `json:"deadline,omitzero" doc:"when it must have ended"`
	ClaimedAt    time.Time         `json:"claimed_at,omitzero"`
	FinishedAt   time.Time         `json:"finished_at,omitzero"`
	Worker       string            `json:"worker,omitempty"`
}

// TaskDetail is a task with everything that is known about it.
type TaskDetail struct {
	Task
	CancelRequested bool            `json:"cancel_requested,omitempty"`
	Changed         *LastChange     `json:"changed,omitempty" doc:"when it was last changed while it waited, and how"`
	Progress        *store.Progress `json:"progress,omitempty"`
	Output          json.RawMessage `json:"output,omitempty"`
	Attempts        []Attempt       `json:"attempts"`
	Logs            []store.LogLine `json:"logs"`
	Archived        bool            `json:"archived,omitempty" doc:"it has left the database, and is in the archive"`
}

// LastChange is when and how a task was last changed while it waited.
type LastChange struct {
	At  time.Time `json:"at"`
	How string    `json:"how" enum:"reprioritized,moved,rescheduled,retried,replaced"`
}

// Attempt is one run of a task that has ended.
type Attempt struct {
	Number      int       `json:"number"`
	Outcome     string    `json:"outcome"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	Worker      string    `json:"worker"`
	Error       string    `json:"error,omitempty"`
	Trace       string    `json:"trace,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
}

func (s *Server) view(t tusk.TaskInfo) Task {
	v := Task{ID: t.ID.String(), Kind: t.Kind, Queue: t.Queue, Tenant: t.Tenant, State: t.State.String(), Reason: t.Reason,
		Priority: t.Priority, Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Crashes: t.Crashes,
		Args: s.config.Mask.JSON(t.Args), Tags: t.Tags, Key: t.Key, Partition: t.Partition,
		Metadata: s.config.Mask.Text(t.Metadata),
		Weight:   t.Weight, Ephemeral: t.Ephemeral, Deadline: utc(t.Deadline), Timeout: Duration(t.Timeout),
		StallTimeout: Duration(t.StallTimeout),
		Schedule:     t.Schedule, Tick: utc(t.Tick), EnqueuedAt: utc(t.EnqueuedAt), RunAt: utc(t.RunAt),
		ExpiresAt: utc(t.ExpiresAt),
		ClaimedAt: utc(t.ClaimedAt), FinishedAt: utc(t.FinishedAt)}
	if !t.Worker.IsZero() {
		v.Worker = t.Worker.String()
	}
	if len(v.Args) == 0 {
		v.Args = json.RawMessage("{}")
	}
	return v
}

func (s *Server) detailView(t tusk.TaskInfo) TaskDetail {
	v := TaskDetail{Task: s.view(t), Attempts: []Attempt{}, Logs: []store.LogLine{}}
	d := t.Detail
	if d == nil {
		return v
	}
	v.CancelRequested, v.Progress, v.Output = d.CancelRequested, d.Progress, s.config.Mask.JSON(d.Output)
	if c := d.Changed; c != nil {
		v.Changed = &LastChange{At: utc(c.At), How: string(c.How)}
	}
	for _, a := range d.Attempts {
		v.Attempts = append(v.Attempts, Attempt{a.Number, a.Outcome.String(), utc(a.StartedAt), utc(a.EndedAt),
			a.Worker.String(), a.Error, a.Trace, a.Fingerprint})
	}
	for _, l := range d.Logs {
		if l.Level == store.LevelStep {
			l.Text = s.config.Mask.Step(l.Text)
		}
		v.Logs = append(v.Logs, l)
	}
	return v
}

// utc returns a time as the API shows it: to the millisecond, which every engine stores.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// TaskInput is a task to enqueue.
type TaskInput struct {
	Kind string `json:"kind" rule:"name" required:"true" doc:"the handler that runs it"`
	Args json.
		RawMessage `json:"args,omitempty" doc:"any JSON, kept byte for byte; up to 256 KiB, more by /tasks/large; 64 levels"`
	Queue        string            `json:"queue,omitempty" rule:"optional-name" doc:"default: default"`
	Tenant       string            `json:"tenant,omitempty" rule:"optional-name"`
	Partition    string            `json:"partition,omitempty" rule:"key" doc:"within the tenant, in queues with limits"`
	Priority     int16             `json:"priority,omitempty" rule:"priority" doc:"lower runs sooner"`
	Tags         []string          `json:"tags,omitempty" rule:"tag"`
	Metadata     map[string]string `json:"metadata,omitempty" doc:"up to 16 KiB as JSON"`
	RunAt        *Instant          `json:"run_at,omitempty" doc:"the earliest start; up to 10 years ahead, like all times"`
	Delay        Duration          `json:"delay,omitempty" doc:"up to 10 years; not together with run_at"`
	ExpiresAt    *Instant          `json:"expires_at,omitempty" doc:"the latest start"`
	ExpiresIn    Duration          `json:"expires_in,omitempty" doc:"up to 10 years; the earlier of the two counts"`
	Deadline     *Instant          `json:"deadline,omitempty" doc:"when it must have ended; after that, it is stopped or discarded"`
	DeadlineIn   Duration          `json:"deadline_in,omitempty" doc:"the same, from the enqueue on; the earlier counts"`
	MaxAttempts  int               `json:"max_attempts,omitempty" rule:"attempts" doc:"default: 25"`
	Timeout      Duration          `json:"timeout,omitempty" doc:"limit for each attempt, up to 7d"`
	StallTimeout Duration          `json:"stall_timeout,omitempty" doc:"limit for each attempt without a sign of life, up to 7d; for Go handlers and commands"`
	Backoff      *BackoffInput     `json:"backoff,omitempty"`
	Weight       int               `json:"weight,omitempty" rule:"weight" doc:"how much it counts in rates; default: 1"`
	Ephemeral    bool              `json:"ephemeral,omitempty" doc:"not kept once it is completed"`
	Key          string            `json:"key,omitempty" rule:"key" doc:"at most one unfinished task per queue and tenant"`
	OnConflict   string            `json:"on_conflict,omitempty" enum:"skip,replace,rerun,once" doc:"default: skip"`
	SourceTime   *Instant          `json:"source_time,omitempty" doc:"when the key's source changed, for rerun"`
	Unique       *UniqueInput      `json:"unique,omitempty" doc:"derives the key, instead of key"`
}

// UniqueInput makes a task's key from its kind, tenant and args.
type UniqueInput struct {
	Args   []string `json:"args,omitempty" minLength:"1" maxLength:"255" maxItems:"16" doc:"names of the fields that count; customer.id is a field of a field; default: all"`
	Window Duration `json:"window,omitempty" doc:"one task per 1s to 366d, whatever its outcome; default: one unfinished"`
}

// BackoffInput says how long to wait before the next attempt.
type BackoffInput struct {
	Shape  string   `json:"shape" enum:"constant,linear,exponential"`
	Base   Duration `json:"base" doc:"before the first retry: above 0, up to 10 years"`
	Max    Duration `json:"max,omitempty"`
	Jitter float64  `json:"jitter,omitempty" minimum:"0" maximum:"1" doc:"0 to 1"`
}

func (t TaskInput) task() (tusk.NewTask, error) {
	o, err := t.options()
	if t.Kind == "" {
		err = errors.Join(fieldProblem(422, "missing_field", "kind", "is missing"), err)
	}
	return tusk.NewTask{Args: tusk.RawArgs{Name: t.Kind, JSON: t.Args}, Options: o}, err
}

func (t TaskInput) options() (*tusk.Options, error) {
	o := &tusk.Options{Queue: t.Queue, Tenant: t.Tenant, Priority: t.Priority, Tags: t.Tags, Metadata: t.Metadata,
		RunAt: instant(t.RunAt), Delay: time.Duration(t.Delay), ExpiresAt: instant(t.ExpiresAt),
		ExpiresIn: time.Duration(t.ExpiresIn),
		Deadline:  instant(t.Deadline), DeadlineIn: time.Duration(t.DeadlineIn), Weight: t.Weight, Ephemeral: t.Ephemeral,
		Partition:   t.Partition,
		MaxAttempts: t.MaxAttempts, Timeout: time.Duration(t.Timeout), StallTimeout: time.Duration(t.StallTimeout),
		Key: t.Key, SourceTime: instant(t.SourceTime)}
	if u := t.Unique; u != nil {
		o.Unique = &tusk.Unique{Args: u.Args, Window: time.Duration(u.Window)}
	}
	if b := t.Backoff; b != nil {
		switch base, most := time.Duration(b.Base), time.Duration(b.Max); b.Shape {
		case "constant":
			o.Backoff = tusk.ConstantBackoff(base)
		case "linear":
			o.Backoff = tusk.LinearBackoff(base)
		case "exponential":
			o.Backoff = tusk.ExponentialBackoff(base, most, b.Jitter)
		default:
			return o, fieldProblem(422, "invalid_backoff", "backoff.shape", "want constant, linear or exponential")
		}
		o.Backoff.Max, o.Backoff.Jitter = time.Duration(b.Max), b.Jitter
	}
	switch t.OnConflict {
	case "", "skip":
		o.OnConflict = tusk.Skip
	case "replace":
		o.OnConflict = tusk.Replace
	case "rerun":
		o.OnConflict = tusk.Rerun
	case "once":
		o.OnConflict = tusk.Once
	default:
		return o, fieldProblem(422, "invalid_policy", "on_conflict", "want skip, replace, rerun or once")
	}
	return o, nil
}

func instant(t *Instant) time.Time {
	if t == nil {
		return time.Time{}
	}
	return tusk.At(t.Time)
}

// allowed fails unless an identity may enqueue for the queue and tenant, which it has named.
func allowed(who access.Identity, queue, tenant string) error {
	if queue == "" {
		queue = tusk.DefaultQueue
	}
	switch {
	case !who.SeesQueue(queue):
		return notIts(who, "queue", queue)
	case who.Sees(queue, tenant):
		return nil
	case tenant == "":
		return problem(403, "forbidden", "your %s is bound to tenants, and the task has none: give it one", who.Via)
	}
	return notIts(who, "tenant", tenant)
}

// notIts refuses a queue or a tenant that the caller has named. The name of any other would reveal it.
func notIts(who access.Identity, what, name string) *Problem {
	return problem(403, "forbidden", "your %s may not use the %s %s: it is not among its %ss", who.Via, what, short(name),
		what)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
