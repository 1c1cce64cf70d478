// Package alert notifies people when something has been wrong for some time, and when it is over. Rules are records.
// Judge is pure: it reports whether the condition of a rule holds. State.Next is pure as well: it decides what to
// send. A Runner reads, judges and sends, in the one process that holds the post (see package herald).
//
// This package may use a tusk.Client, the records of a store, and package notify, which sends its messages.
package alert

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/server/notify"
)

// Kind is the condition that a rule checks.
type Kind string

// Kinds of rules. Those about queues check one queue, or every queue.
const (
	Oldest    Kind = "oldest"    // the oldest available task of a queue has been due for longer than Over
	Stalled   Kind = "stalled"   // tasks run or wait in a queue, and no attempt has ended for Over
	Discarded Kind = "discarded" // more than Rate tasks were discarded in a minute
	Missed    Kind = "missed"    // a schedule is late by more than Over
	NoWorker  Kind = "no_worker" // a queue has available tasks, and no worker or endpoint
	NoLeader  Kind = "no_leader" // no process does the leader's chores
)

// kinds lists all kinds with the fields that each takes and the default of Over.
var kinds = []struct {
	kind                        Kind
	words                       string
	queue, schedule, over, rate bool
	usual                       time.Duration
}{
	{Oldest, "the oldest available task waits too long", true, false, true, false, 5 * time.Minute},
	{Stalled, "tasks run or wait, and none ends", true, false, true, false, 5 * time.Minute},
	{Discarded, "too many tasks are discarded in a minute", true, false, false, true, 0},
	{Missed, "a schedule has not fired", false, true, true, false, time.Minute},
	{NoWorker, "tasks wait, and no worker takes from their queue", true, false, false, false, 0},
	{NoLeader, "no process leads", false, false, false, false, 0},
}

// Kinds lists the kinds of rules.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, k := range kinds {
		all[i] = k.kind
	}
	return all
}

// Words describes what rules of the kind look for.
func (k Kind) Words() string {
	for _, known := range kinds {
		if known.kind == k {
			return known.words
		}
	}
	return string(k)
}

// Limits of rules.
const (
	MaxRules     = 200
	MaxReceivers = 10
	MaxRate      = 1_000_000
	MaxSpan      = 30 * 24 * time.Hour
	leastRepeat  = time.Minute
)

// ErrInvalid says that a rule is invalid, ErrNotFound that no rule has the name.
var (
	ErrInvalid  = errors.New("invalid alert")
	ErrNotFound = errors.New("there is no such alert")
)

// Rule says what to look for, and whom to tell.
type Rule struct {
	Name     string        `json:"name"`
	Kind     Kind          `json:"kind"`
	Queue    string        `json:"queue,omitempty"`    // empty means every queue
	Schedule string        `json:"schedule,omitempty"` // empty means every schedule
	Over     time.Duration `json:"over,omitempty"`
	Rate     int64         `json:"rate,omitempty"`   // tasks per minute
	For      time.Duration `json:"for,omitempty"`    // how long the condition has to hold before anybody is told
	Repeat   time.Duration `json:"repeat,omitempty"` // how often it is reported again while it lasts; 0 means never

	To         []notify.Receiver `json:"to"`
	MutedUntil time.Time         `json:"muted_until,omitzero"`
	CreatedAt  time.Time         `json:"created_at"`
	CreatedBy  string            `json:"created_by"`
}

// complete fills in defaults and rejects an invalid rule. The sender checks the receivers.
func (r *Rule) complete() error {
	if err := tusk.ValidateName("alert", r.Name); err != nil {
		return err
	}
	i := slices.Index(Kinds(), r.Kind)
	if i < 0 {
		return fmt.Errorf("%w: kind: want %s", ErrInvalid, words.Either(Kinds()))
	}
	k := kinds[i]
	for _, field := range []struct {
		name       string
		set, takes bool
	}{{"queue", r.Queue != "", k.queue}, {"schedule", r.Schedule != "", k.schedule}, {"over", r.Over != 0, k.over},
		{"rate", r.Rate != 0, k.rate}} {
		if field.set && !field.takes {
			return fmt.Errorf("%w: %s: an alert of the kind %s does not take it", ErrInvalid, field.name, r.Kind)
		}
	}
	if r.Over == 0 {
		r.Over = k.usual
	}
	if r.Queue != "" {
		if err := tusk.ValidateName("queue", r.Queue); err != nil {
			return err
		}
	}
	if r.Schedule != "" {
		if err := tusk.ValidateName("schedule", r.Schedule); err != nil {
			return err
		}
	}
	switch {
	case k.over && (r.Over < time.Second || r.Over > MaxSpan):
		return fmt.Errorf("%w: over: want 1s to %s", ErrInvalid, duration.Text(MaxSpan))
	case r.Rate < 0 || r.Rate > MaxRate:
		return fmt.Errorf("%w: rate: want 0 to %d", ErrInvalid, MaxRate)
	case r.For < 0 || r.For > MaxSpan:
		return fmt.Errorf("%w: for: want 0s to %s", ErrInvalid, duration.Text(MaxSpan))
	case r.Repeat != 0 && (r.Repeat < leastRepeat || r.Repeat > MaxSpan):
		return fmt.Errorf("%w: repeat: want %s to %s, or 0s for never", ErrInvalid, duration.Text(leastRepeat),
			duration.Text(MaxSpan))
	case len(r.To) > MaxReceivers:
		return fmt.Errorf("%w: has %d receivers, want at most %d", ErrInvalid, len(r.To), MaxReceivers)
	}
	return nil
}
