// Package herald elects the one process that sends alerts or webhooks. The post is a record. Its holder rewrites it
// regularly; if it has not changed for a while, another process takes the post over.
//
// The post is not the leadership: the leader may be a worker without access to the network, and the lack of a leader
// must be reported, too.
package herald

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const recordKind = "herald"

// Delivery is the delivery status of an alert, a hook or an endpoint. It is part of its stored state. That of an
// endpoint has only Failed, Error, and when it answered again, and exists only after a failure.
type Delivery struct {
	Arrived time.Time `json:"arrived,omitzero"` // when a message was last delivered
	Waits   time.Time `json:"waits,omitzero"`   // since when the first undelivered message waits; zero if none waits
	Dropped int64     `json:"dropped"`          // messages that were given up
	Failed  time.Time `json:"failed,omitzero"`  // when a delivery last failed
	Error   string    `json:"error,omitempty"`  // why it failed
}

// Fails reports whether nothing was delivered since a delivery failed.
func (d Delivery) Fails() bool { return d.Failed.After(d.Arrived) }

// Kinds of the records that store delivery states.
const (
	AlertState    = "alert_state"
	HookState     = "hook_state"
	EndpointState = "endpoint_state"
)

// Receiver is an alert, a hook or an endpoint, and the delivery status of its messages.
type Receiver struct {
	Kind, Name string // Kind is alert, hook or endpoint; an endpoint is named after its queue
	Delivery
}

// Receivers returns the alerts and hooks, by kind and name. It leaves out states whose alert or hook was removed.
func Receivers(ctx context.Context, s store.Recorder) ([]Receiver, error) {
	alerts, err := receivers(ctx, s, "alert", AlertState)
	if err != nil {
		return nil, err
	}
	hooks, err := receivers(ctx, s, "hook", HookState)
	return append(alerts, hooks...), err
}

// Endpoints returns the endpoints that a call has ever failed to reach, by queue.
func Endpoints(ctx context.Context, s store.Recorder) ([]Receiver, error) {
	return receivers(ctx, s, "endpoint", EndpointState)
}

func receivers(ctx context.Context, s store.Recorder, kind, state string) (all []Receiver, err error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: state})
	if err != nil {
		return nil, fmt.Errorf("receivers: %w", err)
	}
	owners, err := s.Records(ctx, store.RecordFilter{Kind: kind})
	if err != nil {
		return nil, fmt.Errorf("receivers: %w", err)
	}
	for _, r := range records {
		if !slices.ContainsFunc(owners, func(o store.Record) bool { return o.Name == r.Name }) {
			continue
		}
		one := Receiver{Kind: kind, Name: r.Name}
		if err := json.Unmarshal(r.Body, &one.Delivery); err != nil {
			return nil, fmt.Errorf("receivers: %s %s: %w", kind, r.Name, err)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Receiver) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Patience is how long a holder may be silent before another process takes over its post.
const Patience = 15 * time.Second

// Post is what one process knows about a post.
type Post struct {
	store    store.Recorder
	name     string
	id       store.ID
	patience time.Duration

	seen  int64     // version of the record when last read
	since time.Time // when that version was first seen
	own   int64     // the version that this process wrote; 0 if it does not hold the post
}

// New returns a candidate for a post. If patience is zero it is Patience.
func New(s store.Recorder, name string, id store.ID, patience time.Duration) *Post {
	if patience == 0 {
		patience = Patience
	}
	return &Post{store: s, name: name, id: id, patience: patience}
}

type document struct {
	Holder store.ID `json:"holder"`
}

// Hold takes or keeps the post. It returns the database's time, and whether this process now holds the post.
func (p *Post) Hold(ctx context.Context) (now time.Time, held bool, err error) {
	r, err := p.read(ctx)
	if err != nil {
		return now, false, err
	}
	if r.Version != p.seen {
		p.seen, p.since = r.Version, time.Now()
	}
	if r.Version != 0 && r.Version != p.own && time.Since(p.since) < p.patience {
		p.own = 0
		return now, false, nil
	}
	if r.Body, err = json.Marshal(document{p.id}); err != nil {
		return now, false, err
	}
	version, _, err := p.store.PutRecord(ctx, store.PutRecord{Record: r})
	if errors.Is(err, store.ErrConflict) {
		p.own = 0
		return now, false, nil
	}
	if err != nil {
		return now, false, fmt.Errorf("post of %s: %w", p.name, err)
	}
	p.own, p.seen, p.since = version, version, time.Now()
	if r, err = p.read(ctx); err != nil || r.Version != version {
		return now, false, err
	}
	return r.UpdatedAt, true, nil
}

// Stay keeps the post until leave is called. If the post is lost, the returned context ends, so that no two processes
// send for long. Nothing else may be done with the post meanwhile.
func (p *Post) Stay(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(p.patience / 4):
			}
			within, done := context.WithTimeout(ctx, p.patience/4)
			_, held, err := p.Hold(within)
			if done(); err != nil || !held {
				return
			}
		}
	}()
	return ctx, func() { cancel(); <-gone }
}

// Release gives up the post, so that another process need not wait.
func (p *Post) Release(ctx context.Context) error {
	if p.own == 0 {
		return nil
	}
	_, _,
		err := p.store.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: recordKind, Name: p.name, Version: p.own}})
	p.own = 0
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// Serve calls round again and again until ctx ends, and then gives up the post. If a round fails or panics, that is
// logged, and the next round follows as usual.
func (p *Post) Serve(ctx context.Context, every time.Duration, log *slog.Logger, round func(context.Context) error) {
	for ctx.Err() == nil {
		if err := safely(ctx, round); err != nil && ctx.Err() == nil {
			log.Warn(p.name, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
	parting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.Release(parting); err != nil {
		log.Warn(p.name, "error", err)
	}
}

func safely(ctx context.Context, round func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return round(ctx)
}

// Seen returns when the holder of a post last wrote it, by the database's clock, or zero if nobody holds it.
func Seen(ctx context.Context, s store.Recorder, name string) (time.Time, error) {
	r, err := (&Post{store: s, name: name}).read(ctx)
	return r.UpdatedAt, err
}

func (p *Post) read(ctx context.Context) (store.Record, error) {
	records, err := p.store.Records(ctx, store.RecordFilter{Kind: recordKind})
	if err != nil {
		return store.Record{}, fmt.Errorf("post of %s: %w", p.name, err)
	}
	for _, r := range records {
		if r.Name == p.name {
			return r, nil
		}
	}
	return store.Record{Kind: recordKind, Name: p.name}, nil
}
