package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// State is the state of a task in its life cycle.
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

// TaskInfo is a task as its handler or an operator sees it: what the store knows, and its decoded settings.
type TaskInfo struct {
	store.Task
	MaxAttempts  int
	Timeout      time.Duration // 0 means the handler's, or none
	StallTimeout time.Duration // 0 means the handler's, or none
	Backoff      Backoff
	Metadata     map[string]string
	Schedule     string    // the schedule that enqueued it; empty means none
	Tick         time.Time // the tick that it was enqueued for
	Node         string    // its name in its workflow
	Weight       int       // what it counts towards rates
	Deadline     time.Time // when it must have ended; zero means never
	Ephemeral    bool      // not kept after it completes
	SourceTime   time.Time // when its key's source changed; zero means not set
	Jumps        int       // how often its run of a pipeline has gone back so far; see MaxJumps
	// TraceContext is the W3C trace context of the task (traceparent, tracestate). Children and next stages
	// inherit the attempt's trace context, so tracing middleware sets it. nil means that the task is not traced.
	TraceContext map[string]string
}

// Task is a task as its handler receives it. A Task that a program makes itself has no attempt: methods that need one
// return an error, and SetProgress, Alive and Logger do nothing. To test a handler, use package tusktest.
type Task[T any] struct {
	TaskInfo
	Args T

	attempt *run.Attempt
	client  *Client
}

var errMadeUp = errors.New("the task has no attempt: it comes from no worker (test handlers with package tusktest)")

// RecordOutput encodes v as JSON and stores it as the task's output, together with the attempt's outcome. The last
// call of an attempt counts. An output larger than MaxOutputBytes is written to the client's Payloads immediately.
//
// The error is an *InvalidError if the output is too large and the client has no Payloads, or if it exceeds
// MaxPayloadBytes.
func (t *Task[T]) RecordOutput(v any) error {
	if t.attempt == nil {
		return fmt.Errorf("output: %w", errMadeUp)
	}
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

// StreamOutput is like RecordOutput, for JSON that need not fit in memory.
func (t *Task[T]) StreamOutput(ctx context.Context, r io.Reader) error {
	if t.attempt == nil {
		return fmt.Errorf("output: %w", errMadeUp)
	}
	output, err := t.client.readOutput(ctx, t.ID, r)
	if err == nil {
		t.attempt.SetOutput(output)
	}
	return err
}

// SetProgress sets the task's progress, in percent, with a short message. It is stored within about a second, and
// is a sign of life for the stall timeout.
func (t *Task[T]) SetProgress(percent float64, message string) {
	if t.attempt != nil {
		t.attempt.SetProgress(store.Progress{Percent: percent, Message: lifecycle.Clean(message, 1<<10)})
	}
}

// Alive is a sign of life for the stall timeout, for a handler that has nothing to report.
func (t *Task[T]) Alive() {
	if t.attempt != nil {
		t.attempt.Alive()
	}
}

// Logger returns a logger whose lines are stored with the task. Each line is a sign of life for the stall timeout.
// An attempt keeps at most 1,000 lines or 256 KiB; a last line says when the limit is reached.
func (t *Task[T]) Logger() *slog.Logger { return slog.New(&taskLog{attempt: t.attempt}) }

// IdempotencyKey returns the same key for all attempts of the task. Pass it to services that can recognize a
// repeated request.
func (t *Task[T]) IdempotencyKey() string { return t.ID.String() }

// CompleteTx completes the task inside the handler's own transaction (*sql.Tx, or pgx.Tx on PostgreSQL) on the
// task's database: the handler's effects and the completion commit together or not at all. Commit and return nil
// afterwards. If the transaction is not committed, the attempt counts as failed. The commit includes what the handler
// has recorded so far, such as its output and children; it can add nothing afterwards.
//
// Errors: ErrLeaseLost if the task no longer belongs to this attempt; the transaction must then be rolled back.
// ErrUnsupported if the engine does not support transactions of that type, or if the task is a stage of a pipeline
// that has a next stage: the next stage needs the output, which is known only when the handler returns.
func (t *Task[T]) CompleteTx(ctx context.Context, tx any) error {
	if t.attempt == nil {
		return fmt.Errorf("complete: %w", errMadeUp)
	}
	if t.attempt.MovesOn() {
		return fmt.Errorf("complete: %w: the next stage of the pipeline needs the output of %q: commit without CompleteTx, "+
			"return the output, and make the handler idempotent", ErrUnsupported, t.Kind)
	}
	engine, ok := store.As[store.Transactor](t.client.store)
	if !ok {
		return fmt.Errorf("complete: %w: return nil instead, and make the handler idempotent", ErrUnsupported)
	}
	inside, err := engine.Tx(tx)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	task := t.TaskInfo.Task
	before := t.attempt.InTx()
	t.attempt.SetInTx(true)
	lost, err := inside.Finish(ctx, []store.Outcome{{Task: &task, State: store.Completed, Attempt: task.Attempt,
		Forget: t.Ephemeral && t.Workflow.IsZero(), Then: t.attempt.Then(), Ran: t.attempt.Age(),
		Note: t.attempt.Completing()}})
	if err == nil && len(lost) == 0 {
		return nil
	}
	t.attempt.SetInTx(before)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return ErrLeaseLost
}

// read copies the task and decodes its settings.
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
	info.Timeout, info.StallTimeout, info.Backoff = s.Timeout, s.Stall, storedBackoff(s.Backoff)
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

// taskLog is a slog.Handler that records lines on an attempt.
type taskLog struct {
	attempt *run.Attempt
	prefix  string // group names of the attributes
	attrs   string // attributes of WithAttrs
}

func (l *taskLog) Enabled(context.Context, slog.Level) bool { return l.attempt != nil }

func (l *taskLog) Handle(_ context.Context, r slog.Record) error {
	if l.attempt == nil {
		return nil
	}
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
