package why

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

// named is how many tasks a reason names at most.
const named = 10

func say(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// dur formats a duration with about three digits.
func dur(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return duration.Text(d.Round(time.Millisecond))
	case d < time.Minute:
		return duration.Text(d.Round(100 * time.Millisecond))
	default:
		return duration.Text(d.Round(time.Second))
	}
}

func (f *Facts) ago(t time.Time) string { return dur(f.Now.Sub(t)) }

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// failed returns the latest error, shortened.
func (f *Facts) failed() string {
	const longest = 200
	if f.Task.Detail == nil {
		return ""
	}
	for _, a := range slices.Backward(f.Task.Detail.Attempts) {
		if a.Error != "" {
			text, _, _ := strings.Cut(a.Error, "\n")
			if len(text) > longest {
				text = strings.ToValidUTF8(text[:longest], "") + "…"
			}
			return fmt.Sprintf(" (%s)", text)
		}
	}
	return ""
}

func heldBy(holders []tusk.TaskInfo) string {
	if len(holders) == 0 {
		return ""
	}
	text := fmt.Sprintf("; held by %s since %s", holders[0].ID, at(holders[0].ClaimedAt))
	if n := len(holders) - 1; n > 0 {
		text += " and " + words.Count(n, "other")
	}
	return text
}

func ids(tasks []tusk.TaskInfo) []tusk.ID {
	var all []tusk.ID
	for i := range tasks[:min(len(tasks), named)] {
		all = append(all, tasks[i].ID)
	}
	return all
}

// worker returns a live worker, or nil.
func (f *Facts) worker(id tusk.ID) *store.Worker {
	for i := range f.Workers {
		if f.Workers[i].ID == id {
			return &f.Workers[i]
		}
	}
	return nil
}

// takers returns the live workers that take from the task's queue.
func (f *Facts) takers() (mine []store.Worker) {
	for _, w := range f.Workers {
		if w.TakesFrom(f.Task.Queue) {
			mine = append(mine, w)
		}
	}
	return mine
}

// quiet returns the workers that would take from it if they had not been told to claim nothing.
func (f *Facts) quiet() (mine []store.Worker) {
	for _, w := range f.Workers {
		if w.Quiet && slices.Contains(w.Queues, f.Task.Queue) {
			mine = append(mine, w)
		}
	}
	return mine
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// anyHas reports whether a worker has a handler for a kind. A worker that names no kinds passes its
// tasks on and may have a handler for any kind.
func anyHas(workers []store.Worker, kind string) bool {
	return slices.ContainsFunc(workers, func(w store.Worker) bool {
		return len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind)
	})
}

// full reports whether each worker holds at least most tasks of the queue.
func (f *Facts) full(workers []store.Worker, most int) bool {
	held := map[tusk.ID]int{}
	for i := range f.Holders {
		held[f.Holders[i].Worker]++
	}
	return !slices.ContainsFunc(workers, func(w store.Worker) bool { return held[w.ID] < most })
}
