package alert

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/shelf"
)

const (
	pause    = 5 * time.Second
	deadline = 2 * time.Minute // for one look
)

// Runner checks the rules and reports the results. Make one with New.
type Runner struct {
	book   *Book
	client *tusk.Client
	post   *herald.Post
	log    *slog.Logger
	every  time.Duration
	ends   ends

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
	facts, unknown, err := r.gather(ctx, alerts, now)
	for i := range alerts {
		a := &alerts[i]
		if unknown[a.Kind] && (a.Kind != Stalled || facts.Ended[a.Over] == nil) {
			continue // its state stays as it is
		}
		found := Judge(&a.Rule, &facts)
		err = errors.Join(err, r.book.changeState(ctx, a.Name, func(s State) State {
			a.State = s.Next(&a.Rule, found, now, func() string { return tusk.NewID().String() })
			return a.State
		}))
	}
	if ctx.Err() == nil {
		r.send(alerts, busy, now, began)
	}
	return err
}
