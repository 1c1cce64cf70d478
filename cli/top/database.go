package top

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/why"
)

// Database returns the Source of a client's database.
func Database(client *tusk.Client) Source { return database{client} }

type database struct{ *tusk.Client }

// budget is how many tasks a search reads if no index finds the matches.
const budget = 20000

// Overview implements Source.
func (d database) Overview(ctx context.Context) (Overview, error) {
	now := time.Now().UTC()
	o := Overview{At: now, Queues: []Queue{}, Stats: []Stat{}, Workers: []Worker{}}
	queues, workers, err := d.QueuesAndWorkers(ctx)
	if err != nil {
		return o, err
	}
	for _, q := range queues {
		o.Queues = append(o.Queues, queueOf(q))
	}
	stats, err := d.Stats(ctx, store.StatsFilter{Bucket: time.Minute, From: statsFrom(now)})
	if err != nil {
		return o, err
	}
	for i := range stats {
		o.Stats = append(o.Stats, statOf(&stats[i]))
	}
	for _, w := range workers {
		o.Workers = append(o.Workers, Worker{w.ID.String(), w.Host, w.PID, append([]string{}, w.Queues...),
			w.Concurrency, w.Running, w.Version, utc(w.StartedAt), utc(w.BeatAt)})
	}
	return o, nil
}

// statsFrom returns the beginning of the last full minute.
func statsFrom(now time.Time) time.Time { return now.Truncate(time.Minute).Add(-time.Minute) }

func queueOf(q tusk.Queue) Queue {
	v := Queue{q.Name, q.Paused, map[string]int64{}, q.Oldest.Seconds()}
	for state, n := range q.Tasks {
		v.Tasks[state.String()] = n
	}
	return v
}

func statOf(s *store.Stat) Stat {
	return Stat{utc(s.At), s.Queue, s.Kind, s.Completed, s.Failed, s.Discarded, s.Cancelled, spanOf(&s.Waited),
		spanOf(&s.Ran)}
}

func spanOf(d *store.Durations) Span {
	return Span{d.Count, d.Quantile(0.5).Seconds(), d.Quantile(0.95).Seconds()}
}

// Errors implements Source.
func (d database) Errors(ctx context.Context) ([]ErrorGroup, error) {
	found, err := d.Client.Errors(ctx, store.ErrorFilter{Since: time.Now().Add(-24 * time.Hour), Limit: page})
	groups := []ErrorGroup{}
	for _, g := range found {
		groups = append(groups, ErrorGroup{g.Fingerprint, g.Queue, g.Kind, g.Count, g.Waiting, g.Dead, utc(g.Last), g.Sample,
			g.SampleTask.String()})
	}
	return urgentFirst(groups), err
}

// urgentFirst sorts groups with tasks that have not succeeded before the others.
func urgentFirst(groups []ErrorGroup) []ErrorGroup {
	slices.SortStableFunc(groups, func(a, b ErrorGroup) int {
		return cmp.Compare(min(b.Dead+b.Waiting, 1), min(a.Dead+a.Waiting, 1))
	})
	return groups
}

// Tasks implements Source.
func (d database) Tasks(ctx context.Context, f Filter) ([]Task, error) {
	chosen := tusk.Filter{Limit: page, Queues: oneOf(f.Queue), Kinds: oneOf(f.Kind), Fingerprint: f.Fingerprint}
	for _, state := range store.States() {
		if state.String() == f.State {
			chosen.States = []tusk.State{state}
		}
	}
	found, _, err := d.Search(ctx, chosen, budget)
	tasks := []Task{}
	for _, t := range found {
		tasks = append(tasks, taskOf(t))
	}
	return tasks, err
}

func oneOf(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

func taskOf(t tusk.TaskInfo) Task {
	v := Task{t.ID.String(), t.Kind, t.Queue, t.Tenant, t.State.String(), t.Reason, t.Priority, t.Attempt, t.MaxAttempts,
		utc(t.EnqueuedAt), utc(t.RunAt), utc(t.ClaimedAt), utc(t.FinishedAt), ""}
	if !t.Worker.IsZero() {
		v.Worker = t.Worker.String()
	}
	return v
}

// Task implements Source.
func (d database) Task(ctx context.Context, text string) (Detail, error) {
	id, err := tusk.ParseID(text)
	if err != nil {
		return Detail{}, err
	}
	t, reasons, err := why.Task(ctx, d.Client, id)
	if err != nil {
		return Detail{}, err
	}
	v := Detail{Task: taskOf(*t), Attempts: []Attempt{}, Reasons: []Reason{}}
	for _, r := range reasons {
		v.Reasons = append(v.Reasons, Reason{string(r.Code), r.Text, r.Fix})
	}
	if t.Detail == nil {
		return v, nil
	}
	if p := t.Detail.Progress; p != nil {
		v.Progress = &Progress{p.Percent, p.Message}
	}
	if c := t.Detail.Changed; c != nil {
		v.Changed = &Change{utc(c.At), string(c.How)}
	}
	for _, a := range t.Detail.Attempts {
		v.Attempts = append(v.Attempts, Attempt{a.Number, a.Outcome.String(), utc(a.StartedAt), utc(a.EndedAt), a.Error})
	}
	return v, nil
}

// Pause implements Source.
func (d database) Pause(ctx context.Context, queue string) error { return d.PauseQueue(ctx, queue) }

// Resume implements Source.
func (d database) Resume(ctx context.Context, queue string) error { return d.ResumeQueue(ctx, queue) }

// Retry implements Source.
func (d database) Retry(ctx context.Context, text string) error {
	id, err := tusk.ParseID(text)
	if err != nil {
		return err
	}
	return d.Client.Retry(ctx, id)
}

// utc truncates a time to the millisecond, which every engine stores.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}
