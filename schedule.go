package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

// Schedule is a durable plan that enqueues a task at each tick. The leader fires it once per tick, however many
// workers there are. Each tick is planned from the previous one, so the schedule does not drift.
type Schedule struct {
	Name string
	// Spec is a cron expression of five fields, or "@every 15m" for a fixed period; see package cron. Zone is the
	// time zone that applies to Spec; default: UTC.
	Spec, Zone string
	// Start is the first run of a period, from which the others count. For a cron expression, no tick comes before
	// it. If Start is more than a minute in the past when the schedule is stored, the runs since then are skipped.
	// The zero value means no start: periods count from 1970-01-01 00:00 UTC. See At.
	Start time.Time

	Args    Args     // up to ClientConfig.MaxArgsBytes, even with Payloads
	Options *Options // of the tasks; the schedule itself sets run time, expiry instant, key and id

	Missed  MissedPolicy  // default: MissedOnce
	Cap     int           // maximum number of missed ticks that MissedAll runs, up to 10,000; default: 100
	Overlap OverlapPolicy // default: OverlapSkip
	Jitter  time.Duration // upper bound of the random delay of each run; at most one day
}

// MissedPolicy says what happens to ticks that were not fired within a minute because there was no leader.
type MissedPolicy = tick.Missed

// OverlapPolicy says what happens to a tick while the task of an earlier tick is unfinished.
type OverlapPolicy = tick.Overlap

// The policies for missed ticks and for overlapping ticks.
const (
	MissedOnce    = tick.MissedOnce    // one run replaces all of them; the default
	MissedSkip    = tick.MissedSkip    // all are dropped
	MissedAll     = tick.MissedAll     // each of the latest Cap ticks runs; earlier ones are dropped
	OverlapSkip   = tick.OverlapSkip   // the tick is dropped; the default
	OverlapBuffer = tick.OverlapBuffer // one run, for the latest tick, follows when the current one has ended
	OverlapAllow  = tick.OverlapAllow  // the runs overlap
)

// ScheduleInfo is a schedule as it is stored. In addition to the fields of Schedule it has
//
//	Kind, Queue, Tenant, Partition string
//	Args, Settings                 json.RawMessage
//	Priority                       int16
//	Tags                           []string
//	Paused                         bool
//
//	Next, Last     time.Time // the next tick and the last one that was fired; zero means none
//	Ahead          time.Time // ticks before it were fired by a clock that was ahead; zero means none
//	LastTask       string    // the id of the task of the last tick
//	Fired, Skipped int64     // number of ticks fired, and of ticks dropped by a policy or
//	               // because an unfinished task has their key
type ScheduleInfo struct {
	Name string
	tick.Schedule
	Words string // Spec in plain words
}

// PutSchedule creates a schedule or changes the one with that name. The fields of Schedule replace what is stored. A
// pause, which an operator sets, stays. The next tick is planned again only if Spec, Zone or Start changed.
//
// The error is an *InvalidError if the input is invalid or exceeds the limits of all schedules together; see
// MaxScheduleBytes.
func (c *Client) PutSchedule(ctx context.Context, s Schedule) error {
	return c.PutScheduleIf(ctx, s, func(ScheduleInfo) error { return nil })
}

