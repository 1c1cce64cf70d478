// Package hook tells programs which tasks have ended, by signed webhooks: at least once, and
// in order for each task. There is no outbox: a hook is a record with a cursor into what the
// engine tells of ends, so that a receiver that is dead fills nothing.
//
// It may touch a store.Historian, the records of a store, List, and package notify, to which
// webhooks go. One process holds the post and sends.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/store"
)

const (
	hookKind  = "hook"
	stateKind = "hook_state"
	post      = "hooks"
)

// The events.
const (
	Completed = "task.completed"
	Discarded = "task.discarded"
	Cancelled = "task.cancelled"
	Rescued   = "task.rescued"
)

// Events lists what hooks may ask for.
func Events() []string { return []string{Completed, Discarded, Cancelled, Rescued} }

// The bounds of hooks.
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

// Hook says which ends are told to whom.
type Hook struct {
	Name      string        `json:"name"`
	URL       string        `json:"url"`
	Events    []string      `json:"events,omitempty"` // none: discarded alone
	Queues    []string      `json:"queues,omitempty"` // none: all
	Keep      time.Duration `json:"keep"`             // events that could not be told for so long are dropped
	CreatedAt time.Time     `json:"created_at"`
	CreatedBy string        `json:"created_by"`
}

// document is a hook as it is stored.
type document struct {
	Hook
	Secret string          `json:"secret,omitempty"`
	Sealed json.RawMessage `json:"sealed,omitempty"`
	Start  string          `json:"start"` // the cursor from which it is told
}

// State is how a hook does.
type State struct {
	Cursor   string    `json:"cursor,omitempty"`
	Told     int64     `json:"told"`               // events that arrived
	Dropped  int64     `json:"dropped"`            // events that were given up
	Success  time.Time `json:"success,omitzero"`   // of the last call
	Oldest   time.Time `json:"oldest,omitzero"`    // when the first event that waits happened; zero: none waits
	Failed   time.Time `json:"failed,omitzero"`    // when a call last failed
	Error    string    `json:"error,omitempty"`    // why
	Failures int       `json:"failures,omitempty"` // in a row
	Next     time.Time `json:"next,omitzero"`      // when it is called again
	Through  time.Time `json:"through,omitzero"`   // when all ends were last known to be told
}

// Status is a hook and how it does.
type Status struct {
	Hook
	State
}

// Book keeps hooks as records of a store.
type Book struct {
	store  store.Store
	ring   *tusk.KeyRing
	sender *notify.Sender
}

// NewBook makes a book. With a key ring secrets are stored encrypted; it may be nil.
func NewBook(s store.Store, ring *tusk.KeyRing, sender *notify.Sender) *Book {
	return &Book{s, ring, sender}
}

// Supported reports whether the engine tells the ends of tasks.
func (b *Book) Supported() bool {
	_, ok := store.As[store.Historian](b.store)
	return ok
}

func (b *Book) documents(ctx context.Context) ([]document, error) {
	records, err := b.store.Records(ctx, hookKind)
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	docs := make([]document, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.Body, &docs[i]); err != nil {
			return nil, fmt.Errorf("hook %s: %w", r.Name, err)
		}
	}
	slices.SortFunc(docs, func(x, y document) int { return strings.Compare(x.Name, y.Name) })
	return docs, nil
}

// List returns the hooks by name.
func (b *Book) List(ctx context.Context) ([]Status, error) {
	docs, err := b.documents(ctx)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	states, err := b.states(ctx)
	all := make([]Status, len(docs))
	for i, d := range docs {
		all[i] = Status{d.Hook, states[d.Name]}
	}
	return all, err
}

func (b *Book) states(ctx context.Context) (map[string]State, error) {
	records, err := b.store.Records(ctx, stateKind)
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	states := map[string]State{}
	for _, r := range records {
		var s State
		if err := json.Unmarshal(r.Body, &s); err != nil {
			return nil, fmt.Errorf("hook %s: %w", r.Name, err)
		}
		states[r.Name] = s
	}
	return states, nil
}

