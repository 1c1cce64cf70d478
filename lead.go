package tusk

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// newLeader makes the worker a candidate for leader.
func (w *Worker) newLeader() *tend.Leader {
	return newLeader(w.client, w.config, func(o store.Outcome) {
		if w.events.any.Load() {
			e := eventOf(&o)
			e.Kind = EventRescued
			w.events.send(e)
		}
	})
}

func newLeader(c *Client, config WorkerConfig, rescued func(store.Outcome)) *tend.Leader {
	o := tend.Options{ID: NewID(), TTL: leaderTTL(c.store, config.Lease), RescueEvery: time.Second, NewID: NewID,
		Log: config.Logger,
		Rescued: func(o store.Outcome) {
			c.ended([]store.Outcome{o}, nil)
			rescued(o)
		},
		Retention: func() store.Retention { return config.Retention }}
	o.Outage = max(config.Lease/3, o.TTL)
	if witnesses(c.store) {
		o.RescueEvery = time.Second / 2
	}
	if engine, ok := store.As[store.Maintainer](c.store); ok {
		o.Maintain = engine.Maintain
	}
	if engine, ok := store.As[store.Overseer](c.store); ok {
		o.Oversee = engine.Oversee
	}
	o.Prompt = prompt(c.store)
	return tend.New(wakingStore{c.store, c}, o)
}

// leaderTTL is how long there is no leader after a leader was killed. It is shorter than the leases that a new leader
// has to rescue. On an engine that detects the death of a process, it does not delay the rescue beyond that
// detection.
func leaderTTL(s store.Store, lease time.Duration) time.Duration {
	if witnesses(s) {
		return min(max(lease/2, time.Second), 3*time.Second)
	}
	return min(max(lease/2, time.Second), 10*time.Second)
}

// witnesses reports whether an engine detects the death of a worker's process before its lease expires.
func witnesses(s store.Store) bool {
	w, ok := store.As[store.Witness](s)
	return ok && w.Witnesses()
}

// Leader is a candidate for leader that runs no tasks. It is meant for a server process whose workers, in other
// processes, never lead. Create one with Client.NewLeader.
type Leader struct {
	leader *tend.Leader
	store  store.Store
	log    *slog.Logger
}

// NewLeader creates a Leader. Only the retention and the logger of config are used; config may be nil.
func (c *Client) NewLeader(config *WorkerConfig) (*Leader, error) {
	var given WorkerConfig
	if config != nil {
		given = *config
	}
	full, err := complete(given, c)
	if err != nil {
		return nil, err
	}
	return &Leader{newLeader(c, full, func(store.Outcome) {}), c.store, full.Logger}, nil
}

// Run does the leader's work until ctx ends. A Leader runs only once.
func (l *Leader) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	work := newCrew(hard)
	work.loops(l.leader.Loops()...)
	work.run(func() { listen(work.soft, l.store, l.log, l.leader.Hear) })
	<-ctx.Done()
	work.stopWithin(cutAfter)
	parting, done := context.WithTimeout(hard, partingGap)
	defer done()
	return l.leader.Resign(parting)
}

// Health returns, for each of the leader's loops, the time since it last succeeded.
func (l *Leader) Health() map[string]time.Duration {
	ages := map[string]time.Duration{}
	for _, loop := range l.leader.Loops() {
		ages[loop.Name] = loop.Age()
	}
	return ages
}

// Lead calls NewLeader and Run.
func (c *Client) Lead(ctx context.Context, config *WorkerConfig) error {
	l, err := c.NewLeader(config)
	if err != nil {
		return err
	}
	return l.Run(ctx)
}

// prompt returns a function that reports whether an engine's hints come at once, or nil if that is unknown.
func prompt(s store.Store) func() bool {
	if engine, ok := store.As[store.Prompter](s); ok {
		return engine.Prompt
	}
	return nil
}

// hear handles a hint that queues may have tasks, once the settings are recent enough, and informs the leader. It
// ignores hints about queues that the worker takes no tasks from: engines send hints about all queues to all processes.
func (w *Worker) hear(h store.Hint) {
	if w.leader != nil {
		w.leader.Hear(h)
	}
	own := slices.DeleteFunc(slices.Clone(h.Queues), func(q string) bool { return !slices.Contains(w.config.Queues, q) })
	if (h.Open() || len(own) > 0) && !w.queues.hear() {
		w.source.Hint(own...)
	}
}

// listen passes the engine's hints to hear. It replaces a listener that fails; polling continues meanwhile.
func listen(ctx context.Context, s store.Store, log *slog.Logger, hear func(store.Hint)) {
	engine, ok := store.As[store.Notifier](s)
	for ok && ctx.Err() == nil {
		err := engine.Listen(ctx, hear)
		if ctx.Err() != nil {
			return
		}
		log.Warn("listen: going on by polling", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
