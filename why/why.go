// Package why explains why a task does not run, or what holds it, and why a schedule does not fire.
// The first reason is the one to act on. Each reason names the command that changes it.
//
// Gather and GatherSchedule read the facts from a client. Explain and ExplainSchedule, which are
// pure, judge them. Package cli, the API and the pages show the same answer.
package why

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// Code identifies a reason. Codes are stable.
type Code string

// The reasons.
const (
	Completed Code = "completed"
	Cancelled Code = "cancelled"
	Discarded Code = "discarded"
	KeyTaken  Code = "key_taken" // finished, and another unfinished task has its key

	Running    Code = "running"
	Stopping   Code = "stopping"    // running, and asked to stop
	WorkerLost Code = "worker_lost" // its worker no longer sends heartbeats

	Scheduled Code = "scheduled"
	Retrying  Code = "retrying"
	Due       Code = "due"       // its time has come; the leader is about to make it available
	NoLeader  Code = "no_leader" // no process does the chores that make it available

	Needs       Code = "needs"        // other tasks must end first
	NeedsFailed Code = "needs_failed" // one of them failed; the task waits for its retry
	Doomed      Code = "doomed"       // one of them failed, so the task is about to be cancelled
	KeyRuns     Code = "key_runs"     // a task with its key is running

	Turn           Code = "turn" // it is about to get its turn
	LimitQueue     Code = "limit_queue"
	LimitTenant    Code = "limit_tenant"
	LimitPartition Code = "limit_partition"
	Rate           Code = "rate"
	RateTenant     Code = "rate_tenant"
	RatePartition  Code = "rate_partition"
	TurnsBehind    Code = "turns_behind" // other tasks of its partition are ahead of it

	Paused      Code = "paused"
	NoWorker    Code = "no_worker"    // no worker takes tasks from its queue
	Quiet       Code = "quiet"        // the workers that take from its queue were told to claim nothing more
	NoHandler   Code = "no_handler"   // none of those workers has a handler for its kind
	LimitWorker Code = "limit_worker" // each worker holds as many tasks of the queue as it may
	Behind      Code = "behind"       // other tasks are ahead of it
	Busy        Code = "busy"         // no worker has a free slot
	Expired     Code = "expired"      // it can only start after its expiry, and is discarded when it is claimed
	TooLate     Code = "too_late"     // the same for its deadline
	Ready       Code = "ready"        // a worker is about to take it
)

// Reason is one reason why a task or a schedule is in its state.
type Reason struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// Fix is the command that changes it; empty if there is nothing to change.
	Fix string `json:"fix,omitempty"`
	// Until is when it ends by itself; zero if unknown.
	Until time.Time `json:"until,omitzero"`
	// Tasks are the tasks concerned, at most 10.
	Tasks []tusk.ID `json:"tasks,omitempty"`
}

// Facts are what Explain judges.
type Facts struct {
	Now     time.Time // by the engine's clock if it tells, else by this process's
	Task    tusk.TaskInfo
	Paused  bool           // whether its queue is paused
	Workers []store.Worker // all live workers
	Leads   bool           // a process does the leader's chores, or it is unknown
	Limits  *tusk.Limits   // of its queue; nil if it has none
	Turns   []store.Turns  // of its queue
	Rates   allot.Rates    // the used part of each rate
	Served  bool           // an endpoint is called with the tasks of its queue
	Key     *tusk.TaskInfo // another unfinished task with its key; nil if none
	Run     *tusk.TaskInfo // a stage of another run of its key that must end before its run begins; nil if none

	Holders []tusk.TaskInfo // running tasks of its queue
	Ahead   []tusk.TaskInfo // available tasks of its queue that are claimed before it
	More    bool            // there may be more of Ahead
	Bounded bool            // the asker may not see all tasks, so no totals are given
}

// Explain returns the reasons why a task does not run now, or how it ended. There is at least one;
// the first is the one to act on.
func Explain(f Facts) []Reason {
	switch f.Task.State {
	case store.Running:
		return f.running()
	case store.Scheduled, store.Retryable:
		if f.putOff() {
			return slices.Concat(f.never(), f.blocked(), f.waiting())
		}
		return slices.Concat(f.never(), f.waiting(), f.blocked())
	case store.Pending:
		return slices.Concat(f.never(), f.pending(), f.blocked())
	case store.Available:
		return f.available()
	default:
		return f.finished()
	}
}

