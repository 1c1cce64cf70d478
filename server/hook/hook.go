// Package hook notifies programs of tasks that have ended, with signed webhooks: at least once, and in order for each
// task. There is no outbox. A hook is a record with a cursor into the ends that the engine keeps, so a dead receiver
// does not fill a table.
//
// This package may use a store.Historian, the records of a store, List, and package notify, which sends its webhooks.
// The one process that holds the post sends.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/shelf"
	"github.com/tuskqueue/tusk/store"
)

const (
	hookKind  = "hook"
	stateKind = herald.HookState
	post      = "hooks"
)

// Types of events.
const (
	Completed = "task.completed"
	Discarded = "task.discarded"
	Cancelled = "task.cancelled"
	Rescued   = "task.rescued"
)

// Events lists the events that hooks can request.
func Events() []string { return []string{Completed, Discarded, Cancelled, Rescued} }

// Limits of hooks.
const (
	MaxHooks    = 50
	DefaultKeep = 24 * time.Hour
	MaxKeep     = 7 * 24 * time.Hour
)

// Errors that a caller can act on.
var (
	ErrInvalid     = errors.New("invalid hook")
	ErrNotFound    = errors.New("there is no such hook")
	ErrUnsupported = fmt.Errorf("%w: this engine does not tell the ends of tasks", store.ErrUnsupported)
)

// Hook says which ends are reported to which URL.
type Hook struct {
	Name      string        `json:"name"`
	URL       string        `json:"url"`
	Events    []string      `json:"events,omitempty"` // empty means only discarded
	Queues    []string      `json:"queues,omitempty"` // empty means all
	Keep      time.Duration `json:"keep"`             // undelivered events are dropped after this time
	CreatedAt time.Time     `json:"created_at"`
	CreatedBy string        `json:"created_by"`
}

// document is a hook in its stored form.
type document struct {
	Hook
	Secret string          `json:"secret,omitempty"`
	Sealed json.RawMessage `json:"sealed,omitempty"`
	Start  string          `json:"start"` // the cursor at which the hook begins
}

// State is the progress of a hook.
type State struct {
	herald.Delivery
	Start  string `json:"start,omitempty"` // of the hook; a later hook of the same name has another one
	Cursor string `json:"cursor,omitempty"`
	// Done is how many ends after the cursor have been dealt with.
	Done     int       `json:"done,omitempty"`
	Count    int64     `json:"count"`              // delivered events
	Failures int       `json:"failures,omitempty"` // consecutive failures
	Next     time.Time `json:"next,omitzero"`      // time of the next call
	Through  time.Time `json:"through,omitzero"`   // when it was last known that all ends were reported
}

// Status is a hook and its state.
type Status struct {
	Hook
	State
}

// Book stores hooks as records of a store.
type Book struct {
	store  store.Store
	ring   *tusk.KeyRing
	sender *notify.Sender
}

// NewBook returns a book. With a key ring, which may be nil, secrets are stored encrypted.
func NewBook(s store.Store, ring *tusk.KeyRing, sender *notify.Sender) *Book {
	return &Book{s, ring, sender}
}

// Supported reports whether the engine can report ends of tasks.
func (b *Book) Supported() bool {
	_, ok := store.As[store.Historian](b.store)
	return ok
}

func (b *Book) documents(ctx context.Context) ([]document, error) {
	all, err := shelf.All[document](ctx, b.store, hookKind)
	docs := slices.Collect(maps.Values(all))
	slices.SortFunc(docs, func(x, y document) int { return strings.Compare(x.Name, y.Name) })
	return docs, err
}

// List returns the hooks by name.
func (b *Book) List(ctx context.Context) ([]Status, error) {
	docs, err := b.documents(ctx)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	states, err := b.states(ctx, docs)
	all := make([]Status, len(docs))
	for i, d := range docs {
		all[i] = Status{d.Hook, states[d.Name]}
	}
	return all, err
}

// states returns the states of hooks. It ignores the state of a removed hook if a later hook has the same name.
func (b *Book) states(ctx context.Context, docs []document) (map[string]State, error) {
	states, err := shelf.All[State](ctx, b.store, stateKind)
	for _, d := range docs {
		s := states[d.Name]
		if s.Cursor == "" || s.Start != "" && s.Start != d.Start {
			s = State{Cursor: d.Start}
		}
		if s.Start = d.Start; err == nil {
			states[d.Name] = s
		}
	}
	return states, err
}

// Get returns one hook. The error is ErrNotFound if there is none of that name.
func (b *Book) Get(ctx context.Context, name string) (Status, error) {
	all, err := b.List(ctx)
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	if err == nil {
		err = ErrNotFound
	}
	return Status{}, err
}

// Watched returns when a process last worked on the hooks; zero if none does.
func (b *Book) Watched(ctx context.Context) (time.Time, error) {
	return herald.Seen(ctx, b.store, post)
}

