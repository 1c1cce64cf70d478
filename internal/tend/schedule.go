package tend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

const (
	scheduleEvery = 500 * time.Millisecond
	scheduleIdle  = time.Second // while there are no schedules
	// A set of schedules that fire in one write has at most fireSet schedules, fireSet tasks, and fireBytes of args,
	// unless it is a single large one. A schedule that fires for many ticks has no more tasks in a write either: it
	// fires in parts, and each part moves the cursor past its own ticks.
	fireSet   = 500
	fireBytes = 1 << 20
	// fireWithin limits the write of one schedule: a user's open transaction may hold the key of its task, and other
	// schedules must not wait for that. setWithin limits the write of a set.
	fireWithin = 2 * time.Second
	setWithin  = 5 * time.Second
	// clockBack is how far the clock has to be set back before cursors are checked again.
	clockBack = time.Second
	// tellEvery is how often it is logged that schedules cannot be read or written.
	tellEvery = 5 * time.Second
	// failedPause is the shortest pause after a round that could not write a schedule.
	failedPause = 100 * time.Millisecond
)

// dueWithin limits how long one round computes the ticks of schedules. After a long time without a leader there may
// be millions of them. Those that were found are fired, and the next round continues.
var dueWithin = 10 * time.Second

// plans is what the chore knows about schedules. Only the chore reads it.
type plans struct {
	known map[string]known // by name
	// Schedules whose write failed, with the largest number of ticks of their next write. Each fires alone, so that
	// it does not delay a set.
	alone  map[string]int
	first  string    // where the next round begins, because the last one ended before it; "" means the first
	looked time.Time // the engine's time of the last round
	told   time.Time // when failures of single schedules were last logged
}

// known is a schedule as read from a version of its record.
type known struct {
	version int64
	plan    tick.Schedule
	rewound bool // its cursor differs from the stored one because the clock had been ahead
}

// firing is a schedule whose cursor moves, with the tasks for its due ticks.
type firing struct {
	put  store.PutRecord
	plan tick.Schedule
}

// lags reports whether more ticks are due than the firing contains.
func (f *firing) lags(now time.Time) bool { return !f.plan.Next.IsZero() && !f.plan.Next.After(now) }

// schedule fires the due ticks. A schedule that cannot be read or written does not delay others.
func (l *Leader) schedule(ctx context.Context, term int64) (time.Duration, error) {
	if !l.mayHave(term, tick.RecordKind) {
		return scheduleIdle, nil
	}
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: tick.RecordKind})
	if err != nil || len(records) == 0 {
		return scheduleIdle, err
	}
	limits, err := l.limits(ctx)
	if err != nil {
		return 0, err
	}
	due, next, failed := l.due(records, limits)
	var alone []firing
	due = slices.DeleteFunc(due, func(f firing) bool {
		if l.plans.alone[f.put.Record.Name] > 0 {
			alone = append(alone, f)
			return true
		}
		return false
	})
	// Schedules with few ticks come first, so that they do not wait while another one catches up.
	slices.SortStableFunc(due, func(a, b firing) int { return len(a.put.Tasks) - len(b.put.Tasks) })
	for len(due) > 0 && ctx.Err() == nil {
		set := due[:setOf(due)]
		due = due[len(set):]
		err := l.fire(ctx, term, set, setWithin)
		if errors.Is(err, store.ErrNotLeader) {
			return 0, err
		}
		if err != nil && ctx.Err() == nil { // caused by one of the schedules
			alone = append(alone, set...)
		}
	}
	rand.Shuffle(len(alone), func(i, j int) { alone[i], alone[j] = alone[j], alone[i] })
	for i, f := range alone {
		if ctx.Err() != nil { // the next round continues
			l.plans.leave(alone[i:])
			break
		}
		name, n := f.put.Record.Name, len(f.put.Tasks)
		err := l.fire(ctx, term, []firing{f}, fireWithin)
		switch {
		// The write was too large for the time, or a transaction holds the key.
		case err != nil:
			l.plans.alone[name] = max(n/2, 1)
		case f.lags(l.plans.looked):
			l.plans.alone[name] = n + n/4 + 1
		default:
			delete(l.plans.alone, name)
		}
		if errors.Is(err, store.ErrNotLeader) {
			return 0, err
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("schedule %s: %w", name, err))
		}
	}
	if ctx.Err() != nil {
		return 0, errors.Join(failed, ctx.Err())
	}
	pause := min(scheduleEvery, max(next.Sub(l.now()), 0))
	if failed != nil {
		pause = max(pause, failedPause)
	}
	// Returned as an error, this would delay the other schedules.
	if failed != nil && time.Since(l.plans.told) >= tellEvery {
		l.o.Log.Warn("schedule", "error", failed)
		l.plans.told = time.Now()
	}
	return pause, nil
}