// Get returns one hook. The error is ErrNotFound when there is none of that name.
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

// Watched is when a process last looked after the hooks; zero: none does.
func (b *Book) Watched(ctx context.Context) (time.Time, error) {
	return herald.Seen(ctx, b.store, post)
}

// Put creates a hook, which is told what ends from then on, or changes one. The secret is
// that of a new one, which nobody can show again.
//
// Errors: ErrInvalid; ErrUnsupported; notify.ErrTarget for a URL that may not be called.
func (b *Book) Put(ctx context.Context, h Hook, by string) (secret string, stored Hook, err error) {
	historian, ok := store.As[store.Historian](b.store)
	if !ok {
		return "", h, ErrUnsupported
	}
	if err := b.complete(&h); err != nil {
		return "", h, err
	}
	start, err := historian.Follow(ctx, true)
	if err != nil {
		return "", h, err
	}
	err = b.change(ctx, hookKind, h.Name, func(body []byte, others int) ([]byte, error) {
		d := document{}
		switch {
		case body != nil:
			if err := json.Unmarshal(body, &d); err != nil {
				return nil, err
			}
		case others >= MaxHooks:
			return nil, fmt.Errorf("%w: at most %d hooks", ErrInvalid, MaxHooks)
		default:
			secret = push.NewSecret()
			d = document{Hook: Hook{CreatedAt: time.Now().UTC().Truncate(time.Second), CreatedBy: by}, Secret: secret, Start: start}
			if b.ring != nil {
				if d.Sealed, err = b.ring.Encrypt([]byte(secret), "hook "+h.Name); err != nil {
					return nil, err
				}
				d.Secret = ""
			}
		}
		h.CreatedAt, h.CreatedBy = d.CreatedAt, d.CreatedBy
		d.Hook = h
		return json.Marshal(d)
	})
	return secret, h, err
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
			return fmt.Errorf("%w: events: want some of %v", ErrInvalid, Events())
		}
	}
	for _, q := range h.Queues {
		if err := tusk.ValidateName("queue", q); err != nil {
			return err
		}
	}
	if h.Keep < time.Minute || h.Keep > MaxKeep || len(h.Queues) > 100 {
		return fmt.Errorf("%w: keep: want 1m to %v; at most 100 queues", ErrInvalid, MaxKeep)
	}
	return b.sender.Check(&notify.Receiver{Via: notify.Webhook, Address: h.URL})
}

// Remove forgets a hook. With the last one, the engine keeps ends no longer.
func (b *Book) Remove(ctx context.Context, name string) error {
	last := false
	err := b.change(ctx, hookKind, name, func(body []byte, others int) ([]byte, error) {
		if last = others == 1; body == nil {
			return nil, ErrNotFound
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	if historian, ok := store.As[store.Historian](b.store); ok && last {
		_, err = historian.Follow(ctx, false)
	}
	return errors.Join(err, b.change(ctx, stateKind, name, func([]byte, int) ([]byte, error) { return nil, nil }))
}

// secret is what signs the calls of a hook.
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

// change reads a record, changes it and writes it until nobody came between.
func (b *Book) change(ctx context.Context, kind, name string, do func(body []byte, others int) ([]byte, error)) error {
	for {
		records, err := b.store.Records(ctx, kind)
		if err != nil {
			return fmt.Errorf("hook %s: %w", name, err)
		}
		r := store.Record{Kind: kind, Name: name}
		for _, stored := range records {
			if stored.Name == name {
				r = stored
			}
		}
		before := r.Body
		if r.Body, err = do(r.Body, len(records)); err != nil {
			return err
		}
		if bytes.Equal(before, r.Body) && (r.Body == nil) == (before == nil) {
			return nil
		}
		if _, _, err = b.store.PutRecord(ctx, store.PutRecord{Record: r}); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
