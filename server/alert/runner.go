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
	"github.com/tuskqueue/tusk/server/shelf"
	"github.com/tuskqueue/tusk/store"
)

const (
	pause    = 5 * time.Second
	deadline = time.Minute // for one look
)

// Runner checks the rules and reports the results. Make one with New.
type Runner struct {
	book   *Book
	client *tusk.Client
	post   *herald.Post
	log    *slog.Logger
	every  time.Duration

	sending context.Context    // of the messages that are being sent; ends when the post is lost
	stop    context.CancelFunc // ends sending
	work    sync.WaitGroup
	room    chan struct{} // one place for each message that is being sent
	mu      sync.Mutex
	busy    map[string]bool // receivers that messages are being sent to, by key
}

// New returns a runner. If every is zero it is 5 s; if patience is zero it is herald.Patience.
func New(book *Book, client *tusk.Client, log *slog.Logger, every, patience time.Duration) *Runner {
	return &Runner{book: book, client: client, post: herald.New(client.Store(), post, tusk.NewID(), patience), log: log,
		every: cmp.Or(every, pause), stop: func() {}, room: make(chan struct{}, atOnce), busy: map[string]bool{}}
}

// Run checks the rules until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	shelf.Reseal(ctx, r.log, "alerts", r.book.Reseal)
	defer r.work.Wait()
	r.post.Serve(ctx, r.every, r.log, r.look)
}

// look judges all rules once, if this process holds the post, and starts to send what is owed.
func (r *Runner) look(ctx context.Context) error {
	running := ctx
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	busy := r.receiving() // read before the states, so that what arrives meanwhile is not sent again
	alerts, err := r.book.List(ctx)
	if err != nil || len(alerts) == 0 {
		return errors.Join(err, r.post.Release(ctx))
	}
	now, held, err := r.post.Hold(ctx)
	if err != nil || !held {
		r.stop()
		return err
	}
	began := time.Now()
	if r.sending == nil || r.sending.Err() != nil {
		r.sending, r.stop = context.WithCancel(running)
	}
	ctx, leave := r.post.Stay(ctx) // a look may take longer than the patience of other processes
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
	if ctx.Err() == nil {
		r.send(alerts, busy, now, began)
	}
	return err
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
