// Package tick decides when a schedule fires: which ticks are due, which were missed and what
// happens to those, and which task a tick enqueues.
//
// It is pure except for random numbers. Schedules come as documents from package tusk or from the
// store; ticks and tasks go to package tend.
package tick

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/cron"
	"github.com/tuskqueue/tusk/store"
)

// RecordKind is the kind of record that schedules are stored as.
const RecordKind = "schedule"

// Missed says what happens to ticks that were not fired in time, because there was no leader or
// because of an outage.
type Missed string

// The policies for missed ticks.
const (
	MissedOnce Missed = "once" // one run replaces all of them; the default
	MissedSkip Missed = "skip" // they are dropped
	MissedAll  Missed = "all"  // each one runs; only the latest ones if there are more than Cap
)

// Overlap says what happens to a tick while the task of an earlier tick is unfinished.
type Overlap string

// The policies for overlapping ticks.
const (
	OverlapSkip   Overlap = "skip"   // the tick is dropped; the default
	OverlapBuffer Overlap = "buffer" // one run follows the current one, for the latest tick
	OverlapAllow  Overlap = "allow"  // the runs overlap
)

const (
	// Grace is how late a tick may fire and still count as on time.
	Grace      = time.Minute
	defaultCap = 100   // missed ticks that MissedAll runs
	MaxCap     = 10000 // the highest setting
)

// Schedule is the stored document.
type Schedule struct {
	Spec      string          `json:"spec"`           // cron, or @every and a period
	Zone      string          `json:"zone,omitempty"` // IANA name; empty means UTC
	Start     time.Time       `json:"start,omitzero"` // no tick is earlier, and periods count from it
	Kind      string          `json:"kind"`
	Args      json.RawMessage `json:"args,omitempty"`
	Queue     string          `json:"queue,omitempty"`
	Tenant    string          `json:"tenant,omitempty"`
	Partition string          `json:"partition,omitempty"`
	Priority  int16           `json:"priority,omitempty"`
	Tags      []string        `json:"tags,omitempty"`
	Settings  json.RawMessage `json:"settings,omitempty"`
	Missed    Missed          `json:"missed,omitempty"`
	Cap       int             `json:"cap,omitempty"`
	Overlap   Overlap         `json:"overlap,omitempty"`
	Jitter    time.Duration   `json:"jitter,omitempty"` // nanoseconds; each run is delayed by a random part of it
	Paused    bool            `json:"paused,omitempty"`

	// The cursor. Only the leader moves it.
	Next     time.Time `json:"next,omitzero"`  // the next tick; zero if not planned yet
	Ahead    time.Time `json:"ahead,omitzero"` // a clock that was ahead fired the ticks before it; zero if none
	Last     time.Time `json:"last,omitzero"`  // the last tick that was fired
	LastTask string    `json:"last_task,omitempty"`
	Fired    int64     `json:"fired,omitempty"`
	Skipped  int64     `json:"skipped,omitempty"` // ticks dropped by a policy, or because their key was taken
}

// Parse parses the schedule's spec in its zone, with no tick before its start.
func (s *Schedule) Parse() (cron.Schedule, error) {
	zone := s.Zone
	if zone == "" {
		zone = "UTC"
	}
	spec, err := cron.ParseIn(s.Spec, zone)
	if err == nil && !s.Start.IsZero() {
		spec = spec.From(s.Start)
	}
	return spec, err
}

// Plan puts the cursor of a new plan on the first run, if that is in the future or not more than
// Grace ago. Otherwise the leader plans when it first sees the schedule.
func (s *Schedule) Plan(now time.Time) error {
	if s.Next = (time.Time{}); s.Start.Before(now.Add(-Grace)) {
		return nil
	}
	spec, err := s.Parse()
	s.Next = spec.Next(s.Start.Add(-time.Second))
	return err
}

// Skew is how far two readings of the database's clock may differ.
const Skew = 10 * time.Second

// Rewind moves the cursor back to the next tick if the cursor is more than one tick ahead. Then the
// clock was ahead when the cursor was set, and has been corrected. A cursor that is less far ahead
// is not changed, because its tick has been fired.
//
// Ticks that the wrong clock fired are fired again at their time. If they are missed then, they are
// skipped: the clock may have been right before and may go forward again.
func (s *Schedule) Rewind(now time.Time) (moved bool, err error) {
	if !s.Next.After(now.Add(Skew)) {
		return false, nil
	}
	spec, err := s.Parse()
	if err != nil {
		return false, err
	}
	next := spec.Next(now)
	if moved = s.Next.After(next.Add(Skew)) && s.Next.After(spec.Next(next)); moved {
		if s.Next.After(s.Ahead) {
			s.Ahead = s.Next
		}
		s.Next = next
	}
	return moved, nil
}

