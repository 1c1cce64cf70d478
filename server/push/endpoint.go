package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/reach"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/shelf"
	"github.com/tuskqueue/tusk/store"
)

const recordKind = "endpoint"

// Limits and defaults of endpoints.
const (
	MaxConcurrency     = 1000
	DefaultConcurrency = 10
	MaxTimeout         = time.Hour
	DefaultTimeout     = time.Minute
	MaxURL             = 2048
)

// overlap is how long a secret continues to sign after it was replaced.
const overlap = 24 * time.Hour

// Errors that a caller can act on.
var (
	ErrNotFound = errors.New("no endpoint takes the tasks of this queue")
	ErrInvalid  = errors.New("invalid endpoint")
	ErrTarget   = reach.ErrTarget
)

// Endpoint is where the tasks of a queue are sent. It does not contain the secret.
type Endpoint struct {
	Queue       string        `json:"queue"`
	URL         string        `json:"url"`
	Concurrency int           `json:"concurrency"` // concurrent calls of each server; default 10
	Timeout     time.Duration `json:"timeout"`     // of a call, unless the task has its own; default 1 min
	CreatedAt   time.Time     `json:"created_at"`
	CreatedBy   string        `json:"created_by"`
	RotatedAt   time.Time     `json:"rotated_at,omitzero"`

	State herald.Delivery `json:"-"` // of all servers; stored by itself
}

// document is an endpoint in its stored form.
type document struct {
	Endpoint
	Secrets []secret `json:"secrets"`
}

// secret signs calls. With a key ring it is stored encrypted.
type secret struct {
	Text   string          `json:"text,omitempty"`
	Sealed json.RawMessage `json:"sealed,omitempty"`
	Until  time.Time       `json:"until,omitzero"` // zero for the current one
}

func (s *secret) signs(now time.Time) bool { return s.Until.IsZero() || now.Before(s.Until) }

