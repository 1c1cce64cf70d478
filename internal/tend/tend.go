// Package tend does the leader's chores: it admits due tasks, hands out turns, rescues tasks of dead workers, fires
// schedules, carries out operations, ages waiting tasks, records the names of queues, recalls tasks that no worker
// could run, and prunes tasks whose retention is over.
//
// It may use a store's Keeper and Recorder, Finish for rescued attempts, and Edit for operations. It needs no handler
// code, so any process may lead. Each chore is one file, and its writes carry the leader's term. The exceptions are
// operations, which are fenced by their records, and edits that do no harm if two leaders make them.
package tend

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// Store is the part of a store that the chores need.
type Store interface {
	store.Keeper
	store.Recorder
	store.Editor
	Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error)
	List(ctx context.Context, f store.Filter) ([]store.Task, error)
	Workers(ctx context.Context) ([]store.Worker, error)
	Count(ctx context.Context) ([]store.Count, error)
	Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error)
}

// Options configure a Leader. All are required except Maintain, Oversee, Prompt and Rescued.
type Options struct {
	ID        store.ID        // of this process
	TTL       time.Duration   // of a term without renewal
	NewID     func() store.ID // generates task ids
	Retention func() store.Retention
	Log       *slog.Logger

	// Maintain is nil if the engine has no housekeeping, Oversee if it cannot report which chores have work.
	Maintain func(ctx context.Context, term int64) error
	Oversee  func(ctx context.Context, c store.Candidate, kinds ...string) (store.Chores, error)
	// Prompt reports whether hints to Hear come as soon as there is work. Nil means that they do not.
	Prompt func() bool
	// Rescued is called for each task that was taken from a dead worker. It may be nil.
	Rescued func(o store.Outcome)

	RescueEvery time.Duration // between two searches for dead workers
	// How long without contact with the store counts as an outage, in which live workers may have missed beats.
	Outage time.Duration
}

// Leader campaigns for leadership and does the chores while it leads. Create it with New, then run its Loops.
type Leader struct {
	store Store
	o     Options
	loops []*loop.Loop
	lead  *loop.Loop

	rescuing, turning, scheduling, operating, recalling *loop.Loop
	turnCalls, admitCalls                               called

	mu    sync.Mutex
	term  int64
	until time.Time // by this process's monotonic clock
	met   time.Time // when the store last answered
	// How much longer than Outage the next contact may take: an eighth of the announced pause.
	late time.Duration
	// When the store answered again after an outage. Zero if workers have had the time to beat since.
	back  time.Time
	ahead time.Duration // how far the engine's clock is ahead of this process's
	// The engine's time from the last campaign or look that returned it; zero if none has.
	told time.Time
	// When that time was requested, by this process's monotonic clock.
	asked time.Time
	other time.Time // until when this process follows another one that it saw lead
	seen  overseen

	// When a task last became available. Only the admit chore reads this and dueAt.
	admitted time.Time
	// When the next task is due, as of the last round; zero if unknown.
	dueAt time.Time

	sweeps  map[string]*sweep // of aging queues, by name; only the age chore reads it
	plans   plans             // of schedules; only the schedule chore reads it
	named   time.Time         // the time up to which queue names are recorded; only the name chore reads it
	counted time.Time         // when tasks were last counted, by this process's clock; the same
	turns   turns             // state of the turn chore, which alone reads it
	noTurns atomic.Bool       // no queue used turns in the last round of the turn chore
	asking  atomic.Bool       // the last campaign got no answer, so it may have won
	kept    kept              // state of the maintain chore, which alone reads it
	recalls recalls           // state of the recall chore, which alone reads it
	passed  int               // attempts that the last rescue found held; only the rescue chore reads it
	carrier *bulk.Carrier
}

// New creates a leader.
func New(s Store, o Options) *Leader {
	l := &Leader{store: s, o: o}
	l.turnCalls.apart, l.admitCalls.apart = hearEvery, admitApart
	if o.Prompt != nil {
		l.turnCalls.apart = hearPrompt
	}
	l.lead = loop.New("lead", o.TTL/3, o.Log, l.campaign)
	l.lead.Patience = o.TTL / 3
	l.turnCalls.loop = l.chore("turn", 30*time.Second, l.turnCalls.look(l.turn))
	l.admitCalls.loop = l.chore("admit", 15*time.Second, l.admitCalls.look(l.admit))
	l.turning, l.rescuing = l.turnCalls.loop, l.chore("rescue", 15*time.Second, l.rescue)
	l.scheduling, l.operating = l.chore("schedule", 30*time.Second, l.schedule), l.operate()
	l.recalling = l.chore("recall", 30*time.Second, l.recall)
	l.loops = []*loop.Loop{
		l.lead,
		l.admitCalls.loop,
		l.turning,
		l.chore("age", 30*time.Second, l.age),
		l.rescuing,
		l.scheduling,
		l.chore("prune", time.Minute, l.prune),
		l.chore("name", 30*time.Second, l.name),
		l.operating,
		l.recalling,
	}
	if o.Maintain != nil {
		l.loops = append(l.loops, l.chore("maintain", time.Minute, l.maintain))
	}
	return l
}

// Loops returns the loops that must run.
func (l *Leader) Loops() []*loop.Loop { return l.loops }

// Term returns the current term, or 0 if this process does not lead.
func (l *Leader) Term() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().After(l.until) {
		return 0
	}
	return l.term
}

