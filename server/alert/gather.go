package alert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const readTime = deadline / 7 // for one of the six reads of a look

// gather reads only what the rules need. If something cannot be read, the kinds of rules that need it are unknown,
// except for stalled rules whose span was read. The others are judged all the same: a failure that prevents one read
// may be what they report.
func (r *Runner) gather(
	ctx context.Context, alerts []Alert, now time.Time,
) (f Facts, unknown map[Kind]bool, failed error) {
	f, unknown = Facts{Now: now, Served: map[string]bool{}, Led: true}, map[Kind]bool{}
	var workers []store.Worker
	for _, source := range []struct {
		kinds []Kind
		read  func(context.Context) error
	}{
		{[]Kind{NoLeader}, func(ctx context.Context) (err error) { f.Led, err = r.led(ctx); return err }},
		{[]Kind{Oldest, Stalled, NoWorker}, func(ctx context.Context) (err error) {
			f.Queues, workers, err = r.client.QueuesAndWorkers(ctx)
			return err
		}},
		{[]Kind{NoWorker}, func(ctx context.Context) error { return r.served(ctx, workers, f.Served) }},
		{[]Kind{Missed}, func(ctx context.Context) (err error) { f.Schedules, err = r.client.Schedules(ctx); return err }},
		{[]Kind{Stalled, Discarded}, func(ctx context.Context) error { return r.count(ctx, &f) }},
		{[]Kind{Stalled}, func(ctx context.Context) error { return r.spans(ctx, alerts, &f) }},
	} {
		needed := func(a Alert) bool { return slices.Contains(source.kinds, a.Kind) && !unknown[a.Kind] }
		if !slices.ContainsFunc(alerts, needed) {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, readTime)
		err := source.read(soon)
		cancel()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("alerts: %w", err))
			for _, kind := range source.kinds {
				unknown[kind] = true
			}
		}
	}
	return f, unknown, failed
}

// led reports whether a process leads, as far as the engine can tell.
func (r *Runner) led(ctx context.Context) (bool, error) {
	examiner, ok := store.As[store.Examiner](r.client.Store())
	if !ok {
		return true, nil
	}
	health, err := examiner.Examine(ctx)
	return health.Leader.Held, err
}

// served records the queues that have a worker or an endpoint.
func (r *Runner) served(ctx context.Context, workers []store.Worker, served map[string]bool) error {
	for _, w := range workers {
		for _, q := range w.Queues {
			served[q] = served[q] || !w.Quiet
		}
	}
	endpoints, err := r.client.Store().Records(ctx, store.RecordFilter{Kind: "endpoint"})
	for _, e := range endpoints {
		served[e.Name] = true
	}
	return err
}

// recent returns the time from which count reads.
func (f *Facts) recent() time.Time { return f.Now.Truncate(time.Minute).Add(-time.Minute) }

// count reads which attempts have ended in the last minutes.
func (r *Runner) count(ctx context.Context, f *Facts) (err error) {
	f.Stats, err = r.client.Stats(ctx, store.StatsFilter{Bucket: time.Minute, From: f.recent()})
	return err
}

// spans finds the queues in which attempts have ended within the span of a rule. It reads further back than count only
// for queues in which none has ended as far as is known.
func (r *Runner) spans(ctx context.Context, alerts []Alert, f *Facts) error {
	r.ends.add(f.Stats, f.recent(), f.Now)
	if err := r.ends.reread(ctx, f.Now, r.client.Stats); err != nil {
		return err
	}
	f.Ended = map[time.Duration]map[string]bool{}
	var spans []time.Duration
	for i := range alerts {
		if alerts[i].Kind == Stalled {
			spans = append(spans, alerts[i].Over)
		}
	}
	slices.Sort(spans) // a long one may take too long
	for _, over := range slices.Compact(spans) {
		from := f.Now.Add(-over).Truncate(time.Minute)
		if err := r.ends.reach(ctx, from, f.standing(alerts, over), r.client.Stats); err != nil {
			return err
		}
		f.Ended[over] = r.ends.in(from)
	}
	return nil
}

// standing returns the queues that are stalled for the rules with a span, unless attempts have ended in them.
func (f *Facts) standing(alerts []Alert, over time.Duration) (names []string) {
	for i := range f.Queues {
		q := &f.Queues[i]
		concerns := func(a Alert) bool {
			return a.Kind == Stalled && a.Over == over && (a.Queue == "" || a.Queue == q.Name)
		}
		if stands(q, over) && slices.ContainsFunc(alerts, concerns) {
			names = append(names, q.Name)
		}
	}
	return names
}
