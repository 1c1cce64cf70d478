package alert

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
	"github.com/tuskqueue/tusk/store"
)

const (
	ruleKind  = "alert"
	stateKind = "alert_state"
	post      = "alerts"
)

// Book keeps rules, and how they stand, as records of a store.
type Book struct {
	store  store.Recorder
	ring   *tusk.KeyRing
	sender *notify.Sender
}

// NewBook makes a book. With a key ring secrets are stored encrypted; it may be nil. The
// sender judges receivers.
func NewBook(s store.Recorder, ring *tusk.KeyRing, sender *notify.Sender) *Book {
	return &Book{s, ring, sender}
}

// read decodes a rule; write encodes one.
func (b *Book) read(body []byte, r *Rule) error {
	if err := json.Unmarshal(body, r); err != nil {
		return err
	}
	for i := range r.To {
		r.To[i].Open(b.ring, purpose(r.Name))
	}
	return nil
}

func (b *Book) write(r Rule) ([]byte, error) {
	r.To = slices.Clone(r.To)
	for i := range r.To {
		if err := r.To[i].Seal(b.ring, purpose(r.Name)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(r)
}

func purpose(name string) string { return "alert " + name }

// Alert is a rule and how it stands.
type Alert struct {
	Rule
	State
}

// List returns the alerts by name.
func (b *Book) List(ctx context.Context) ([]Alert, error) {
	rules, err := b.store.Records(ctx, ruleKind)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if len(rules) == 0 {
		return nil, nil
	}
	states, err := b.store.Records(ctx, stateKind)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	all := make([]Alert, len(rules))
	for i, r := range rules {
		if err := b.read(r.Body, &all[i].Rule); err != nil {
			return nil, fmt.Errorf("alert %s: %w", r.Name, err)
		}
		for _, s := range states {
			if s.Name == r.Name {
				if err := json.Unmarshal(s.Body, &all[i].State); err != nil {
					return nil, fmt.Errorf("alert %s: %w", r.Name, err)
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y Alert) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}

// Get returns one alert. The error is ErrNotFound when there is none of that name.
func (b *Book) Get(ctx context.Context, name string) (Alert, error) {
	all, err := b.List(ctx)
	for _, a := range all {
		if a.Name == name {
			return a, nil
		}
	}
	if err == nil {
		err = ErrNotFound
	}
	return Alert{}, err
}

// Watched is when a process last looked at the rules; zero: none does.
func (b *Book) Watched(ctx context.Context) (time.Time, error) {
	return herald.Seen(ctx, b.store, post)
}

// Put creates a rule or changes the one of that name. Without receivers, those that it had
// stay; so does a mute. The secret is that of a first webhook, which nobody can show again.
//
// Errors: ErrInvalid; notify.ErrTarget for an address that may not be called.
func (b *Book) Put(ctx context.Context, r Rule, by string) (secret string, stored Rule, err error) {
	if err := r.complete(); err != nil {
		return "", r, err
	}
	for i := range r.To {
		if err := b.sender.Check(&r.To[i]); err != nil {
			return "", r, err
		}
	}
	if _, err := b.Get(ctx, r.Name); errors.Is(err, ErrNotFound) { // what is left of one that was removed
		if err := b.change(ctx, stateKind, r.Name, func([]byte, int) ([]byte, error) { return nil, nil }); err != nil {
			return "", r, err
		}
	}
	given := r.To
	err = b.change(ctx, ruleKind, r.Name, func(body []byte, others int) ([]byte, error) {
		var old Rule
		if body == nil && others >= MaxRules {
			return nil, fmt.Errorf("%w: at most %d alerts", ErrInvalid, MaxRules)
		}
		if body != nil {
			if err := b.read(body, &old); err != nil {
				return nil, err
			}
		}
		r.CreatedAt, r.CreatedBy, r.MutedUntil = old.CreatedAt, old.CreatedBy, old.MutedUntil
		if body == nil {
			r.CreatedAt, r.CreatedBy = time.Now().UTC().Truncate(time.Second), by
		}
		if r.To = given; len(given) == 0 {
			r.To = old.To
		}
		if len(r.To) == 0 {
			return nil, fmt.Errorf("%w: it needs a receiver: Slack, a webhook, or mail", ErrInvalid)
		}
		r.To, secret = notify.Signed(r.To, old.To)
		return b.write(r)
	})
	return secret, r, err
}

// Remove forgets a rule. If it fires, nobody is told that it is over.
func (b *Book) Remove(ctx context.Context, name string) error {
	err := b.change(ctx, ruleKind, name, func(body []byte, _ int) ([]byte, error) {
		if body == nil {
			return nil, ErrNotFound
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	return b.change(ctx, stateKind, name, func([]byte, int) ([]byte, error) { return nil, nil })
}

// Mute keeps a rule from telling that something began, for a while; 0 ends that. What
// still holds then is told then. The end of what was told before is told at once.
func (b *Book) Mute(ctx context.Context, name string, span time.Duration) error {
	if span < 0 || span > MaxSpan {
		return fmt.Errorf("%w: mute: want 0s to %v", ErrInvalid, MaxSpan)
	}
	return b.change(ctx, ruleKind, name, func(body []byte, _ int) ([]byte, error) {
		var r Rule
		if body == nil {
			return nil, ErrNotFound
		}
		if err := b.read(body, &r); err != nil {
			return nil, err
		}
		if r.MutedUntil = (time.Time{}); span > 0 {
			r.MutedUntil = time.Now().UTC().Add(span).Truncate(time.Second)
		}
		return b.write(r)
	})
}

// Test has the process that watches send a message to each receiver of a rule. Arrived
// tells what became of it.
func (b *Book) Test(ctx context.Context, name string) (id string, err error) {
	a, err := b.Get(ctx, name)
	if err != nil {
		return "", err
	}
	id = tusk.NewID().String()
	err = b.changeState(ctx, name, func(s State) State {
		return s.Test(&a.Rule, time.Now(), func() string { return id })
	})
	return id, err
}

// Arrived says whether a test is over, and how. Pending means that no process has sent it
// yet.
func (b *Book) Arrived(ctx context.Context, name, id string) (over bool, trouble string, err error) {
	a, err := b.Get(ctx, name)
	if err != nil {
		return false, "", err
	}
	if slices.ContainsFunc(a.Owed, func(o Owed) bool { return o.Message.ID == id }) {
		return false, "", nil
	}
	if !a.Failed.IsZero() && !a.Failed.Before(a.Sent) {
		trouble = a.Error
	}
	return true, trouble, nil
}

func (b *Book) changeState(ctx context.Context, name string, do func(State) State) error {
	return b.change(ctx, stateKind, name, func(body []byte, _ int) ([]byte, error) {
		var s State
		if body != nil {
			if err := json.Unmarshal(body, &s); err != nil {
				return nil, err
			}
		}
		return json.Marshal(do(s))
	})
}

// change reads a record, changes it and writes it until nobody came between. A nil body is
// that of a record that does not exist.
func (b *Book) change(ctx context.Context, kind, name string, do func(body []byte, others int) ([]byte, error)) error {
	for {
		records, err := b.store.Records(ctx, kind)
		if err != nil {
			return fmt.Errorf("alert %s: %w", name, err)
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
