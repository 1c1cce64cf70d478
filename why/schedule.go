package why

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/tick"
)

// The reasons why a schedule does not fire. If its queue is the reason, the codes are those of
// tasks.
const (
	SchedulePaused Code = "schedule_paused"
	Invalid        Code = "invalid"   // its expression or time zone is invalid, or it never fires
	Overlap        Code = "overlap"   // the task of an earlier tick is unfinished
	Clock          Code = "clock"     // the database's clock was ahead
	Unplanned      Code = "unplanned" // the leader is about to plan its first tick
	Late           Code = "late"      // its tick is due, and the leader has not fired it
	Start          Code = "start"     // its first run is in the future
	NotDue         Code = "not_due"
)

// ScheduleFacts are what ExplainSchedule judges.
type ScheduleFacts struct {
	Schedule tusk.ScheduleInfo
	// Facts describe the schedule's queue. Task has the queue, kind, tenant and key of its tasks.
	// Key is an unfinished task of the schedule.
	Facts
}

// Schedule returns a schedule and the reasons why it does not fire. The error is tusk.ErrNotFound
// if it does not exist.
func Schedule(ctx context.Context, client *tusk.Client, name string) (tusk.ScheduleInfo, []Reason, error) {
	s, err := client.Schedule(ctx, name)
	if err != nil {
		return s, nil, err
	}
	f, err := GatherSchedule(ctx, client, s)
	if err != nil {
		return s, nil, err
	}
	return s, ExplainSchedule(f), nil
}

// GatherSchedule reads what ExplainSchedule needs. Everyone who may see the schedule may see all of
// that: it is about the schedule's own queue and tenant.
func GatherSchedule(ctx context.Context, client *tusk.Client, s tusk.ScheduleInfo) (ScheduleFacts, error) {
	task := tusk.TaskInfo{}
	task.Queue, task.Kind, task.Tenant = s.Queue, s.Kind, s.Tenant
	if s.Overlap != tusk.OverlapAllow {
		task.Key = tick.Key(s.Name)
	}
	g := gatherer{client: client, facts: Facts{Now: time.Now(), Task: task, Leads: true}, sees: everything}
	for _, step := range []func(context.Context) error{g.health, g.workers, g.served, g.paused, g.key} {
		if err := step(ctx); err != nil {
			return ScheduleFacts{}, fmt.Errorf("why: %w", err)
		}
	}
	return ScheduleFacts{s, g.facts}, nil
}

// ExplainSchedule returns the reasons why a schedule does not fire now, and why its tasks would not
// run. There is at least one; the first is the one to act on.
func ExplainSchedule(f ScheduleFacts) []Reason {
	s := &f.Schedule
	plan, err := s.Parse()
	if err != nil {
		return []Reason{{Code: Invalid, Fix: say("tusk schedules add %s SPEC %s", s.Name, s.Kind),
			Text: say("its expression %q in the zone %q is not valid: %v", s.Spec, s.Zone, err)}}
	}
	next := s.Next
	if next.IsZero() {
		next = plan.Next(f.Now)
	}
	var reasons []Reason
	if s.Paused {
		reasons = append(reasons, Reason{Code: SchedulePaused, Fix: say("tusk schedules resume %s", s.Name),
			Text: "it is paused: ticks that pass meanwhile are not made up for"})
	}
	if !f.Leads {
		reasons = append(reasons, Reason{Code: NoLeader, Text: "no process leads: no schedule fires", Fix: "tusk serve"})
	}
	reasons = append(reasons, f.overlaps()...)
	if !s.Paused && f.Leads {
		reasons = append(reasons, f.awaits(next, plan.Next(f.Now.Add(tick.Skew))))
	}
	return append(reasons, f.blocked()...)
}

// overlaps says which task of an earlier tick keeps the next one from firing.
func (f *ScheduleFacts) overlaps() []Reason {
	if f.Key == nil {
		return nil
	}
	r := Reason{Code: Overlap, Tasks: []tusk.ID{f.Key.ID}, Fix: say("tusk tasks why %s", f.Key.ID)}
	then := "ticks that come before it has ended are skipped"
	if f.Schedule.Overlap == tusk.OverlapBuffer {
		then = "of the ticks that come before it has ended, the latest runs then"
	}
	r.Text = say("task %s of an earlier tick is %v: %s", f.Key.ID, f.Key.State, then)
	return []Reason{r}
}

// awaits says when the schedule fires next, if a process leads and the schedule is not paused.
// planned is the first tick of its plan that is certainly in the future. A next tick after that was
// set by a clock that was ahead.
func (f *ScheduleFacts) awaits(next, planned time.Time) Reason {
	s := f.Schedule
	run := say("tusk schedules run %s", s.Name)
	wait := dur(next.Sub(f.Now))
	late := f.Now.Sub(next)
	switch moved, _ := s.Rewind(f.Now); {
	case s.Next.IsZero():
		return Reason{Code: Unplanned, Text: say("the leader plans its first tick in a moment: %s", at(next)), Until: next}
	case late > tick.Grace:
		return Reason{Code: Late, Fix: "tusk doctor",
			Text: say("its tick of %s is %s late, though a process leads", at(next), dur(late))}
	case late >= 0:
		return Reason{Code: Due, Text: say("its tick of %s has come: the leader fires it in a moment", at(next))}
	case s.Start.After(f.Now):
		return Reason{Code: Start, Text: say("its first run is at %s, in %s", at(next), wait), Fix: run, Until: next}
	case moved:
		return Reason{Code: Clock, Fix: run, Until: s.Next,
			Text: say("its next tick is set to %s, because the database's clock was ahead: the leader takes it back to %s "+
				"in a moment", at(next), at(s.Next))}
	case next.After(planned):
		return Reason{Code: Clock, Fix: run, Until: next,
			Text: say("its tick of %s counts as fired, because the database's clock was ahead: the next is at %s, in %s",
				at(planned), at(next), wait)}
	}
	last := "none was fired before"
	if !s.Last.IsZero() {
		last = "the last was fired for " + at(s.Last)
	}
	return Reason{Code: NotDue, Fix: run, Until: next,
		Text: say("its next tick is at %s, in %s; %s", at(next), wait, last)}
}
