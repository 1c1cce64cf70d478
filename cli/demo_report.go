package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// demoReport is the result of the demo.
type demoReport struct {
	Enqueued  int    `json:"enqueued" col:"ENQUEUED"`
	Completed int    `json:"completed" col:"COMPLETED"`
	Discarded int    `json:"discarded" col:"DISCARDED"`
	Retries   int    `json:"retries" col:"RETRIES"`
	Rescued   int    `json:"rescued" col:"RESCUED"`
	Lost      int    `json:"lost" col:"LOST"`
	WaitP50   millis `json:"wait_p50_ms" col:"WAITING P50 MS"`
	WaitP99   millis `json:"wait_p99_ms" col:"WAITING P99 MS"`
	RunP50    millis `json:"run_p50_ms" col:"RUNNING P50 MS"`
	RunP99    millis `json:"run_p99_ms" col:"RUNNING P99 MS"`
	PerSecond rate   `json:"tasks_per_s" col:"TASKS PER SECOND"`
}

func (r *demoReport) verdict() error {
	switch {
	case r.Lost > 0:
		return fmt.Errorf("%d tasks are not accounted for", r.Lost)
	case r.Rescued == 0:
		return errors.New("no task was rescued from the killed worker")
	}
	return nil
}

// account reads from the database what became of every task.
func (d *demo) account(ctx context.Context) (*demoReport, error) {
	var r demoReport
	var first, last time.Time // of the files, except those that were rescued
	files, missing := 0, len(d.acked)
	for f := (tusk.Filter{Queues: []string{d.queue}, Detail: true, Limit: store.MaxPage}); ; {
		page, err := d.client.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, t := range page {
			if d.acked[t.ID] {
				missing--
			}
			rescued := r.add(&t)
			if t.Kind == demoSHA256 && !rescued {
				files++
				if first.IsZero() || t.EnqueuedAt.Before(first) {
					first = t.EnqueuedAt
				}
				if t.FinishedAt.After(last) {
					last = t.FinishedAt
				}
			}
		}
		if len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
	}
	r.Enqueued += missing
	r.Lost += missing
	if took := last.Sub(first); took > 0 {
		r.PerSecond = rate(float64(files) / took.Seconds())
	}
	return &r, d.measure(ctx, &r)
}

// add counts one task, and reports whether it was rescued.
func (r *demoReport) add(t *tusk.TaskInfo) (rescued bool) {
	r.Enqueued++
	switch {
	case t.State == tusk.StateCompleted && (t.Kind != demoSHA256 || len(t.Detail.Output) > 0):
		r.Completed++
	case t.State == tusk.StateDiscarded:
		r.Discarded++
	default:
		r.Lost++
	}
	for _, a := range t.Detail.Attempts {
		switch {
		case a.Error == "worker "+a.Worker.String()+" died":
			r.Rescued++
			rescued = true
		case a.Outcome == tusk.StateRetryable:
			r.Retries++
		}
	}
	return rescued
}

func (d *demo) stats(ctx context.Context) ([]store.Stat, error) {
	return d.client.Stats(ctx, store.StatsFilter{Bucket: time.Minute, Queue: d.queue,
		From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})
}

// finished counts the tasks that have ended.
func (d *demo) finished(ctx context.Context) (n int64, err error) {
	stats, err := d.stats(ctx)
	for _, s := range stats {
		n += s.Completed + s.Discarded + s.Cancelled
	}
	return n, err
}

func (d *demo) measure(ctx context.Context, r *demoReport) error {
	stats, err := d.stats(ctx)
	if err != nil {
		return err
	}
	var waited, ran store.Durations
	for i := range stats {
		waited.Merge(&stats[i].Waited)
		ran.Merge(&stats[i].Ran)
	}
	r.WaitP50, r.WaitP99 = asMillis(waited.Quantile(0.5)), asMillis(waited.Quantile(0.99))
	r.RunP50, r.RunP99 = asMillis(ran.Quantile(0.5)), asMillis(ran.Quantile(0.99))
	return nil
}
