package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// State is where a task is in its life.
type State = store.State

// The eight states; see package store.
const (
	StateScheduled = store.Scheduled
	StatePending   = store.Pending
	StateAvailable = store.Available
	StateRunning   = store.Running
	StateRetryable = store.Retryable
	StateCompleted = store.Completed
	StateCancelled = store.Cancelled
	StateDiscarded = store.Discarded
)

// TaskInfo is a task as its handler or an operator sees it: what the store knows,
// and what its settings say.
type TaskInfo struct {
	store.Task
	MaxAttempts  int
	Timeout      time.Duration // 0: the handler's, else none
	StallTimeout time.Duration // 0: the handler's, else none
	Backoff      Backoff
	Metadata     map[string]string
	Schedule     string    // the schedule that enqueued it; empty: none
	Tick         time.Time // the tick for which it did
	Node         string    // its name in its workflow
	Weight       int       // what it counts in rates
	Deadline     time.Time // when it must have ended; zero: never
	Ephemeral    bool      // not kept when it is completed
	SourceTime   time.Time // when its key's source changed; zero: not told
	Jumps        int       // how often its run of a pipeline has jumped back so far; see MaxJumps
	// TraceContext is the W3C trace context that travels with the task (traceparent,
	// tracestate). Children and next stages get that of the attempt, so middleware that
	// traces sets it. Nil: the task is not traced.
	TraceContext map[string]string
}

// Task is a task in the hands of its handler.
type Task[T any] struct {
	TaskInfo
	Args T

	attempt *run.Attempt
	client  *Client
}

// RecordOutput stores v, encoded as JSON, as the task's output. The last one of
// an attempt counts; it is stored with the attempt's outcome. One that takes more than
// MaxOutputBytes goes to the client's Payloads at once.
//
// The error is an *InvalidError when the client has none, or it takes more than MaxPayloadBytes.
func (t *Task[T]) RecordOutput(v any) error {
	output, err := json.Marshal(v)
	if err != nil {
		return invalid("output", "invalid_json", "of type %T cannot be encoded: %v", v, err)
	}
	if len(output) > MaxOutputBytes {
		return t.StreamOutput(t.attempt.Context(), bytes.NewReader(output))
	}
	if err := checkOutput(output); err != nil {
		return err
	}
	t.attempt.SetOutput(output)
	return nil
}

// StreamOutput is RecordOutput of JSON that need not be in memory.
func (t *Task[T]) StreamOutput(ctx context.Context, r io.Reader) error {
	output, err := t.client.readOutput(ctx, t.ID, r)
	if err == nil {
		t.attempt.SetOutput(output)
	}
	return err
}

// SetProgress tells how far the task is, in percent, with a short message. It is
// stored within about a second, and is a sign of life for the stall timeout.
func (t *Task[T]) SetProgress(percent float64, message string) {
	if !(percent >= 0) {
		percent = 0
	}
	t.attempt.SetProgress(store.Progress{Percent: min(percent, 100), Message: lifecycle.Clean(message, 1<<10)})
}

// Alive is a sign of life for the stall timeout, from a handler that has nothing to tell.
func (t *Task[T]) Alive() { t.attempt.Alive() }

// Logger returns a logger whose lines are stored with the task, each of them a sign of
// life for the stall timeout. An attempt keeps
// 1,000 lines or 256 KiB; a last line says when that is reached.
func (t *Task[T]) Logger() *slog.Logger { return slog.New(&taskLog{attempt: t.attempt}) }

// IdempotencyKey is the same for all attempts of the task: pass it to services
// that can recognise a repeated request.
func (t *Task[T]) IdempotencyKey() string { return t.ID.String() }

// CompleteTx completes the task inside the handler's own transaction (*sql.Tx, or
// pgx.Tx on PostgreSQL) on the task's database: its effects and its completion
// commit together or not at all. Commit and return nil afterwards. If the
// transaction is not committed, the attempt counts as failed.
//
// Errors: ErrLeaseLost when the task is no longer this attempt's, so that the
// transaction must be rolled back; ErrUnsupported when the engine has no
// transactions of that type.
func (t *Task[T]) CompleteTx(ctx context.Context, tx any) error {
	engine, ok := store.As[store.Transactor](t.client.store)
	if !ok {
		return fmt.Errorf("complete: %w: return nil instead, and make the handler idempotent", ErrUnsupported)
	}
	inside, err := engine.Tx(tx)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	task := t.TaskInfo.Task
	then, _ := t.attempt.Then()
	before := t.attempt.InTx()
	t.attempt.SetInTx(true)
	lost, err := inside.Finish(ctx, []store.Outcome{{Task: &task, State: store.Completed, Attempt: task.Attempt,
		Forget: t.Ephemeral && t.Workflow.IsZero(), Then: then, Ran: t.attempt.Age(), Note: t.attempt.Final()}})
	if err == nil && len(lost) == 0 {
		return nil
	}
	t.attempt.SetInTx(before)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return ErrLeaseLost
}

// read takes over what the store says of a task.
func (info *TaskInfo) read(t *store.Task) error {
	info.Task, info.MaxAttempts, info.Weight = *t, lifecycle.DefaultMaxAttempts, 1
	if len(t.Settings) == 0 {
		return nil
	}
	s, err := lifecycle.DecodeSettings(t.Settings)
	if err != nil {
		return err
	}
	if s.MaxAttempts > 0 {
		info.MaxAttempts = s.MaxAttempts
	}
	info.Timeout, info.StallTimeout, info.Backoff = s.Timeout, s.Stall, s.Backoff
	info.Schedule, info.Tick, info.Node = s.Schedule, s.Tick, s.Node
	info.Weight, info.Deadline, info.Ephemeral = max(s.Weight, 1), s.DeadlineOf(t), s.Ephemeral
	info.TraceContext, info.SourceTime, info.Jumps = s.TraceContext, s.Source, s.Jumps
	if len(s.Metadata) > 0 {
		if err := json.Unmarshal(s.Metadata, &info.Metadata); err != nil {
			return fmt.Errorf("metadata of the task cannot be read: %w", err)
		}
	}
	return nil
}

// taskLog is a slog.Handler that notes lines on an attempt.
type taskLog struct {
	attempt *run.Attempt
	prefix  string // group names of the attributes
	attrs   string // those given before
}

func (l *taskLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *taskLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message + l.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += l.format(a)
		return true
	})
	l.attempt.Log(r.Time, r.Level.String(), lifecycle.Clean(text, 8<<10))
	return nil
}

func (l *taskLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *l
	for _, a := range attrs {
		with.attrs += l.format(a)
	}
	return &with
}

func (l *taskLog) WithGroup(name string) slog.Handler {
	with := *l
	with.prefix += name + "."
	return &with
}

func (l *taskLog) format(a slog.Attr) string {
	return fmt.Sprintf(" %s%s=%v", l.prefix, a.Key, a.Value.Resolve())
}
