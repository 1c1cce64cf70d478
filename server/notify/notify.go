// Package notify sends messages to people and programs: to Slack, to a URL as a signed
// webhook, by mail.
//
// It may touch the addresses that package reach lets it, and the mail server that the
// operator names. Messages come in from packages alert and hook.
package notify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/reach"
	"github.com/tuskqueue/tusk/server/push"
)

// Via is how a receiver is reached.
type Via string

// The ways.
const (
	Slack   Via = "slack"
	Webhook Via = "webhook"
	Mail    Via = "mail"
)

// ErrInvalid says that a receiver cannot be, ErrTarget that it may not be called.
var (
	ErrInvalid = errors.New("invalid receiver")
	ErrTarget  = reach.ErrTarget
	ErrSealed  = errors.New("a secret cannot be read: this server's key ring lacks its key")
	ErrNoMail  = errors.New("this server has no mail server: start tusk serve with --smtp")
)

// Receiver is who gets messages. The address of Slack is a secret, as the one that signs is.
// With a key ring secrets are stored encrypted.
type Receiver struct {
	Via     Via             `json:"via"`
	Address string          `json:"address,omitempty"` // a URL, or for mail an address
	Secret  string          `json:"secret,omitempty"`
	Sealed  json.RawMessage `json:"sealed,omitempty"` // the address of Slack, or the secret of a webhook
}

// Key tells receivers of one rule apart, and shows no secret.
func (r *Receiver) Key() string {
	digest := sha256.Sum256([]byte(r.Address))
	return string(r.Via) + " " + hex.EncodeToString(digest[:8])
}

// hidden is what of a receiver nobody may see; nil: nothing.
func (r *Receiver) hidden() *string {
	switch r.Via {
	case Slack:
		return &r.Address
	case Webhook:
		return &r.Secret
	}
	return nil
}

// Seal encrypts what nobody may see, if there is a key ring.
func (r *Receiver) Seal(ring *tusk.KeyRing, purpose string) (err error) {
	text := r.hidden()
	if text == nil || ring == nil || *text == "" {
		return nil
	}
	r.Sealed, err = ring.Encrypt([]byte(*text), purpose)
	*text = ""
	return err
}

// Open undoes Seal. What the ring has no key for stays sealed, and cannot be used.
func (r *Receiver) Open(ring *tusk.KeyRing, purpose string) {
	text := r.hidden()
	if text == nil || r.Sealed == nil {
		return
	}
	if clear, err := ring.Decrypt(r.Sealed, purpose); err == nil {
		*text, r.Sealed = string(clear), nil
	}
}