// Due returns the ticks to fire at now, oldest first, up to the given number. It moves the cursor
// past them, and past ticks that a policy drops. If more ticks are due, the cursor is on the first
// of them. The first call only plans.
func (s *Schedule) Due(now time.Time, most int) ([]time.Time, error) {
	if s.Paused || s.Next.After(now) {
		return nil, nil
	}
	spec, err := s.Parse()
	if err != nil {
		return nil, err
	}
	if s.Next.IsZero() {
		s.Next = spec.Next(now)
		return nil, nil
	}
	keep := s.keep()
	var due []time.Time // the latest ticks, in a ring whose oldest entry is at passed%keep
	passed := 0
	for t := s.Next; !t.IsZero() && !t.After(now); t = s.Next {
		if s.Next = spec.Next(t); t.Before(s.Ahead) && now.Sub(t) > Skew {
			continue
		}
		if len(due) < keep {
			due = append(due, t)
		} else {
			due[passed%keep] = t
		}
		passed++
	}
	if len(due) == keep {
		due = slices.Concat(due[passed%keep:], due[:passed%keep])
	}
	if later := len(due) - most; later > 0 {
		s.Next, due, passed = due[most], due[:most], passed-later
	}
	if !s.Next.Before(s.Ahead) {
		s.Ahead = time.Time{}
	}
	if len(due) > 0 && s.Missed == MissedSkip && now.Sub(due[len(due)-1]) > Grace {
		due = nil
	}
	s.Fired += int64(len(due))
	s.Skipped += int64(passed - len(due))
	if len(due) > 0 {
		s.Last = due[len(due)-1]
	}
	return due, nil
}

func (s *Schedule) keep() int {
	switch {
	case s.Missed != MissedAll:
		return 1
	case s.Cap <= 0:
		return defaultCap
	default:
		return s.Cap
	}
}

// Task returns the task of a tick.
func (s *Schedule) Task(name string, at time.Time, id store.ID) (store.NewTask, error) {
	settings, err := withTick(s.Settings, name, at)
	if err != nil {
		return store.NewTask{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	t := store.NewTask{ID: id, Kind: s.Kind, Queue: s.Queue, Tenant: s.Tenant, Partition: s.Partition,
		Priority: s.Priority,
		Args:     s.Args, Tags: s.Tags, Settings: settings}
	if s.Jitter > 0 {
		t.Delay = rand.N(s.Jitter)
	}
	switch s.Overlap {
	case OverlapAllow:
	case OverlapBuffer:
		t.Key, t.OnConflict = Key(name), store.Rerun
	default:
		t.Key, t.OnConflict = Key(name), store.Skip
	}
	return t, nil
}

// KeyPrefix is the prefix of the keys of all tasks that schedules enqueue.
const KeyPrefix = store.ScheduleKeys

// Key returns the key that prevents the tasks of a schedule from overlapping.
func Key(name string) string { return KeyPrefix + name }

// Stored records the results of storing the tasks that Task returned. A tick whose key was taken by
// an unfinished task counts as skipped, not as fired.
func (s *Schedule) Stored(results []store.Enqueued) (changed bool) {
	for _, r := range results {
		if r.Result == store.Skipped || r.Result == store.Stale {
			s.Fired--
			s.Skipped++
			changed = true
		}
		id := ""
		if !r.ID.IsZero() { // zero if the existing task has ended
			id = r.ID.String()
		}
		changed = changed || s.LastTask != id
		s.LastTask = id
	}
	return changed
}

// withTick adds the tick to a task's settings.
func withTick(settings json.RawMessage, name string, at time.Time) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if len(settings) > 0 {
		if err := json.Unmarshal(settings, &fields); err != nil {
			return nil, fmt.Errorf("settings: %w", err)
		}
	}
	fields["schedule"], _ = json.Marshal(name)
	fields["tick"], _ = json.Marshal(at.UTC())
	return json.Marshal(fields)
}
