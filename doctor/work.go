package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// work checks workers, queues, schedules and receivers.
func (f *Facts) work(o Options) []Finding {
	found := append(f.versions(), f.queues(o)...)
	found = append(found, f.kinds()...)
	found = append(found, f.running(o)...)
	found = append(found, f.schedules(o)...)
	found = append(found, f.endpoints()...)
	return append(found, f.receivers(o)...)
}

// endpoints judges whether the latest call of each endpoint reached it.
func (f *Facts) endpoints() (found []Finding) {
	for _, e := range f.Endpoints {
		if e.Fails() {
			found = append(found, Finding{"endpoints", Warn, fmt.Sprintf(
				"the endpoint of queue %s was not reached %s ago, and has not answered since: %s", e.Name,
				duration.Text(max(f.now().Sub(e.Failed), 0).Round(time.Second)), e.Error),
				"see that its URL answers, and that tusk serve --push-allow names a private host; tusk endpoints list"})
		}
	}
	if found == nil {
		found = []Finding{ok("endpoints", "%s, and no latest call failed to reach one",
			words.Count(len(f.Served), "endpoint"))}
	}
	return few(found, "endpoint", "tusk endpoints list")
}

// receivers judges whether the receivers of alerts and hooks get their messages.
func (f *Facts) receivers(o Options) (found []Finding) {
	now := f.now()
	for _, r := range f.Receivers {
		show := fmt.Sprintf("tusk %ss show %s", r.Kind, r.Name)
		because := ""
		if r.Error != "" {
			because = ": " + r.Error
		}
		if late := now.Sub(r.Waits); !r.Waits.IsZero() && late > o.Untold {
			found = append(found, Finding{"receivers", Warn,
				fmt.Sprintf("a message of the %s %s has waited for its receiver for %s%s", r.Kind, r.Name,
					duration.Text(late.Round(time.Second)), because),
				"see that the receiver answers and that tusk serve runs; " + show})
		}
		if r.Dropped > 0 {
			found = append(found, Finding{"receivers", Warn,
				fmt.Sprintf("given up: %s of the %s %s, which its receiver did not take",
					words.Count(r.Dropped, "message"), r.Kind, r.Name),
				show + " has the latest error; remove it and put it again to start from 0"})
		}
	}
	if found == nil {
		found = []Finding{ok("receivers",
			"%s with messages: none is delayed, none was given up", words.Count(len(f.Receivers), "receiver"))}
	}
	return found
}

// now returns the database's time, or the local time if that is unknown.
func (f *Facts) now() time.Time {
	if f.Health.Now.IsZero() {
		return f.Local
	}
	return f.Health.Now
}

func (f *Facts) versions() []Finding {
	var others []string
	for _, w := range f.Workers {
		if w.Version != f.Version && !slices.Contains(others, w.Version) {
			others = append(others, w.Version)
		}
	}
	slices.Sort(others)
	if len(others) > 0 {
		return []Finding{{"versions", Warn, fmt.Sprintf(
			"among %s are other versions than this program's, %s: %s", words.Count(len(f.Workers), "live worker"),
			f.Version, strings.Join(others, ", ")), "upgrade them, or this program"}}
	}
	return []Finding{ok("versions", "%s, all of the version %s", words.Count(len(f.Workers), "live worker"), f.Version)}
}

func (f *Facts) queues(o Options) (found []Finding) {
	taken, quiet := map[string]bool{}, map[string]tusk.ID{}
	for _, w := range f.Workers {
		for _, q := range w.Queues {
			if taken[q] = taken[q] || !w.Quiet; w.Quiet {
				quiet[q] = w.ID
			}
		}
	}
	for _, q := range f.Queues {
		n := q.Tasks[store.Available]
		late := q.Oldest > o.Waiting
		switch {
		case n == 0:
		case q.Paused && late:
			found = append(found, Finding{"queues", Warn,
				fmt.Sprintf("queue %s is paused with %s, the oldest waits for %s", q.Name,
					words.Count(n, "available task"), duration.Text(q.Oldest.Round(time.Second))), "tusk queues resume " + q.Name})
		case q.Paused:
		case !taken[q.Name] && !f.Served[q.Name]:
			status := Warn
			if late {
				status = Critical
			}
			text, fix := "no worker", "tusk work --queue "+q.Name
			if id, ok := quiet[q.Name]; ok {
				text, fix = "only quiet workers", "tusk workers wake "+id.String()
			}
			found = append(found, Finding{"queues", status, fmt.Sprintf("queue %s has %s and %s", q.Name,
				words.Count(n, "available task"), text), fix})
		case late:
			found = append(found, Finding{"queues", Warn,
				fmt.Sprintf("the oldest of %s in queue %s waits for %s", words.Count(n, "available task"), q.Name,
					duration.Text(q.Oldest.Round(time.Second))),
				"start more workers: tusk work --queue " + q.Name})
		}
	}
	if found == nil {
		found = []Finding{ok("queues",
			"every queue with available tasks has a worker, and none waits for longer than %s",
			duration.Text(o.Waiting))}
	}
	return few(found, "queue", "tusk queues list")
}

