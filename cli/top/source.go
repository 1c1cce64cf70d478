// Package top is the live view of tusk top: queues, kinds, workers, errors and running tasks, with keys to pause,
// inspect and retry.
//
// A Source provides the data, from a database or a server. The screen is a pure function of that data and of the
// pressed keys, and decides nothing about tasks. Only program.go knows the terminal library.
package top

import (
	"context"
	"time"
)

// Source provides the data, and makes the changes that an operator requests.
type Source interface {
	Overview(ctx context.Context) (Overview, error)
	// Errors returns the error groups of the last 24 hours, those that need attention first.
	Errors(ctx context.Context) ([]ErrorGroup, error)
	// Tasks returns the newest tasks that match.
	Tasks(ctx context.Context, f Filter) ([]Task, error)
	Task(ctx context.Context, id string) (Detail, error)

	Pause(ctx context.Context, queue string) error
	Resume(ctx context.Context, queue string) error
	Retry(ctx context.Context, id string) error
}

// page is the largest number of tasks and error groups to load.
const page = 100

// The types below have the JSON names of the HTTP API. Durations are seconds.

// Overview is the state of queues and workers at one time.
type Overview struct {
	At      time.Time `json:"at"`
	Queues  []Queue   `json:"queues"`
	Stats   []Stat    `json:"stats"` // of the current and the previous minute
	Workers []Worker  `json:"workers"`
}

// Queue is a queue with its depth by state.
type Queue struct {
	Name   string           `json:"name"`
	Paused bool             `json:"paused"`
	Tasks  map[string]int64 `json:"tasks"`
	Oldest float64          `json:"oldest_seconds"`
}

// Stat sums up the attempts of a queue and kind that ended in a minute.
type Stat struct {
	At        time.Time `json:"at"`
	Queue     string    `json:"queue"`
	Kind      string    `json:"kind"`
	Completed int64     `json:"completed"`
	Failed    int64     `json:"failed"`
	Discarded int64     `json:"discarded"`
	Cancelled int64     `json:"cancelled"`
	Waited    Span      `json:"waited"`
	Ran       Span      `json:"ran"`
}

// Span sums up durations.
type Span struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
}

// Worker is a live worker.
type Worker struct {
	ID          string    `json:"id"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Queues      []string  `json:"queues"`
	Concurrency int       `json:"concurrency"`
	Running     int       `json:"running"`
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"started_at"`
	BeatAt      time.Time `json:"beat_at"`
}

// ErrorGroup is a group of similar errors.
type ErrorGroup struct {
	Fingerprint string    `json:"fingerprint"`
	Queue       string    `json:"queue"`
	Kind        string    `json:"kind"`
	Count       int64     `json:"count"`
	Waiting     int64     `json:"waiting"`
	Dead        int64     `json:"dead"`
	Last        time.Time `json:"last"`
	Sample      string    `json:"sample"`
	SampleTask  string    `json:"sample_task"`
}

// Filter selects tasks. An empty field selects all.
type Filter struct {
	Queue, Kind, State, Fingerprint string
}

// Task is a task without its args, which may be confidential.
type Task struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`
	Queue       string    `json:"queue"`
	Tenant      string    `json:"tenant,omitempty"`
	State       string    `json:"state"`
	Reason      string    `json:"reason,omitempty"`
	Priority    int16     `json:"priority"`
	Attempt     int       `json:"attempt"`
	MaxAttempts int       `json:"max_attempts"`
	EnqueuedAt  time.Time `json:"enqueued_at"`
	RunAt       time.Time `json:"run_at"`
	ClaimedAt   time.Time `json:"claimed_at,omitzero"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`
	Worker      string    `json:"worker,omitempty"`
}

// Detail is a task with its attempts and the reasons why it does not run.
type Detail struct {
	Task
	Progress *Progress `json:"progress,omitempty"`
	Changed  *Change   `json:"changed,omitempty"`
	Attempts []Attempt `json:"attempts"`
	Reasons  []Reason  `json:"reasons"`
}

// Change is when and how a task was last changed while it waited.
type Change struct {
	At  time.Time `json:"at"`
	How string    `json:"how"`
}

// Progress is the progress of a task.
type Progress struct {
	Percent float64 `json:"percent"`
	Message string  `json:"message,omitempty"`
}

// Attempt is one run of a task that has ended.
type Attempt struct {
	Number    int       `json:"number"`
	Outcome   string    `json:"outcome"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Error     string    `json:"error,omitempty"`
}

// Reason is one reason why a task does not run.
type Reason struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}
