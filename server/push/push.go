// Package push sends the tasks of a queue to an endpoint: a URL that is called with a signed webhook, and whose
// response says how the attempt ended. It turns any program that can be reached by HTTP into a worker.
//
// It may use a tusk.Puller, the records of a store, and the addresses that package reach allows. Tasks come from the
// puller; verdicts go back to it.
package push

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/shelf"
)

const (
	refresh  = 2 * time.Second  // how soon a new endpoint is called
	lease    = 30 * time.Second // of a task, extended while its call runs
	patience = 20 * time.Second // how long one claim waits for tasks

	unreadable = "the endpoint's secret cannot be read: this server's key ring lacks its key: " +
		"add the key to --key-ring, or rotate the secret"

	lastPause = time.Minute // after an endpoint could not be reached many times
)

// Runner calls the endpoints. Make one with New; Run does the work.
type Runner struct {
	book   *Book
	puller *tusk.Puller
	client *http.Client
	log    *slog.Logger

	firstPause time.Duration // after an endpoint could not be reached

	mu      sync.Mutex
	senders map[string]*sender // by queue
}

// New returns a runner that takes its tasks from a puller, which has to be running.
func New(book *Book, puller *tusk.Puller, log *slog.Logger) *Runner {
	return &Runner{book: book, puller: puller, log: log, senders: map[string]*sender{}, client: book.guard.Client(),
		firstPause: time.Second}
}

// Status is the status of an endpoint, as this process sees it.
type Status struct {
	Running     int       // calls in progress
	Last        time.Time // the end of the latest call; zero if there was none
	Trouble     string    // why the endpoint is not called for a while; empty if it is called
	PausedUntil time.Time
}

// Status returns the status of a queue's endpoint.
func (r *Runner) Status(queue string) Status {
	r.mu.Lock()
	s := r.senders[queue]
	r.mu.Unlock()
	if s == nil {
		return Status{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Running: s.running, Last: s.last}
	if time.Now().Before(s.until) {
		status.Trouble, status.PausedUntil = s.trouble, s.until
	}
	return status
}

// Run calls endpoints until ctx ends. Calls in progress then have a moment to end; if they do not, their tasks go
// back to the queue.
func (r *Runner) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	defer r.client.CloseIdleConnections()
	shelf.Reseal(ctx, r.log, "push", r.book.Reseal)
	for {
		if docs, err := r.book.documents(ctx); err == nil {
			r.follow(ctx, docs, &work)
		} else if ctx.Err() == nil {
			r.log.Warn("push", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.book.changed:
		case <-time.After(refresh):
		}
	}
}

// follow starts a sender for each endpoint, and stops all others.
func (r *Runner) follow(ctx context.Context, docs []document, work *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := maps.Clone(r.senders)
	for _, d := range docs {
		s := r.senders[d.Queue]
		delete(gone, d.Queue)
		if s == nil {
			own, stop := context.WithCancel(ctx)
			s = &sender{Runner: r, stop: stop, wake: make(chan struct{}, 1), endpoint: d}
			r.senders[d.Queue] = s
			work.Go(func() { s.run(own) })
		}
		s.become(d)
	}
	for queue, s := range gone {
		s.stop()
		delete(r.senders, queue)
	}
}

// sender calls one endpoint.
type sender struct {
	*Runner
	stop context.CancelFunc
	wake chan struct{} // a call has ended, or the endpoint has moved

	mu        sync.Mutex
	endpoint  document
	running   int
	last      time.Time
	stopClaim context.CancelFunc // ends the claim in progress; nil before the first
	failures  int                // consecutive calls that did not reach the endpoint
	until     time.Time          // when it may be called again
	trouble   string
	state     herald.Delivery // as far as this process knows
	news      bool            // state is not stored

	noting sync.Mutex // held while state is stored
}

func (s *sender) become(d document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoint.URL != d.URL { // what is known is about another URL
		s.failures, s.until, s.trouble = 0, time.Time{}, ""
		s.state, s.news = herald.Delivery{}, false
		s.nudge()
	}
	s.endpoint = d
}

// run claims as many tasks as may be sent, until ctx ends.
func (s *sender) run(ctx context.Context) {
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var calls sync.WaitGroup
	for ctx.Err() == nil {
		d, room, wait := s.room()
		if room == 0 {
			s.pause(ctx, wait)
			continue
		}
		lent, err := s.claim(ctx, d.Queue, room)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, tusk.ErrShutdown) {
				s.log.Warn("push", "queue", d.Queue, "error", err)
			}
			s.pause(ctx, time.Second)
		}
		d, room, _ = s.room() // it may have changed while no task came
		for i, l := range lent {
			s.count(1)
			calls.Go(func() {
				defer s.count(-1)
				if i >= room {
					s.finish(hard, tusk.Verdict{Receipt: l.Receipt, Err: tusk.ErrShutdown}) // hand it back
					return
				}
				s.send(hard, &d, l)
			})
		}
	}
	timer := time.AfterFunc(parting, cut)
	defer timer.Stop()
	calls.Wait()
}

