package tend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// QueueKind is the kind of the records that hold the settings of queues.
const QueueKind = "queue"

// Aging raises the priority of the tasks of a queue while they wait, so that no task waits forever behind more urgent
// ones.
type Aging struct {
	// Every is how long a task waits before each rise; 0 means that tasks do not age. A rise halves the distance to To.
	Every time.Duration `json:"every"`
	// To is the priority that tasks rise to. Tasks with a lower value do not age.
	To int16 `json:"to,omitempty"`
}

// rise returns a priority after one rise.
func (a Aging) rise(priority int16) int16 {
	return int16(int(a.To) + (int(priority)-int(a.To))/2)
}

// sweep goes through the waiting tasks of an aging queue, one page at a time.
type sweep struct {
	begun  time.Time
	cursor store.ID // the last task of the previous page; zero if the sweep is over
	failed time.Time
}

const (
	ageLook = time.Second // between two checks of aging queues
	// Between two searches for aging queues, and before a failed page is retried.
	ageIdle = 5 * time.Second
	agePage = 100 * time.Millisecond // between two pages
)

// age raises tasks that have waited long. Each sweep raises a task of a queue at most once, and starts no sooner than
// Every after the start of the previous sweep.
func (l *Leader) age(ctx context.Context, _ int64) (time.Duration, error) {
	queues, err := l.aging(ctx)
	if err != nil || len(queues) == 0 {
		l.sweeps = nil
		return ageIdle, err
	}
	if l.sweeps == nil {
		l.sweeps = map[string]*sweep{}
	}
	counts, err := l.store.Count(ctx)
	if err != nil {
		return 0, err
	}
	more := false
	for name, of := range queues {
		s := l.sweeps[name]
		if s == nil {
			s = &sweep{}
			l.sweeps[name] = s
		}
		if time.Since(s.failed) < ageIdle {
			continue
		}
		if s.cursor.IsZero() {
			if l.now().Sub(s.begun) < of.Every || !waitsLong(counts, name, of.Every) {
				continue
			}
			s.begun = l.now()
		}
		if err := l.sweepPage(ctx, name, of, s); err != nil {
			if ctx.Err() != nil {
				return 0, fmt.Errorf("queue %s: %w", name, err)
			}
			// Returned as an error, this would delay the other queues.
			l.o.Log.Warn("age", "queue", name, "error", err, "retry_in", ageIdle)
			if s.failed = time.Now(); s.cursor.IsZero() {
				s.begun = time.Time{} // the sweep has not begun
			}
			continue
		}
		more = more || !s.cursor.IsZero()
	}
	if more {
		return agePage, nil
	}
	return ageLook, nil
}

// aging reads which queues age.
func (l *Leader) aging(ctx context.Context) (map[string]Aging, error) {
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: QueueKind})
	if err != nil {
		return nil, err
	}
	queues := map[string]Aging{}
	for _, r := range records {
		var settings struct{ Aging Aging }
		if err := json.Unmarshal(r.Body, &settings); err != nil {
			l.o.Log.Error("age: settings cannot be read", "queue", r.Name, "error", err)
		}
		if settings.Aging.Every > 0 {
			queues[r.Name] = settings.Aging
		}
	}
	return queues, nil
}

// waitsLong reports whether a task of a queue may have waited that long.
func waitsLong(counts []store.Count, queue string, long time.Duration) bool {
	return slices.ContainsFunc(counts, func(c store.Count) bool {
		return c.Queue == queue && c.Tasks > 0 && (c.State == store.Pending || c.State == store.Available && c.Oldest >= long)
	})
}

// sweepPage raises the tasks of the next page that have waited long enough.
func (l *Leader) sweepPage(ctx context.Context, queue string, of Aging, s *sweep) error {
	tasks, err := l.store.List(ctx, store.Filter{Queues: []string{queue},
		States: []store.State{store.Available, store.Pending}, Before: s.cursor, Limit: store.MaxPage, NoArgs: true})
	if err != nil {
		return err
	}
	rising := map[int16][]store.ID{}
	for i := range tasks {
		t := &tasks[i]
		if t.Priority > of.To && l.now().Sub(t.RunAt) >= of.Every && (t.State == store.Available || t.Turn) {
			to := of.rise(t.Priority)
			rising[to] = append(rising[to], t.ID)
		}
	}
	for to, ids := range rising {
		_, err := l.store.Edit(ctx, store.Edit{IDs: ids, Change: store.Change{Op: store.Reprioritize, Priority: to}})
		// A task that a user's transaction holds rises in the next sweep. Repeating this page would raise the others
		// again.
		if err != nil && !errors.As(err, new(*store.HeldError)) {
			return err
		}
	}
	if s.cursor = (store.ID{}); len(tasks) == store.MaxPage {
		s.cursor = tasks[len(tasks)-1].ID
	}
	return nil
}