// usable lists the secrets that sign at a given time, the current one first.
func (d *document) usable(now time.Time) (texts []string) {
	for _, s := range d.Secrets {
		if s.Text != "" && s.signs(now) {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

// Book stores endpoints as records of a store.
type Book struct {
	store   store.Recorder
	guard   *reach.Guard
	ring    *tusk.KeyRing
	changed chan struct{} // makes a runner of this process look at once
}

// NewBook returns a book. allow lists hosts, hosts with a port, and networks that may be called in addition to public
// addresses, and without TLS. The error says which entry is invalid.
//
// With a key ring, which may be nil, secrets are stored encrypted.
func NewBook(s store.Recorder, ring *tusk.KeyRing, allow ...string) (*Book, error) {
	g, err := reach.New(allow)
	return &Book{store: s, guard: g, ring: ring, changed: make(chan struct{}, 1)}, err
}

// List returns the endpoints by queue.
func (b *Book) List(ctx context.Context) ([]Endpoint, error) {
	docs, err := b.documents(ctx)
	if err != nil {
		return nil, err
	}
	states, err := shelf.All[herald.Delivery](ctx, b.store, stateKind)
	endpoints := make([]Endpoint, len(docs))
	for i, d := range docs {
		endpoints[i] = d.Endpoint
		endpoints[i].State = states[d.Queue]
	}
	return endpoints, err
}

// Get returns the endpoint of a queue. The error is ErrNotFound if it has none.
func (b *Book) Get(ctx context.Context, queue string) (Endpoint, error) {
	list, err := b.List(ctx)
	if err != nil {
		return Endpoint{}, err
	}
	for _, e := range list {
		if e.Queue == queue {
			return e, nil
		}
	}
	return Endpoint{}, ErrNotFound
}

// Put registers or changes the endpoint of a queue. The secret is that of a new endpoint and cannot be shown again;
// it is empty if the endpoint existed already. After an error, nothing is stored unless the database's answer was lost;
// Rotate replaces a secret that nobody has seen.
//
// Errors: ErrInvalid; ErrTarget if the URL may not be called.
func (b *Book) Put(ctx context.Context, e Endpoint, by string) (text string, stored Endpoint, err error) {
	if err := b.complete(&e); err != nil {
		return "", e, err
	}
	err = b.change(ctx, e.Queue, func(d *document, exists bool) (bool, error) {
		text = "" // another call may have stored the endpoint first
		if d.URL != e.URL {
			if err := b.forget(ctx, e.Queue); err != nil {
				return false, err
			}
		}
		if e.CreatedAt, e.CreatedBy, e.RotatedAt = d.CreatedAt, d.CreatedBy, d.RotatedAt; !exists {
			text = NewSecret()
			d.Secrets = []secret{{Text: text}}
			e.CreatedAt, e.CreatedBy = time.Now().UTC().Truncate(time.Second), by
		}
		d.Endpoint = e
		return true, nil
	})
	return text, e, err
}

// Rotate creates a new secret, which cannot be shown again. The previous one continues to sign for a day.
func (b *Book) Rotate(ctx context.Context, queue string) (text string, stored Endpoint, err error) {
	err = b.change(ctx, queue, func(d *document, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		now := time.Now().UTC().Truncate(time.Second)
		text = NewSecret()
		d.RotatedAt = now
		for i := range d.Secrets {
			if d.Secrets[i].Until.IsZero() {
				d.Secrets[i].Until = now.Add(overlap)
			}
		}
		d.Secrets = append([]secret{{Text: text}}, d.Secrets...)
		d.Secrets = slices.DeleteFunc(d.Secrets, func(s secret) bool { return !s.Until.IsZero() && now.After(s.Until) })
		stored = d.Endpoint
		return true, nil
	})
	return text, stored, err
}

// Remove deletes the endpoint of a queue. Calls in progress have a moment to end; then their tasks go back to the
// queue.
func (b *Book) Remove(ctx context.Context, queue string) error {
	return b.change(ctx, queue, func(_ *document, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		return false, b.forget(ctx, queue)
	})
}

// complete fills in defaults and rejects an invalid endpoint.
func (b *Book) complete(e *Endpoint) error {
	if err := tusk.ValidateName("queue", e.Queue); err != nil {
		return err
	}
	if e.Concurrency == 0 {
		e.Concurrency = DefaultConcurrency
	}
	if e.Timeout == 0 {
		e.Timeout = DefaultTimeout
	}
	switch {
	case e.Concurrency < 1 || e.Concurrency > MaxConcurrency:
		return fmt.Errorf("%w: concurrency: want 1 to %d", ErrInvalid, MaxConcurrency)
	case e.Timeout < time.Second || e.Timeout > MaxTimeout:
		return fmt.Errorf("%w: timeout: want 1s to %s", ErrInvalid, duration.Text(MaxTimeout))
	case len(e.URL) > MaxURL || strings.ContainsFunc(e.URL, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("%w: url: has blanks, or more than %d bytes", ErrInvalid, MaxURL)
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return fmt.Errorf("%w: url: cannot be read", ErrInvalid)
	}
	return b.guard.Judge(u)
}

func (b *Book) documents(ctx context.Context) ([]document, error) {
	records, err := b.store.Records(ctx, store.RecordFilter{Kind: recordKind})
	if err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	docs := make([]document, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.Body, &docs[i]); err != nil {
			return nil, fmt.Errorf("endpoint of %s: %w", r.Name, err)
		}
		b.open(&docs[i])
	}
	slices.SortFunc(docs, func(x, y document) int { return strings.Compare(x.Queue, y.Queue) })
	return docs, nil
}

// change reads an endpoint, edits it and writes it, until nobody else has written it in between. If edit returns keep
// as false, the endpoint is deleted.
func (b *Book) change(
	ctx context.Context, queue string, edit func(d *document, exists bool) (keep bool, err error),
) error {
	err := shelf.Change(ctx, b.store, recordKind, queue, func(d *document, exists bool) (bool, error) {
		b.open(d)
		keep, err := edit(d, exists)
		if err == nil && keep {
			err = b.seal(d)
		}
		return keep, err
	})
	if err != nil {
		return err
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return nil
}
