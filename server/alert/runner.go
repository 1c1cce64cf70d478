package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/store"
)

const (
	pause    = 5 * time.Second
	deadline = time.Minute      // for one look
	within   = 10 * time.Second // for one message
	atOnce   = 10               // messages that are sent at the same time
)

// Runner checks the rules and reports the results. Make one with New.
type Runner struct {
	book   *Book
	client *tusk.Client
	post   *herald.Post
	log    *slog.Logger
	every  time.Duration
}

// New returns a runner. If every is zero it is 5 s; if patience is zero it is herald.Patience.
func New(book *Book, client *tusk.Client, log *slog.Logger, every, patience time.Duration) *Runner {
	return &Runner{book: book, client: client, post: herald.New(client.Store(), post, tusk.NewID(), patience), log: log,
		every: cmp.Or(every, pause)}
}

// Run checks the rules until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	if err := r.book.Reseal(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("alerts: secrets are not encrypted with the primary key", "error", err)
	}
	r.post.Serve(ctx, r.every, r.log, r.look)
}

// look judges all rules once, if this process holds the post.
func (r *Runner) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	alerts, err := r.book.List(ctx)
	if err != nil || len(alerts) == 0 {
		return errors.Join(err, r.post.Release(ctx))
	}
	now, held, err := r.post.Hold(ctx)
	if err != nil || !held {
		return err
	}
	ctx, leave := r.post.Stay(ctx) // sending may take longer than the patience of other processes
	defer leave()
	facts, err := r.gather(ctx, alerts, now)
	if err == nil {
		for i := range alerts {
			a := &alerts[i]
			found := Judge(&a.Rule, &facts)
			err = errors.Join(err, r.book.changeState(ctx, a.Name, func(s State) State {
				a.State = s.Next(&a.Rule, found, now, func() string { return tusk.NewID().String() })
				return a.State
			}))
		}
	}
	r.send(ctx, alerts, now)
	return err
}

// send sends the owed messages in parallel and stores the results.
func (r *Runner) send(ctx context.Context, alerts []Alert, now time.Time) {
	var work sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range alerts {
		a := &alerts[i]
		for _, owed := range a.due(now) {
			room <- struct{}{}
			work.Go(func() {
				defer func() { <-room }()
				failed := r.deliver(ctx, &a.Rule, owed)
				if failed != nil {
					r.log.Warn("alerts: not told", "alert", a.Name, "error", failed)
				}
				if failed != nil && ctx.Err() != nil {
					return // it is sent again, under the same id
				}
				sure, done := context.WithTimeout(context.WithoutCancel(ctx), within)
				defer done()
				if err := r.book.changeState(sure, a.Name, func(s State) State {
					s.settle(owed, now, failed)
					return s
				}); err != nil {
					r.log.Warn("alerts", "alert", a.Name, "error", err)
				}
			})
		}
	}
	work.Wait()
}

func (r *Runner) deliver(ctx context.Context, rule *Rule, owed Owed) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for i := range rule.To {
		if rule.To[i].Key() == owed.To {
			return r.book.sender.Send(ctx, &rule.To[i], owed.Message)
		}
		if rule.To[i].Address == "" {
			return notify.ErrSealed // the message may be for this receiver
		}
	}
	return nil // the rule no longer has this receiver
}

// gather reads only what the rules need.
func (r *Runner) gather(ctx context.Context, alerts []Alert, now time.Time) (f Facts, err error) {
	f = Facts{Now: now, Served: map[string]bool{}, Led: true}
	want, back := map[Kind]bool{}, time.Minute
	for _, a := range alerts {
		want[a.Kind] = true
		if a.Kind == Stalled {
			back = max(back, a.Over)
		}
	}
	if want[Oldest] || want[Stalled] || want[NoWorker] {
		var workers []store.Worker
		if f.Queues, workers, err = r.client.QueuesAndWorkers(ctx); err != nil {
			return f, err
		}
		if want[NoWorker] {
			if err := r.served(ctx, workers, f.Served); err != nil {
				return f, err
			}
		}
	}
	if want[Missed] {
		if f.Schedules, err = r.client.Schedules(ctx); err != nil {
			return f, err
		}
	}
	if want[Stalled] || want[Discarded] {
		from := now.Add(-back).Truncate(time.Minute)
		if f.Stats, err = r.client.Stats(ctx, store.StatsFilter{Bucket: time.Minute, From: from}); err != nil {
			return f, err
		}
	}
	if examiner, ok := store.As[store.Examiner](r.client.Store()); ok && want[NoLeader] {
		health, err := examiner.Examine(ctx)
		if err != nil {
			return f, fmt.Errorf("alerts: %w", err)
		}
		f.Led = health.Leader.Held
	}
	return f, nil
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
