package alert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// Facts are what rules are judged by.
type Facts struct {
	Now       time.Time // by the database's clock
	Queues    []tusk.Queue
	Served    map[string]bool // queues that have a worker or an endpoint
	Schedules []tusk.ScheduleInfo
	Stats     []store.Stat // of this minute and the one before
	Led       bool         // a process leads

	// Ended has, for the Over of each Stalled rule, the queues in which an attempt has ended since.
	Ended map[time.Duration]map[string]bool
}

// Reading is the result of judging a rule.
type Reading struct {
	Holds bool
	Text  string // description of what holds, for people
}

// Judge reports whether the condition of a rule holds now.
func Judge(r *Rule, f *Facts) Reading {
	var found []string
	switch r.Kind {
	case Missed:
		for _, s := range f.Schedules {
			late := f.Now.Sub(s.Next)
			if (r.Schedule == "" || r.Schedule == s.Name) && !s.Paused && !s.Next.IsZero() && late > r.Over {
				found = append(found, fmt.Sprintf("schedule %s should have fired %v ago", s.Name, late.Round(time.Second)))
			}
		}
	case NoLeader:
		if !f.Led {
			found = append(found, "no process leads: due tasks, schedules, limits, rescue and pruning stand still")
		}
	case Discarded:
		found = f.discarded(r)
	default:
		for i := range f.Queues {
			if q := &f.Queues[i]; r.Queue == "" || r.Queue == q.Name {
				if text := f.queue(r, q); text != "" {
					found = append(found, text)
				}
			}
		}
	}
	return Reading{Holds: len(found) > 0, Text: list(found)}
}

// queue describes what a rule finds in one queue; "" means nothing. A paused queue is paused on purpose.
func (f *Facts) queue(r *Rule, q *tusk.Queue) string {
	available, running := q.Tasks[store.Available], q.Tasks[store.Running]
	switch {
	case q.Paused:
	case r.Kind == Oldest && available > 0 && q.Oldest > r.Over:
		return fmt.Sprintf("the oldest of %s in queue %s has waited for %v", words.Count(available, "available task"),
			q.Name, q.Oldest.Round(time.Second))
	case r.Kind == Stalled && stands(q, r.Over) && !f.Ended[r.Over][q.Name]:
		return fmt.Sprintf("no attempt has ended in queue %s for %v: %d running, %d waiting", q.Name, r.Over,
			running, available)
	case r.Kind == NoWorker && available > 0 && !f.Served[q.Name]:
		return fmt.Sprintf("queue %s has %s and no worker", q.Name, words.Count(available, "available task"))
	}
	return ""
}

// stands reports whether a queue is stalled if no attempt has ended in it.
func stands(q *tusk.Queue, over time.Duration) bool {
	available, running := q.Tasks[store.Available], q.Tasks[store.Running]
	return !q.Paused && (running > 0 || available > 0 && q.Oldest > over)
}

// discarded looks at the current and the previous minute of each queue.
func (f *Facts) discarded(r *Rule) (found []string) {
	most := map[string]int64{}
	perMinute := map[time.Time]map[string]int64{}
	for _, s := range f.Stats {
		if s.At.Before(f.Now.Truncate(time.Minute).Add(-time.Minute)) || r.Queue != "" && r.Queue != s.Queue {
			continue
		}
		if perMinute[s.At] == nil {
			perMinute[s.At] = map[string]int64{}
		}
		perMinute[s.At][s.Queue] += s.Discarded
		most[s.Queue] = max(most[s.Queue], perMinute[s.At][s.Queue])
	}
	for queue, n := range most {
		if n > r.Rate {
			found = append(found, fmt.Sprintf("%d tasks of queue %s were discarded in a minute", n, queue))
		}
	}
	slices.Sort(found)
	return found
}

// list joins the findings and cuts the list after a few.
func list(found []string) string {
	const few = 5
	if n := len(found); n > few {
		found = append(slices.Clone(found[:few]), fmt.Sprintf("and %d more", n-few))
	}
	return strings.Join(found, "; ")
}