// Put creates a hook, which gets the ends from then on, or changes one. The secret is that of a new hook and cannot
// be shown again. After an error, nothing is stored, unless the database's answer was lost, or a new hook could not be
// removed again: List shows whether it is there.
//
// Errors: ErrInvalid; ErrUnsupported; notify.ErrTarget if the URL may not be called; notify.ErrSealed if the stored
// secret cannot be read.
func (b *Book) Put(ctx context.Context, h Hook, by string) (secret string, stored Status, err error) {
	historian, ok := store.As[store.Historian](b.store)
	if !ok {
		return "", stored, ErrUnsupported
	}
	if err := b.complete(&h); err != nil {
		return "", stored, err
	}
	if stored.State, err = b.stateBefore(ctx, h.Name); err != nil {
		return "", stored, err
	}
	start, err := historian.Follow(ctx, true)
	if err != nil {
		return "", stored, err
	}
	made := false
	err = shelf.Change(ctx, b.store, hookKind, h.Name, func(d *document, exists bool) (bool, error) {
		made, secret = !exists, ""
		if !exists {
			d.CreatedAt, d.CreatedBy, d.Start = time.Now().UTC().Truncate(time.Second), by, start
		}
		if _, err := b.secret(d); err != nil {
			return false, err // a new secret would replace one that may still work
		}
		if !exists {
			secret = push.NewSecret()
			if err := b.seal(d, h.Name, secret); err != nil {
				return false, err
			}
		}
		h.CreatedAt, h.CreatedBy = d.CreatedAt, d.CreatedBy
		d.Hook, stored.Hook = h, h
		return true, nil
	})
	if err != nil || !made {
		return secret, stored, err
	}
	// The last other hook may have been removed meanwhile, so that the engine keeps no ends. If that cannot be repaired,
	// the new hook is removed again, because nobody would see its secret.
	sure, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err = historian.Follow(sure, true); err != nil {
		return "", stored, errors.Join(err, shelf.Remove(sure, b.store, hookKind, h.Name))
	}
	return secret, stored, nil
}

// stateBefore returns the state of a hook that is about to be stored. If the hook is new, it checks that there is room
// for it, and deletes what a removed hook of that name has left behind.
func (b *Book) stateBefore(ctx context.Context, name string) (State, error) {
	all, err := b.List(ctx)
	if err != nil {
		return State{}, err
	}
	if k := slices.IndexFunc(all, func(s Status) bool { return s.Name == name }); k >= 0 {
		return all[k].State, nil
	}
	if len(all) >= MaxHooks {
		return State{}, fmt.Errorf("%w: there are %d hooks, and no more are allowed: remove one first", ErrInvalid, MaxHooks)
	}
	return State{}, shelf.Remove(ctx, b.store, stateKind, name)
}

// seal stores the secret in a hook, encrypted if there is a key ring.
func (b *Book) seal(d *document, name, secret string) (err error) {
	if b.ring == nil {
		d.Secret, d.Sealed = secret, nil
		return nil
	}
	d.Secret = ""
	d.Sealed, err = b.ring.Encrypt([]byte(secret), "hook "+name)
	return err
}

// Reseal encrypts secrets that are stored in plain text or with another key with the primary key, so that the other
// key can be removed. The error names the hooks whose secret cannot be read.
func (b *Book) Reseal(ctx context.Context) error {
	if b.ring == nil {
		return nil
	}
	docs, err := b.documents(ctx)
	for _, d := range docs {
		if b.ring.IsCurrent(d.Sealed) {
			continue
		}
		err = errors.Join(err, shelf.Change(ctx, b.store, hookKind, d.Name,
			func(d *document, exists bool) (bool, error) {
				if !exists {
					return false, nil
				}
				secret, err := b.secret(d)
				if err != nil {
					return true, fmt.Errorf("hook %s: %w", d.Name, err)
				}
				return true, b.seal(d, d.Name, secret)
			}))
	}
	return err
}

func (b *Book) complete(h *Hook) error {
	if err := tusk.ValidateName("hook", h.Name); err != nil {
		return err
	}
	if h.Keep == 0 {
		h.Keep = DefaultKeep
	}
	if len(h.Events) == 0 {
		h.Events = []string{Discarded}
	}
	for _, e := range h.Events {
		if !slices.Contains(Events(), e) {
			return fmt.Errorf("%w: events: %q is none: want %s", ErrInvalid, e, words.Either(Events()))
		}
	}
	for _, q := range h.Queues {
		if err := tusk.ValidateName("queue", q); err != nil {
			return err
		}
	}
	if h.Keep < time.Minute || h.Keep > MaxKeep || len(h.Queues) > 100 {
		return fmt.Errorf("%w: keep: want 1m to %s; at most 100 queues", ErrInvalid, duration.Text(MaxKeep))
	}
	return b.sender.Check(&notify.Receiver{Via: notify.Webhook, Address: h.URL})
}

// Remove deletes a hook. After the last one, the engine stops keeping ends.
func (b *Book) Remove(ctx context.Context, name string) error {
	docs, err := b.documents(ctx)
	if err != nil {
		return err
	}
	err = shelf.Change(ctx, b.store, hookKind, name, func(_ *document, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	if historian, ok := store.As[store.Historian](b.store); ok && len(docs) == 1 {
		err = b.unfollow(ctx, historian)
	}
	return errors.Join(err, shelf.Remove(ctx, b.store, stateKind, name))
}

// unfollow makes the engine keep no more ends, unless a hook is created at the same time.
func (b *Book) unfollow(ctx context.Context, historian store.Historian) error {
	if _, err := historian.Follow(ctx, false); err != nil {
		return err
	}
	left, err := b.documents(ctx)
	if len(left) > 0 {
		_, err = historian.Follow(ctx, true)
	}
	return err
}

// secret returns the secret that signs the calls of a hook.
func (b *Book) secret(d *document) (string, error) {
	if d.Sealed == nil {
		return d.Secret, nil
	}
	text, err := b.ring.Decrypt(d.Sealed, "hook "+d.Name)
	if err != nil {
		return "", notify.ErrSealed
	}
	return string(text), nil
}
