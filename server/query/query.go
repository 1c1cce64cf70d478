// Package query parses filters that select tasks, with the same names in a URL, in JSON, and on every page.
//
// It may use a tusk.Client, to search tasks within a budget of rows. Packages server and ui use it.
package query

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// Tasks selects tasks. An empty field selects all tasks; all set fields must match.
type Tasks struct {
	State       []string `json:"state,omitempty" query:"state" rule:"state" maxItems:"100" doc:"scheduled, pending, available, running, retryable, completed, cancelled, discarded"`
	Queue       []string `json:"queue,omitempty" query:"queue" rule:"value" maxItems:"100"`
	Kind        []string `json:"kind,omitempty" query:"kind" rule:"value" maxItems:"100"`
	Tenant      []string `json:"tenant,omitempty" query:"tenant" rule:"value" maxItems:"100"`
	Tag         []string `json:"tag,omitempty" query:"tag" rule:"value" maxItems:"100" doc:"all of these"`
	Key         string   `json:"key,omitempty" query:"key" rule:"value"`
	Fingerprint string   `json:"fingerprint,omitempty" query:"fingerprint" rule:"value" doc:"of the latest error"`
	From        string   `json:"from,omitempty" query:"from" rule:"when" doc:"enqueued at or after: a time (RFC 3339), or how long ago (24h)"`
	Until       string   `json:"until,omitempty" query:"until" rule:"when" doc:"enqueued before; same format as from"`
	Args        string   `json:"args,omitempty" query:"args" rule:"search" doc:"text in the args, or the value at a path (order.id=17); needs from, at most 31 days ago"`
}

// Error says which part of a query is invalid.
type Error struct{ Field, Code, Text string }

func (e *Error) Error() string { return e.Field + ": " + e.Text }

// Limits of a query: the number of values, the bytes of each value, and the bytes of a search in args.
const (
	maxValues = 100
	MaxValue  = 255
	MaxSearch = 200

	maxInstant = 64
)

// check rejects text that some engine cannot compare. Text that no task can have is rejected by all engines alike.
func (q Tasks) check() error {
	for field, values := range q.Values() {
		for _, v := range values {
			if err := Text(field, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Text rejects text with characters that no task can have, or with more than MaxValue bytes.
func Text(field, text string) error {
	switch {
	case !utf8.ValidString(text):
		return &Error{field, "invalid_utf8", "is not valid UTF-8"}
	case strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	}):
		return &Error{field, "invalid_text", "has a control character"}
	case len(text) > MaxValue:
		return &Error{field, "too_long", fmt.Sprintf("has more than %d bytes", MaxValue)}
	}
	return nil
}

// Filter translates the query.
func (q Tasks) Filter() (tusk.Filter, error) {
	f, err := q.filter()
	if err != nil {
		return f, err
	}
	return f, q.checkArgs(f.From, time.Now())
}

// filter is Filter without the check of args.
func (q Tasks) filter() (tusk.Filter, error) {
	f := tusk.Filter{Queues: q.Queue, Kinds: q.Kind, Tenants: q.Tenant, Tags: q.Tag, Key: q.Key,
		Fingerprint: q.Fingerprint}
	if len(q.State)+len(q.Queue)+len(q.Kind)+len(q.Tenant)+len(q.Tag) > maxValues {
		return f, &Error{"filter", "filter_too_complex", fmt.Sprintf("has more than %d values", maxValues)}
	}
	if err := q.check(); err != nil {
		return f, err
	}
	for _, name := range q.State {
		state, err := store.ParseState(name)
		if err != nil {
			return f, &Error{"state", "invalid_state_name", "want " + words.Either(store.States())}
		}
		f.States = append(f.States, state)
	}
	var err error
	if f.From, err = Instant("from", q.From, time.Now()); err != nil {
		return f, err
	}
	if f.Until, err = Instant("until", q.Until, time.Now()); err != nil {
		return f, err
	}
	if !f.From.IsZero() && !f.Until.IsZero() && !f.From.Before(f.Until) {
		return f, &Error{"from", "out_of_range", "is not before until"}
	}
	return f, nil
}

// Moment describes how to write a time, for use after "want".
const Moment = "an instant such as 2026-01-31T12:00:00Z, or how long ago, such as 24h or 7d"

// Instant reads a time, or how long before now it was. Empty text gives the zero time.
func Instant(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if len(text) > maxInstant {
		return time.Time{}, &Error{field, "invalid_parameter", fmt.Sprintf("has more than %d bytes", maxInstant)}
	}
	if ago, err := duration.ParseUnit(text); err == nil {
		return now.Add(-ago).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() >= 1970 && t.Year() <= 9999 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &Error{field, "invalid_time", "want " + Moment}
}

// FromValues reads the query of a URL. Lists may be repeated or comma-separated.
func FromValues(v url.Values) Tasks {
	return Tasks{State: list(v["state"]), Queue: list(v["queue"]), Kind: list(v["kind"]), Tenant: list(v["tenant"]),
		Tag: texts(v["tag"]),
		Key: v.Get("key"), Fingerprint: v.Get("fingerprint"), From: v.Get("from"), Until: v.Get("until"),
		Args: strings.TrimSpace(v.Get("args"))}
}

// Values is the inverse of FromValues.
func (q Tasks) Values() url.Values {
	v := url.Values{}
	for name, values := range map[string][]string{"state": q.State, "queue": q.Queue, "kind": q.Kind, "tenant": q.Tenant,
		"tag": q.Tag} {
		if len(values) > 0 {
			v[name] = values
		}
	}
	for name, value := range map[string]string{"key": q.Key, "fingerprint": q.Fingerprint, "from": q.From,
		"until": q.Until, "args": q.Args} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// Of returns the query from which a filter was made.
func Of(f tusk.Filter) Tasks {
	q := Tasks{Queue: f.Queues, Kind: f.Kinds, Tenant: f.Tenants, Tag: f.Tags, Key: f.Key, Fingerprint: f.Fingerprint}
	for _, s := range f.States {
		q.State = append(q.State, s.String())
	}
	q.From, q.Until = instantText(f.From), instantText(f.Until)
	return q
}

func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// IsZero reports whether the query selects everything.
func (q Tasks) IsZero() bool { return len(q.Values()) == 0 }

func list(values []string) []string {
	var all []string
	for _, v := range values {
		all = append(all, texts(strings.Split(v, ","))...)
	}
	return all
}

// texts leaves out empty values, because a form sends all its fields.
func texts(values []string) []string {
	var all []string
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" {
			all = append(all, v)
		}
	}
	return all
}