// leave makes firings that got no time fire alone in the next round, too.
func (p *plans) leave(all []firing) {
	for _, f := range all {
		name := f.put.Record.Name
		p.alone[name] = max(p.alone[name], len(f.put.Tasks), 1)
	}
}

// due finds the schedules whose cursors must move, and the time of the next tick, or an hour from now if that comes
// first.
func (l *Leader) due(
	records []store.Record, limits map[string]allot.Limits,
) (due []firing, next time.Time, failed error) {
	now, was := l.now(), l.plans
	next = now.Add(time.Hour)
	if now.Before(was.looked.Add(-clockBack)) {
		was.known = nil
	}
	l.plans = plans{known: make(map[string]known, len(records)), alone: was.alone, looked: now, told: was.told}
	if l.plans.alone == nil {
		l.plans.alone = map[string]int{}
	}
	began := time.Now()
	begin := max(slices.IndexFunc(records, func(r store.Record) bool { return r.Name == was.first }), 0)
	for _, r := range slices.Concat(records[begin:], records[:begin]) {
		if len(l.plans.known) > 0 && time.Since(began) > dueWithin {
			l.plans.first, next = r.Name, now
			break
		}
		k, err := was.known[r.Name], error(nil)
		if k.version != r.Version {
			k, err = read(r, now)
		}
		var f firing
		moves := false
		if err == nil {
			l.plans.known[r.Name] = k
			f, moves, err = l.firingOf(r, k, now, limits)
		}
		at := k.plan.Next
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("schedule %s: %w", r.Name, err))
		} else if moves {
			due, at = append(due, f), f.plan.Next
			if f.lags(now) {
				next = now
			}
		}
		if at.After(now) && at.Before(next) && !k.plan.Paused {
			next = at
		}
	}
	return due, next, failed
}

func read(r store.Record, now time.Time) (k known, err error) {
	k.version = r.Version
	if err = json.Unmarshal(r.Body, &k.plan); err == nil && !k.plan.Paused {
		k.rewound, err = k.plan.Rewind(now)
	}
	return k, err
}

// firingOf creates the tasks for the due ticks of a schedule and reports whether its cursor moves.
func (l *Leader) firingOf(
	r store.Record, k known, now time.Time, limits map[string]allot.Limits,
) (f firing, moves bool, err error) {
	s := k.plan
	most := max(min(fireSet, fireBytes/len(r.Body)), 1)
	if n := l.plans.alone[r.Name]; n > 0 {
		most = min(most, n)
	}
	due, err := s.Due(now, most)
	if err != nil || !k.rewound && s.Next.Equal(k.plan.Next) {
		return f, false, err
	}
	tasks := make([]store.NewTask, len(due))
	for i, at := range due {
		if tasks[i], err = s.Task(r.Name, at, l.o.NewID()); err != nil {
			return f, false, err
		}
		limit, limited := limits[s.Queue]
		tasks[i].Turn = limited && limit.Turns()
		s.LastTask = tasks[i].ID.String()
	}
	r.Body, err = json.Marshal(s)
	return firing{store.PutRecord{Record: r, Tasks: tasks}, s}, true, err
}

// setOf returns how many of the firings go into the next set.
func setOf(due []firing) int {
	size, tasks := 0, 0
	for i := range due {
		n := len(due[i].put.Tasks)
		size, tasks = size+len(due[i].put.Record.Body)+n*len(due[i].plan.Args), tasks+n
		if i == fireSet || i > 0 && (size > fireBytes || tasks > fireSet) {
			return i
		}
	}
	return len(due)
}

// fire enqueues the tasks of a set and moves the cursors in the same write, so that no tick fires twice and none is
// lost. A schedule that was changed in the meantime is left for the next round.
func (l *Leader) fire(ctx context.Context, term int64, set []firing, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	puts := make([]store.PutRecord, len(set))
	for i := range set {
		puts[i] = set[i].put
	}
	stored, err := l.store.UpdateRecords(ctx, term, puts)
	if err != nil {
		return err
	}
	// This only corrects the counts of some schedules. Their ticks have fired.
	var counted []store.PutRecord
	for i := range set {
		f := &set[i]
		if stored[i].Version == 0 || !f.plan.Stored(stored[i].Enqueued) {
			continue
		}
		r := f.put.Record
		r.Version = stored[i].Version
		if r.Body, err = json.Marshal(f.plan); err != nil {
			return err
		}
		counted = append(counted, store.PutRecord{Record: r})
	}
	if len(counted) > 0 {
		_, err = l.store.UpdateRecords(ctx, term, counted)
	}
	return err
}