func (f *Facts) finished() (reasons []Reason) {
	t := &f.Task
	if f.Key != nil && t.State != store.Completed {
		reasons = append(reasons, Reason{Code: KeyTaken, Tasks: []tusk.ID{f.Key.ID},
			Text: say("its key %q is taken by task %s, which is %v: it cannot be retried before that has ended", t.Key, f.Key.ID,
				f.Key.State),
			Fix: say("tusk tasks why %s", f.Key.ID)})
	}
	retry := say("tusk tasks retry %s", t.ID)
	switch t.State {
	case store.Completed:
		return append(reasons, Reason{Code: Completed, Text: say("it completed at %s, in attempt %d", at(t.FinishedAt),
			t.Attempt)})
	case store.Cancelled:
		return append(reasons, Reason{Code: Cancelled, Text: say("it was cancelled at %s%s", at(t.FinishedAt),
			because(t.Reason)), Fix: retry})
	default:
		return append(reasons, Reason{Code: Discarded, Text: say("it was discarded at %s, after attempt %d of %d%s%s",
			at(t.FinishedAt), t.Attempt, t.MaxAttempts, because(t.Reason), f.failed()), Fix: retry})
	}
}

func (f *Facts) running() (reasons []Reason) {
	t := &f.Task
	cancel := say("tusk tasks cancel %s", t.ID)
	w := f.worker(t.Worker)
	if w == nil {
		lost := Reason{Code: WorkerLost, Text: say(
			"worker %s, which holds it since %s, does not beat any more: its tasks are given to others", t.Worker,
			at(t.ClaimedAt))}
		return append(f.leaderless(), lost)
	}
	held := say("worker %s (%s, process %d) holds it since %s and last beat %s ago", w.ID, w.Host, w.PID, at(t.ClaimedAt),
		f.ago(w.BeatAt))
	if t.Detail != nil && t.Detail.CancelRequested {
		reasons = append(reasons, Reason{Code: Stopping,
			Text: "somebody cancelled it: its worker is told to stop at the next beat, and its handler decides when",
			Fix:  "let the handler return when its context ends"})
	}
	return append(reasons, Reason{Code: Running, Text: held, Fix: cancel})
}

// waiting says why a task is scheduled or waits for a retry.
func (f *Facts) waiting() []Reason {
	t := &f.Task
	now := say("tusk tasks retry %s", t.ID)
	if !t.RunAt.After(f.Now) {
		if none := f.leaderless(); none != nil {
			return none
		}
		return []Reason{{Code: Due, Text: "its time has come: it becomes available in a moment"}}
	}
	if f.putOff() {
		text := say("it was postponed because no worker had a handler for the kind %s: a worker that has one gets it within "+
			"seconds; otherwise it is retried at %s, in %s", t.Kind, at(t.RunAt), dur(t.RunAt.Sub(f.Now)))
		return []Reason{{Code: Retrying, Text: text, Fix: now, Until: t.RunAt}}
	}
	if t.State == store.Retryable {
		return []Reason{{Code: Retrying, Text: say("attempt %d of %d failed%s; it is retried at %s, in %s", t.Attempt,
			t.MaxAttempts, f.failed(), at(t.RunAt), dur(t.RunAt.Sub(f.Now))), Fix: now, Until: t.RunAt}}
	}
	if f.Run != nil && !t.ClaimedAt.IsZero() {
		return []Reason{{Code: KeyRuns, Tasks: []tusk.ID{f.Run.ID}, Until: t.RunAt,
			Text: say("another run of the pipeline has its key %q, and its task %s is %v: it begins after that run, and "+
				"looks again at %s", t.Key, f.Run.ID, f.Run.State, at(t.RunAt)),
			Fix: say("tusk tasks why %s", f.Run.ID)}}
	}
	return []Reason{{Code: Scheduled, Text: say("its time is %s, in %s", at(t.RunAt), dur(t.RunAt.Sub(f.Now))), Fix: now,
		Until: t.RunAt}}
}

// putOff reports whether a task waits because no worker of its queue had a handler for its kind.
func (f *Facts) putOff() bool {
	t := &f.Task
	if t.State != store.Retryable || t.Detail == nil {
		return false
	}
	print := ""
	for _, a := range t.Detail.Attempts {
		if a.Error != "" {
			print = a.Fingerprint
		}
	}
	return print == lifecycle.StrangerPrint(t.Kind)
}

// leaderless returns the reason for tasks that need the leader while no process leads.
func (f *Facts) leaderless() []Reason {
	if f.Leads {
		return nil
	}
	return []Reason{{Code: NoLeader,
		Text: "no process leads: nothing makes due tasks available, hands out turns or rescues the tasks of dead workers",
		Fix:  "tusk serve"}}
}