// PutScheduleIf is like PutSchedule, but replaces a schedule only if may returns nil for it. It replaces exactly the
// version that may was called with, even if others put a schedule with that name at the same time. It returns the error
// of may. If no schedule has that name, may is not called.
func (c *Client) PutScheduleIf(ctx context.Context, s Schedule, may func(old ScheduleInfo) error) error {
	doc, err := c.scheduleDocument(s)
	if err != nil {
		return err
	}
	err = c.changeAmong(ctx, tick.RecordKind, s.Name, func(body []byte, all []store.Record) ([]byte, error) {
		doc := doc
		if err := follow(&doc, s.Name, body, may); err != nil {
			return nil, err
		}
		text, err := json.Marshal(doc)
		if err != nil || len(text) <= len(body) {
			return text, err
		}
		return text, roomForSchedule(s.Name, doc.Tenant, len(text), all)
	})
	if err != nil {
		return fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	return nil
}

// follow copies from the stored document, if there is one and it may be replaced, what PutSchedule leaves unchanged,
// and plans the next tick if needed.
func follow(doc *tick.Schedule, name string, body []byte, may func(ScheduleInfo) error) error {
	if len(body) == 0 {
		return doc.Plan(time.Now())
	}
	old, err := scheduleInfo(name, body)
	if err != nil {
		return err
	}
	if err := may(old); err != nil {
		return err
	}
	doc.Paused, doc.Last, doc.LastTask, doc.Fired, doc.Skipped = old.Paused, old.Last, old.LastTask, old.Fired, old.Skipped
	if old.Spec == doc.Spec && old.Zone == doc.Zone && old.Start.Equal(doc.Start) {
		doc.Next, doc.Ahead = old.Next, old.Ahead
		return nil
	}
	return doc.Plan(time.Now())
}

// Schedules lists all schedules by name.
func (c *Client) Schedules(ctx context.Context) ([]ScheduleInfo, error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: tick.RecordKind})
	if err != nil {
		return nil, fmt.Errorf("schedules: %w", err)
	}
	infos := make([]ScheduleInfo, len(records))
	for i, r := range records {
		if infos[i], err = scheduleInfo(r.Name, r.Body); err != nil {
			return nil, fmt.Errorf("schedule %s: %w", r.Name, err)
		}
	}
	return infos, nil
}

func scheduleInfo(name string, body []byte) (ScheduleInfo, error) {
	info := ScheduleInfo{Name: name}
	err := json.Unmarshal(body, &info.Schedule)
	if spec, wrong := info.Parse(); err == nil && wrong == nil {
		info.Words = spec.Words()
	}
	return info, err
}

// Schedule returns the schedule with that name. The error is ErrNotFound if there is none.
func (c *Client) Schedule(ctx context.Context, name string) (ScheduleInfo, error) {
	all, err := c.Schedules(ctx)
	if err != nil {
		return ScheduleInfo{}, err
	}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return ScheduleInfo{}, fmt.Errorf("schedule %s: %w", name, ErrNotFound)
}

// RemoveSchedule deletes a schedule. Tasks that it has enqueued stay. The error is ErrNotFound if there is no such
// schedule.
//
// Each may is called with exactly the version of the schedule that is removed, even if others change it at the same
// time. If one returns an error, RemoveSchedule returns it and changes nothing. The same applies to the other methods
// with such an argument.
func (c *Client) RemoveSchedule(ctx context.Context, name string, may ...func(ScheduleInfo) error) error {
	return c.changeSchedule(ctx, name, may, func(*tick.Schedule) bool { return false })
}

// PauseSchedule keeps a schedule from firing. Ticks during the pause are skipped. The error is ErrNotFound if there
// is no such schedule.
func (c *Client) PauseSchedule(ctx context.Context, name string, may ...func(ScheduleInfo) error) error {
	return c.changeSchedule(ctx, name, may, func(s *tick.Schedule) bool { s.Paused = true; return true })
}

// ResumeSchedule ends a pause. The next tick is the first one after now. The error is ErrNotFound if there is no
// such schedule.
func (c *Client) ResumeSchedule(ctx context.Context, name string, may ...func(ScheduleInfo) error) error {
	return c.changeSchedule(ctx, name, may, func(s *tick.Schedule) bool {
		if s.Paused {
			s.Paused, s.Next = false, time.Time{}
		}
		return true
	})
}