// claim waits for tasks until the endpoint asks for a pause or cannot be reached.
func (s *sender) claim(ctx context.Context, queue string, room int) ([]tusk.Lent, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.mu.Lock()
	s.stopClaim = stop
	paused := time.Now().Before(s.until)
	s.mu.Unlock()
	if paused {
		return nil, nil
	}
	return s.puller.Claim(ctx, tusk.Pull{Queues: []string{queue}, Limit: room, Lease: lease, Wait: patience})
}

// parting is how long calls may continue after the process was told to stop.
const parting = 8 * time.Second

// room returns how many tasks may be sent now, or how long to wait. An endpoint in trouble gets a single task as a
// test. An endpoint whose secret cannot be read gets none: another server may have the key.
func (s *sender) room() (d document, room int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.endpoint.usable(now)) == 0 {
		s.until, s.trouble = now.Add(2*refresh), unreadable
		return s.endpoint, 0, refresh
	}
	if wait = s.until.Sub(now); wait > 0 {
		return s.endpoint, 0, wait
	}
	room = s.endpoint.Concurrency - s.running
	if s.trouble != "" {
		room = min(room, 1-s.running)
	}
	return s.endpoint, max(room, 0), lastPause
}

// pause waits until a call ends, the endpoint moves, or d has passed.
func (s *sender) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-timer.C:
	}
}

func (s *sender) count(n int) {
	s.mu.Lock()
	s.running += n
	s.mu.Unlock()
	s.nudge()
}

// nudge ends a pause.
func (s *sender) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// heard records that the endpoint answered at a URL, and for how long it wants no more tasks.
func (s *sender) heard(url string, pause time.Duration, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	if s.endpoint.URL != url {
		return // it has moved
	}
	s.failures, s.trouble = 0, ""
	// Another process may have stored a failure that this answer ends.
	if s.state.Fails() || s.last.Sub(s.state.Arrived) > checkEvery {
		s.state, s.news = herald.Delivery{Arrived: s.last.UTC()}, true
	}
	if pause > 0 {
		s.until, s.trouble = time.Now().Add(pause), why
		s.stopClaim()
	}
}

// unheard records that the endpoint could not be reached. It is left alone, for longer each time, so that an outage
// does not use up the attempts of all tasks.
func (s *sender) unheard(url, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.last = now
	if s.endpoint.URL != url {
		return // it has moved
	}
	s.trouble = why
	if now.Before(s.until) {
		return // other calls in progress report the same
	}
	pause := min(s.firstPause<<min(s.failures, 10), lastPause)
	s.until = now.Add(pause)
	s.failures++
	s.state, s.news = herald.Delivery{Failed: now.UTC(), Error: cutError(why)}, true
	s.log.Warn("push: the endpoint is not reached, calls to it pause",
		"queue", s.endpoint.Queue, "error", why, "pause", pause)
	s.stopClaim()
}