// Resign gives up the leadership and the operations, so that another process need not wait. The loops must have ended.
// Resign first records the names of queues, for a process that ran only briefly.
func (l *Leader) Resign(ctx context.Context) error {
	term := l.Term()
	if term == 0 {
		if l.asking.Load() { // a campaign was cut short and may have won
			if _, err := l.store.Lead(ctx, store.Candidate{ID: l.o.ID}); err != nil {
				l.o.Log.Debug("lead: nobody may lead until the term is over", "error", err)
			}
		}
		return nil
	}
	l.counted = time.Time{}
	if _, err := l.name(ctx, term); err != nil {
		l.o.Log.Debug("name: the next leader notes the queues", "error", err)
	}
	l.stepDown()
	_, err := l.store.Lead(ctx, store.Candidate{ID: l.o.ID, Term: term})
	return errors.Join(err, l.carrier.Release(ctx))
}

// Saw takes the result of a look that has just returned (see store.Looker): the leader, and the engine's time. A zero
// leader means that there may be none, a zero now that the engine did not return the time. The look began at asked,
// by this process's clock, and the next one comes after pause. While another process leads, this one does not
// campaign, but still notices if the engine's clock was set forward.
func (l *Leader) Saw(leader store.ID, now, asked time.Time, pause time.Duration) {
	l.touch()
	l.mu.Lock()
	l.late = pause / 8
	if !now.IsZero() {
		l.time(asked, now)
	}
	l.mu.Unlock()
	if !leader.IsZero() && leader != l.o.ID {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.other = time.Now().Add(max(l.o.TTL/2, pause+pause/8))
	} else if l.Term() == 0 {
		l.forgetOther()
		l.lead.Wake()
	}
}

func (l *Leader) forgetOther() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = time.Time{}
}

// follows reports whether another process was seen to lead recently.
func (l *Leader) follows() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.other)
}

func (l *Leader) campaign(ctx context.Context) (time.Duration, error) {
	before := l.Term()
	if before == 0 && l.follows() {
		return l.o.TTL / 3, nil
	}
	if due := l.renewal(); before != 0 && due > 0 {
		return due, nil
	}
	asked := time.Now()
	l.asking.Store(true)
	answer, err := l.store.Lead(ctx, store.Candidate{ID: l.o.ID, Term: before, TTL: l.o.TTL})
	if err != nil {
		l.missed()
		return 0, err
	}
	l.asking.Store(false)
	l.touch()
	// A slow answer makes the engine's clock seem slow, not fast: no tick fires early.
	l.set(answer.Term, asked, answer.Now)
	if before != answer.Term && answer.Term != 0 {
		l.o.Log.Info("lead", "term", answer.Term)
		for _, chore := range l.loops[1:] {
			chore.Wake()
		}
	}
	if answer.Term != 0 {
		return l.renewal(), nil
	}
	return l.o.TTL / 3, nil
}

// renewal returns the time until the term must be renewed. That is 5/12 of the TTL after the last renewal: a third,
// and a twelfth more in which oversee may renew it.
func (l *Leader) renewal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until) - l.o.TTL*7/12
}

func (l *Leader) set(term int64, asked, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.until = term, asked.Add(l.o.TTL)
	l.time(asked, now)
}

const graceWords = "nobody is declared dead until every worker has had the time to beat"

// time records the engine's time. If that jumped forward, because a clock was set or this machine slept, the leases
// of live workers seem to be over. They then get time to beat, as after an outage. Terms end by the same clock, so
// the jump is known before the next rescue. The engine read its clock some time after the request, so a slow answer
// is not mistaken for a clock that was set. The caller holds mu.
func (l *Leader) time(asked, now time.Time) {
	since := time.Since(l.asked) // at most
	// Clocks differ in speed, so a thousandth is tolerated.
	if by := now.Sub(l.told) - since; !l.told.IsZero() && by > l.o.Outage+since/1000 {
		l.back = time.Now()
		l.o.Log.Warn("lead: the database's clock went forward, "+graceWords, "by", by)
	}
	l.told, l.asked, l.ahead = now, asked, time.Until(now)
}

// renewed records that the engine has renewed the term as asked, unless the term is over here.
func (l *Leader) renewed(term int64, asked, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == term && !now.IsZero() {
		l.until = asked.Add(l.o.TTL)
		l.time(asked, now)
	}
}

// stepDown ends the term here. It keeps ahead, which is still valid: a chore of the term may still need the time.
func (l *Leader) stepDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.until, l.other = 0, time.Time{}, time.Time{}
}

// now returns the engine's time, based on the last answer that contained it.
func (l *Leader) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.ahead)
}

// chore returns a loop that works only while this process leads. The end of a term is not a failure.
func (l *Leader) chore(
	name string, deadline time.Duration, do func(ctx context.Context, term int64) (time.Duration, error),
) *loop.Loop {
	return loop.New(name, deadline, l.o.Log, func(ctx context.Context) (time.Duration, error) {
		term := l.Term()
		if term == 0 {
			return time.Second, nil
		}
		pause, err := do(ctx, term)
		if errors.Is(err, store.ErrNotLeader) {
			l.stepDown()
			l.lead.Wake()
			return time.Second, nil
		}
		if err == nil {
			l.touch()
		}
		return pause, err
	})
}

// touch records that the store has answered, and whether that was after an outage.
func (l *Leader) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.met.IsZero() && now.Sub(l.met) > l.o.Outage+l.late {
		l.back = now
		l.o.Log.Warn("lead: the database was out of reach, "+graceWords, "for", now.Sub(l.met))
	}
	l.met = now
}

// missed records that a process that has never reached the store cannot reach it: the outage may have begun before
// the process did.
func (l *Leader) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.met.IsZero() {
		l.met = time.Now().Add(-l.o.Outage)
	}
}