// RunSchedule enqueues the schedule's task now, in addition to its plan, whatever its overlap policy and jitter and
// even if it is paused. The error is ErrNotFound if there is no such schedule.
func (c *Client) RunSchedule(
	ctx context.Context, name string, may ...func(ScheduleInfo) error,
) (Enqueued, error) {
	r, err := c.record(ctx, tick.RecordKind, name)
	if err == nil && r.Version == 0 {
		err = ErrNotFound
	}
	var s ScheduleInfo
	if err == nil {
		s, err = scheduleInfo(name, r.Body)
	}
	if err == nil {
		err = s.allowed(may)
	}
	if err != nil {
		return Enqueued{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	s.Overlap, s.Jitter = tick.OverlapAllow, 0
	t, err := s.Task(name, time.Now(), NewID())
	if err != nil {
		return Enqueued{}, err
	}
	tasks := []store.NewTask{t}
	if err := c.present(ctx, tasks); err != nil {
		return Enqueued{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	results, err := c.store.Enqueue(ctx, tasks)
	if err != nil {
		return Enqueued{}, fmt.Errorf("schedule %s: %w", name, err)
	}
	return results[0], nil
}

// allowed returns the first error of the functions.
func (s *ScheduleInfo) allowed(may []func(ScheduleInfo) error) error {
	for _, ask := range may {
		if err := ask(*s); err != nil {
			return err
		}
	}
	return nil
}

// changeSchedule changes a stored schedule, or deletes it if change returns false.
func (c *Client) changeSchedule(
	ctx context.Context, name string, may []func(ScheduleInfo) error, change func(*tick.Schedule) bool,
) error {
	err := c.changeRecord(ctx, tick.RecordKind, name, func(body []byte) ([]byte, error) {
		if len(body) == 0 {
			return nil, ErrNotFound
		}
		s, err := scheduleInfo(name, body)
		if err == nil {
			err = s.allowed(may)
		}
		if err != nil || !change(&s.Schedule) {
			return nil, err
		}
		return json.Marshal(s.Schedule)
	})
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	return nil
}

func (c *Client) scheduleDocument(s Schedule) (doc tick.Schedule, err error) {
	if err := ValidateName("schedule", s.Name); err != nil {
		return doc, err
	}
	task, err := c.encode(NewTask{Args: s.Args, Options: s.Options})
	if err != nil {
		return doc, err
	}
	// Only the args of tasks may go to Payloads, not those of a schedule.
	if size, most := len(task.Args), c.config.MaxArgsBytes; size > most {
		return doc, invalid("args", "args_too_large", "of a schedule has %d bytes, at most %d (MaxArgsBytes) are "+
			"allowed, with an object store, too: have its args refer to what is large", size, most)
	}
	doc = tick.Schedule{Spec: s.Spec, Zone: s.Zone, Start: s.Start.UTC(), Kind: task.Kind, Args: task.Args,
		Queue: task.Queue, Tenant: task.Tenant, Partition: task.Partition,
		Priority: task.Priority, Tags: task.Tags, Settings: task.Settings,
		Missed: s.Missed, Cap: s.Cap, Overlap: s.Overlap, Jitter: s.Jitter}
	if _, err := doc.Parse(); err != nil {
		return doc, invalid("spec", "invalid_cron", "%v", err)
	}
	return doc, errors.Join(
		validateInstant("start", s.Start),
		oneOf("missed", s.Missed, "", MissedOnce, MissedSkip, MissedAll),
		oneOf("overlap", s.Overlap, "", OverlapSkip, OverlapBuffer, OverlapAllow),
		within("cap", s.Cap, 0, tick.MaxCap),
		within("jitter", s.Jitter, 0, 24*time.Hour),
		scheduleOwns(s.Options))
}

func oneOf[T ~string](field string, value T, allowed ...T) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return invalid(field, "invalid_policy", "is %q, want one of %q", cutText(string(value)), allowed[1:])
}

func scheduleOwns(o *Options) error {
	if o == nil {
		return nil
	}
	if !o.RunAt.IsZero() || o.Delay != 0 || !o.ExpiresAt.IsZero() || o.ExpiresIn != 0 || o.Key != "" || o.Unique != nil ||
		!o.ID.IsZero() {
		return invalid("options", "not_for_schedules", "of a schedule cannot set run time, expiry, key or id")
	}
	return nil
}