// never says that a task can only start after its expiry or its deadline.
func (f *Facts) never() (reasons []Reason) {
	t := &f.Task
	for _, end := range []struct {
		code Code
		what string
		at   time.Time
	}{{Expired, "expiry", t.ExpiresAt}, {TooLate, "deadline", t.Deadline}} {
		switch r := (Reason{Code: end.code, Fix: say("tusk tasks cancel %s", t.ID)}); {
		case end.at.IsZero():
		case !end.at.After(f.Now):
			r.Text = say("its %s was at %s: it is discarded when a worker takes it", end.what, at(end.at))
			reasons = append(reasons, r)
		case !end.at.After(t.RunAt):
			r.Text = say("it can never run: its %s at %s is not after its run time, %s", end.what, at(end.at), at(t.RunAt))
			if t.State != store.Pending {
				r.Fix = say("tusk tasks retry %s", t.ID)
			}
			reasons = append(reasons, r)
		}
	}
	return reasons
}

func (f *Facts) available() (reasons []Reason) {
	reasons = append(f.never(), f.blocked()...)
	if len(reasons) == 0 {
		reasons = append(reasons, f.crowded()...)
	}
	if len(reasons) == 0 {
		reasons = append(reasons, Reason{Code: Ready,
			Text: "it is available: a worker with a free slot takes it within its poll, a second by default"})
	}
	return reasons
}

// blocked says what keeps all tasks of the task's queue or kind from being claimed.
func (f *Facts) blocked() (reasons []Reason) {
	t := &f.Task
	if f.Paused {
		reasons = append(reasons, Reason{Code: Paused, Text: say("its queue %s is paused", t.Queue),
			Fix: say("tusk queues resume %s", t.Queue)})
	}
	mine, quiet := f.takers(), f.quiet()
	switch {
	case f.Served: // an endpoint may accept any kind
	case len(mine) == 0 && len(quiet) > 0:
		reasons = append(reasons, Reason{Code: Quiet, Text: say("the %s of its queue %s %s told to claim nothing more",
			words.Count(len(quiet), "worker"), t.Queue, were(len(quiet))), Fix: say("tusk workers wake %s", quiet[0].ID)})
	case len(mine) == 0:
		reasons = append(reasons, Reason{Code: NoWorker, Text: say("no living worker takes tasks from its queue %s", t.Queue),
			Fix: say("tusk work --queue %s", t.Queue)})
	case !anyHas(mine, t.Kind):
		reasons = append(reasons, Reason{Code: NoHandler,
			Text: say("no worker of its queue %s has a handler for the kind %s", t.Queue, t.Kind),
			Fix:  say("tusk work --queue %s --exec %s=COMMAND", t.Queue, t.Kind)})
	}
	return reasons
}

// crowded says what keeps a claimable task from being the next one.
func (f *Facts) crowded() (reasons []Reason) {
	t, mine := &f.Task, f.takers()
	slots, running := 0, 0
	for _, w := range mine {
		slots, running = slots+w.Concurrency, running+w.Running
	}
	if l := f.Limits; l != nil && l.PerWorker > 0 && f.full(mine, l.PerWorker) {
		reasons = append(reasons, Reason{Code: LimitWorker,
			Text: say("each worker holds as many tasks of its queue %s as it may: %d", t.Queue, l.PerWorker),
			Fix:  say("tusk limits set %s --per-worker %d", t.Queue, 2*l.PerWorker), Tasks: ids(f.Holders)})
	}
	if n := len(f.Ahead); n > 0 && (slots == 0 || running >= slots) {
		reasons = append(reasons, f.behind(n))
	}
	if slots > 0 && running >= slots {
		reasons = append(reasons, Reason{Code: Busy, Text: say("the %s of its queue are full: %d of %d slots are taken",
			words.Count(len(mine), "worker"), running, slots), Fix: say("tusk work --queue %s", t.Queue)})
	}
	return reasons
}

// behind says which tasks are claimed first: those with a lower priority value, then those that
// have been available for longer.
func (f *Facts) behind(n int) Reason {
	t, higher := &f.Task, 0
	for i := range f.Ahead {
		if f.Ahead[i].Priority < t.Priority {
			higher++
		}
	}
	least := ""
	if f.More {
		least = "at least "
	}
	text := say("it is behind %s%s", least, words.Count(n, "other"))
	if higher > 0 {
		text += say(", %d of them of higher priority", higher)
	}
	return Reason{Code: Behind, Text: text, Fix: say("tusk tasks reprioritize %s --priority %d", t.ID,
		max(int(f.Ahead[0].Priority)-1, -1<<15)),
		Tasks: ids(f.Ahead)}
}