// Shown is the receiver as anybody may see it: of Slack the host alone.
func (r *Receiver) Shown() string {
	if r.Via != Slack {
		return r.Address
	}
	if r.Sealed != nil {
		return "…"
	}
	u, err := url.Parse(r.Address)
	if err != nil {
		return "…"
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// Signed gives webhooks a secret: the one that an old receiver of theirs had, or a new one.
// The new one signs for all new ones, and is returned; empty: there is none.
func Signed(to, old []Receiver) (signed []Receiver, secret string) {
	signed = slices.Clone(to)
	for i := range signed {
		r := &signed[i]
		if r.Via != Webhook {
			continue
		}
		if k := slices.IndexFunc(old, func(o Receiver) bool {
			return o.Via == Webhook && (o.Secret != "" || o.Sealed != nil)
		}); k >= 0 {
			r.Secret, r.Sealed = old[k].Secret, old[k].Sealed
			continue
		}
		if secret == "" {
			secret = push.NewSecret()
		}
		r.Secret = secret
	}
	return signed, secret
}

// Message is what is told: the body of a webhook.
type Message struct {
	ID        string    `json:"id"` // the same at every try
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      Data      `json:"data"`
}

// Data is the alert that a message tells of.
type Data struct {
	Alert       string    `json:"alert"`
	Kind        string    `json:"kind"`
	Queue       string    `json:"queue,omitempty"`
	Schedule    string    `json:"schedule,omitempty"`
	Text        string    `json:"text"`
	Since       time.Time `json:"since,omitzero"`
	Environment string    `json:"environment,omitempty"`
}

// Sender sends messages. Make it with New.
type Sender struct {
	guard       *reach.Guard
	client      *http.Client
	mail        *MailServer
	environment string
}

// New makes a sender. allow lists hosts and networks that may be called besides public
// addresses, and without TLS; smtp is the URL of the mail server, empty: none. The
// environment is told in messages.
func New(allow []string, smtp, environment string) (*Sender, error) {
	guard, err := reach.New(allow)
	if err != nil {
		return nil, err
	}
	s := &Sender{guard: guard, client: guard.Client(), environment: environment}
	if smtp != "" {
		s.mail, err = ParseMailServer(smtp)
	}
	return s, err
}

// Check refuses a receiver that cannot be, or may not be called.
func (s *Sender) Check(r *Receiver) error {
	switch r.Via {
	case Mail:
		a, err := mail.ParseAddress(r.Address)
		if err != nil || len(r.Address) > 254 || strings.ContainsAny(r.Address, "\r\n") {
			return fmt.Errorf("%w: mail: want an address such as ops@example.com", ErrInvalid)
		}
		r.Address = a.Address
		return nil
	case Slack, Webhook:
		if len(r.Address) > push.MaxURL || strings.ContainsFunc(r.Address,
			func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			return fmt.Errorf("%w: %s: the URL has blanks, or more than %d bytes", ErrInvalid, r.Via, push.MaxURL)
		}
		u, err := url.Parse(r.Address)
		if err != nil {
			return fmt.Errorf("%w: %s: the URL cannot be read", ErrInvalid, r.Via)
		}
		return s.guard.Judge(u)
	}
	return fmt.Errorf("%w: want %s, %s or %s", ErrInvalid, Slack, Webhook, Mail)
}

// Send sends a message to a receiver, once. Its error tells no secret.
func (s *Sender) Send(ctx context.Context, r *Receiver, m Message) error {
	if r.Sealed != nil {
		return ErrSealed
	}
	m.Data.Environment = s.environment
	switch r.Via {
	case Slack:
		body, err := json.Marshal(map[string]string{"text": slackText(&m)})
		if err != nil {
			return err
		}
		return s.Post(ctx, r.Address, body, func(http.Header) error { return nil })
	case Webhook:
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return s.Post(ctx, r.Address, body, func(h http.Header) error {
			return push.Sign(h, m.ID, time.Now(), body, []string{r.Secret})
		})
	}
	if s.mail == nil {
		return ErrNoMail
	}
	return s.mail.send(ctx, r.Address, &m)
}

// Post sends a body to a URL; an answer from 200 to 299 means that it has arrived.
func (s *Sender) Post(ctx context.Context, to string, body []byte, sign func(http.Header) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "tusk")
	if err := sign(request.Header); err != nil {
		return err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return errors.New("not reached: " + reach.Unreached(request, err))
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection serves again
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", request.URL.Host, answer.Status)
	}
	return nil
}

// Title says a message in a line.
func (m *Message) Title() string {
	what := map[string]string{"alert.firing": "is firing", "alert.repeated": "is still firing", "alert.over": "is over",
		"alert.test": "is tested"}[m.Type]
	title := "Tusk: " + m.Data.Alert + " " + what
	if m.Data.Environment != "" {
		title = "[" + m.Data.Environment + "] " + title
	}
	return title
}

// slackText escapes what Slack would take for markup.
func slackText(m *Message) string {
	text := m.Title()
	if m.Data.Text != "" {
		text += "\n" + m.Data.Text
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// Receivers makes receivers of addresses.
func Receivers(slack, webhooks, mail []string) (all []Receiver) {
	for _, of := range []struct {
		via       Via
		addresses []string
	}{{Slack, slack}, {Webhook, webhooks}, {Mail, mail}} {
		for _, a := range of.addresses {
			all = append(all, Receiver{Via: of.via, Address: a})
		}
	}
	return all
}

// Close closes connections that wait for another message.
func (s *Sender) Close() { s.client.CloseIdleConnections() }
