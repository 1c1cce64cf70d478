package alert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/shelf"
	"github.com/tuskqueue/tusk/store"
)

const (
	ruleKind  = "alert"
	stateKind = herald.AlertState
	post      = "alerts"
)

// Book stores rules and their states as records of a store.
type Book struct {
	store  store.Recorder
	ring   *tusk.KeyRing
	sender *notify.Sender
}

// NewBook returns a book. With a key ring, which may be nil, secrets are stored encrypted. The sender checks
// receivers.
func NewBook(s store.Recorder, ring *tusk.KeyRing, sender *notify.Sender) *Book {
	return &Book{s, ring, sender}
}

// open decrypts the secrets of a rule's receivers. sealed returns a rule in its stored form.
func (b *Book) open(r *Rule) {
	for i := range r.To {
		r.To[i].Open(b.ring, purpose(r.Name))
	}
}

func (b *Book) sealed(r Rule) (Rule, error) {
	r.To = slices.Clone(r.To)
	for i := range r.To {
		if err := r.To[i].Seal(b.ring, purpose(r.Name)); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Reseal encrypts secrets that are stored in plain text or with another key with the primary key, so that the other
// key can be removed. The error names the alerts with a secret that cannot be read.
func (b *Book) Reseal(ctx context.Context) error {
	if b.ring == nil {
		return nil
	}
	rules, err := shelf.All[Rule](ctx, b.store, ruleKind)
	for name, r := range rules {
		if !slices.ContainsFunc(r.To, func(to notify.Receiver) bool { return !to.IsCurrent(b.ring) }) {
			continue
		}
		var unreadable error
		failed := b.existing(ctx, name, func(r *Rule) (_ bool, err error) {
			b.open(r)
			if unreadable = nil; slices.ContainsFunc(r.To, func(to notify.Receiver) bool { return to.Sealed != nil }) {
				unreadable = fmt.Errorf("alert %s: %w", name, notify.ErrSealed)
			}
			*r, err = b.sealed(*r)
			return true, err
		})
		if !errors.Is(failed, ErrNotFound) { // it was removed meanwhile
			err = errors.Join(err, failed, unreadable)
		}
	}
	return err
}

func purpose(name string) string { return "alert " + name }

// Alert is a rule and its state.
type Alert struct {
	Rule
	State
}

// List returns the alerts by name.
func (b *Book) List(ctx context.Context) ([]Alert, error) {
	rules, err := shelf.All[Rule](ctx, b.store, ruleKind)
	if err != nil || len(rules) == 0 {
		return nil, err
	}
	states, err := shelf.All[State](ctx, b.store, stateKind)
	if err != nil {
		return nil, err
	}
	all := make([]Alert, 0, len(rules))
	for name, r := range rules {
		b.open(&r)
		all = append(all, Alert{r, states[name]})
	}
	slices.SortFunc(all, func(x, y Alert) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}

// Get returns one alert. The error is ErrNotFound if there is none of that name.
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

// Watched returns when a process last looked at the rules; zero if none does.
func (b *Book) Watched(ctx context.Context) (time.Time, error) {
	return herald.Seen(ctx, b.store, post)
}

// Put creates a rule, or changes the rule of that name. If no receivers are given, the rule keeps its old ones; it
// also keeps a mute. The secret is that of a first webhook; it cannot be shown again. After an error, nothing is stored
// unless the database's answer was lost.
//
// Errors: ErrInvalid; notify.ErrTarget if an address may not be called; notify.ErrSealed if webhooks are given and the
// secret of the old ones cannot be read.
func (b *Book) Put(ctx context.Context, r Rule, by string) (secret string, stored Alert, err error) {
	if err := r.complete(); err != nil {
		return "", stored, err
	}
	for i := range r.To {
		if err := b.sender.Check(&r.To[i]); err != nil {
			return "", stored, err
		}
	}
	if stored.State, err = b.stateBefore(ctx, r.Name); err != nil {
		return "", stored, err
	}
	given := r.To
	err = shelf.Change(ctx, b.store, ruleKind, r.Name, func(doc *Rule, exists bool) (bool, error) {
		b.open(doc)
		r.CreatedAt, r.CreatedBy, r.MutedUntil = doc.CreatedAt, doc.CreatedBy, doc.MutedUntil
		if !exists {
			r.CreatedAt, r.CreatedBy = time.Now().UTC().Truncate(time.Second), by
		}
		if r.To = given; len(given) == 0 {
			r.To = doc.To
		}
		if len(r.To) == 0 {
			return false, fmt.Errorf("%w: it needs a receiver: Slack, a webhook, or mail", ErrInvalid)
		}
		if len(given) > 0 {
			if r.To, secret, err = notify.Signed(given, doc.To); err != nil {
				return false, err
			}
		}
		stored.Rule = r
		*doc, err = b.sealed(r)
		return true, err
	})
	return secret, stored, err
}

// stateBefore returns the state of a rule that is about to be stored. If the rule is new, it checks that there is room
// for it, and deletes what a removed rule of that name has left behind.
func (b *Book) stateBefore(ctx context.Context, name string) (State, error) {
	all, err := b.List(ctx)
	if err != nil {
		return State{}, err
	}
	if k := slices.IndexFunc(all, func(a Alert) bool { return a.Name == name }); k >= 0 {
		return all[k].State, nil
	}
	if len(all) >= MaxRules {
		return State{}, fmt.Errorf("%w: there are %d alerts, and no more are allowed: remove one first", ErrInvalid, MaxRules)
	}
	return State{}, shelf.Remove(ctx, b.store, stateKind, name)
}

// Remove deletes a rule. If it is firing, nobody is told that it is over.
func (b *Book) Remove(ctx context.Context, name string) error {
	err := b.existing(ctx, name, func(*Rule) (bool, error) { return false, nil })
	if err != nil {
		return err
	}
	return shelf.Remove(ctx, b.store, stateKind, name)
}

// existing changes a rule, which must exist.
func (b *Book) existing(ctx context.Context, name string, edit func(*Rule) (keep bool, err error)) error {
	return shelf.Change(ctx, b.store, ruleKind, name, func(doc *Rule, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		return edit(doc)
	})
}

// Mute keeps a rule from reporting new problems for a while; 0 ends the mute. A problem that still holds at the end
// of the mute is reported then. The end of a problem that was reported before is reported at once.
func (b *Book) Mute(ctx context.Context, name string, span time.Duration) error {
	if span < 0 || span > MaxSpan {
		return fmt.Errorf("%w: mute: want 0s to %s", ErrInvalid, duration.Text(MaxSpan))
	}
	mute := func(from time.Time) error {
		return b.existing(ctx, name, func(r *Rule) (bool, error) {
			if r.MutedUntil = (time.Time{}); span > 0 {
				r.MutedUntil = from.UTC().Add(span).Truncate(time.Second)
			}
			return true, nil
		})
	}
	err := mute(time.Now())
	if err != nil || span == 0 {
		return err
	}
	// The watching process uses the database's clock, which the write has returned.
	records, err := b.store.Records(ctx, store.RecordFilter{Kind: ruleKind})
	for _, r := range records {
		if r.Name == name {
			return mute(r.UpdatedAt)
		}
	}
	return err
}

// Test makes the watching process send a message to each receiver of a rule. Arrived reports the result.
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

// Arrived reports whether a test is over, and the error of a receiver that did not get it. A test whose message waits
// for an earlier one to a failing receiver is not over, and the error is that of the earlier message.
func (b *Book) Arrived(ctx context.Context, name, id string) (over bool, trouble string, err error) {
	a, err := b.Get(ctx, name)
	if err != nil {
		return false, "", err
	}
	failing := map[string]bool{}
	for _, o := range a.Owed {
		if failing[o.To] = failing[o.To] || o.Tries > 0; o.Message.ID == id && failing[o.To] {
			return false, a.Error, nil
		}
	}
	if slices.ContainsFunc(a.Owed, func(o Owed) bool { return o.Message.ID == id }) {
		return false, "", nil
	}
	if a.Miss.ID == id {
		trouble = a.Miss.Error
	}
	return true, trouble, nil
}

func (b *Book) changeState(ctx context.Context, name string, do func(State) State) error {
	return shelf.ChangeOf(ctx, b.store, ruleKind, stateKind, name, func(doc *State) {
		*doc = do(*doc)
		doc.Waits = time.Time{}
		if len(doc.Owed) > 0 {
			doc.Waits = doc.Owed[0].Message.Timestamp
		}
	})
}
