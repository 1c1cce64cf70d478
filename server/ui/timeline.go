package ui

import (
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// timeline shows when the tasks of a workflow waited and ran, as bars on one scale.
type timeline struct {
	from, until time.Time
}

const timelineWidth = 1000

// timeSpan is a bar of a timeline.
type timeSpan struct {
	X, Width    int
	Class, Text string
}

// timelineOf finds when the workflow began and when it ended. While a task is available, running or retryable, now is
// its end.
func timelineOf(tasks []tusk.TaskInfo, now time.Time) timeline {
	l := timeline{from: now}
	for i := range tasks {
		t := &tasks[i]
		if t.EnqueuedAt.Before(l.from) {
			l.from = t.EnqueuedAt
		}
		switch {
		case t.State == store.Running || t.State == store.Retryable || t.State == store.Available:
			l.until = now
		case t.FinishedAt.After(l.until):
			l.until = t.FinishedAt
		}
	}
	if !l.until.After(l.from) {
		l.until = l.from.Add(time.Millisecond)
	}
	return l
}

// Took returns how long the whole workflow took.
func (l timeline) Took() string { return dur(l.until.Sub(l.from)) }

// bars returns the bars of a task: the wait before the first attempt, each attempt, and the one that is running.
func (l timeline) bars(t *tusk.TaskInfo) (bars []timeSpan) {
	add := func(from, until time.Time, class, text string) {
		if from.IsZero() || until.Before(from) {
			return
		}
		x, end := l.x(from), l.x(until)
		bars = append(bars, timeSpan{x, max(end-x, 3), class, text + " " + dur(until.Sub(from))})
	}
	started := t.ClaimedAt
	if t.Detail != nil && len(t.Detail.Attempts) > 0 {
		started = t.Detail.Attempts[0].StartedAt
	}
	if due := t.RunAt; !started.IsZero() && due.Before(started) {
		add(due, started, "waiting", "waited")
	}
	if t.Detail != nil {
		for _, a := range t.Detail.Attempts {
			class := a.Outcome.String()
			if a.Error != "" {
				class = "failed"
			}
			add(a.StartedAt, a.EndedAt, class, "ran")
		}
	}
	if t.State == store.Running {
		add(t.ClaimedAt, l.until, "running", "runs for")
	}
	return bars
}

func (l timeline) x(at time.Time) int {
	part := float64(at.Sub(l.from)) / float64(l.until.Sub(l.from))
	return int(min(max(part, 0), 1) * (timelineWidth - 3))
}

// ranFor returns how long the last claimed attempt of a task has run.
func ranFor(t tusk.TaskInfo) string {
	switch {
	case t.ClaimedAt.IsZero():
		return "–"
	case t.State == store.Running:
		return dur(time.Since(t.ClaimedAt))
	case t.FinishedAt.After(t.ClaimedAt):
		return dur(t.FinishedAt.Sub(t.ClaimedAt))
	}
	return "–"
}