// kinds checks whether a worker has a handler for the postponed tasks.
func (f *Facts) kinds() (found []Finding) {
	for _, g := range f.PutOff {
		takes := func(w store.Worker) bool { return w.Takes(g.Queue, g.Kind) }
		if f.Served[g.Queue] || slices.ContainsFunc(f.Workers, takes) {
			continue
		}
		found = append(found, Finding{"kinds", Warn, fmt.Sprintf(
			"postponed: %s of the kind %s, since no live worker of queue %s has a handler for it",
			words.Count(g.Waiting, "task"), g.Kind, g.Queue),
			fmt.Sprintf("start a worker that has one: tusk work --queue %s --exec %s=COMMAND", g.Queue, g.Kind)})
	}
	if found == nil {
		found = []Finding{ok("kinds", "no tasks are postponed for lack of a handler for their kind")}
	}
	return few(found, "kind", "tusk errors list")
}

// running names the tasks that have run for too long. Nothing ends an attempt that has no timeout and whose worker is
// alive.
func (f *Facts) running(o Options) (found []Finding) {
	tasks := slices.Clone(f.Running)
	slices.SortFunc(tasks, func(a, b store.Task) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	for _, t := range tasks {
		if ran := f.now().Sub(t.ClaimedAt); ran > o.Running {
			found = append(found, Finding{"running", Warn, fmt.Sprintf("task %v of the kind %s in queue %s has run for %s",
				t.ID, t.Kind, t.Queue, duration.Text(ran.Round(time.Second))),
				fmt.Sprintf("tusk tasks cancel %v, and limit attempts: a timeout of the task (tusk enqueue --timeout) ends them "+
					"in every worker, also over HTTP; tusk work --timeout only in its own", t.ID)})
		}
	}
	if found == nil {
		found = []Finding{ok("running", "no attempt has run for longer than %s", duration.Text(o.Running))}
	}
	found = few(found, "task", "tusk tasks list --state running")
	if len(f.Running) >= mostRunning {
		found = append(found, Finding{"running", Warn, fmt.Sprintf("only the newest %d of the tasks that are running and "+
			"were enqueued more than %s ago were examined", len(f.Running), duration.Text(o.Running)),
			"tusk tasks list --state running --queue QUEUE, for each queue"})
	}
	return found
}

// mostNamed is how many findings of a check are listed.
const mostNamed = 10

// few keeps the worst findings of a check. It adds how many more there are and which command lists
// them.
func few(found []Finding, what, list string) []Finding {
	if len(found) <= mostNamed {
		return found
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		switch {
		case a.Status == b.Status:
			return 0
		case a.Status == Critical:
			return -1
		}
		return 1
	})
	rest := found[mostNamed:]
	return append(found[:mostNamed:mostNamed],
		Finding{rest[0].Check, Worst(rest), words.Count(len(rest), "more "+what) + " like these", list})
}

func (f *Facts) schedules(o Options) (found []Finding) {
	now := f.now()
	for _, s := range f.Schedules {
		if !s.Paused && !s.Next.IsZero() && now.Sub(s.Next) > o.Missed {
			found = append(found, Finding{"schedules", Critical, fmt.Sprintf(
				"schedule %s should have fired %s ago", s.Name, duration.Text(now.Sub(s.Next).Round(time.Second))),
				"tusk schedules why " + s.Name + "; a process has to lead: tusk serve"})
		}
	}
	if found == nil {
		found = []Finding{ok("schedules", "none of %d is late", len(f.Schedules))}
	}
	return few(found, "schedule", "tusk schedules list")
}
