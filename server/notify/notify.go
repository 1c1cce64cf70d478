// Package notify sends messages to people and programs: to Slack, to a URL as a signed webhook, or by mail.
//
// It may use the addresses that package reach allows, and the operator's mail server. Messages come from packages
// alert and hook.
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

// Via is a way to reach a receiver.
type Via string

// Ways to reach a receiver.
const (
	Slack   Via = "slack"
	Webhook Via = "webhook"
	Mail    Via = "mail"
)

// ErrInvalid says that a receiver is invalid, ErrTarget that it may not be called.
var (
	ErrInvalid = errors.New("invalid receiver")
	ErrTarget  = reach.ErrTarget
	ErrSealed  = errors.New("a stored secret cannot be read: the key ring of this process lacks its key: " +
		"add the key to --key-ring, or, if it is lost, remove the alert or hook and put it again for a new secret")
	ErrNoMail = errors.New("this server has no mail server: start tusk serve with --smtp")
)

// Receiver gets messages. The address of Slack is a secret, as is the signing secret of a webhook. With a key ring,
// secrets are stored encrypted.
type Receiver struct {
	Via     Via             `json:"via"`
	Address string          `json:"address,omitempty"` // a URL, or a mail address
	Secret  string          `json:"secret,omitempty"`
	Sealed  json.RawMessage `json:"sealed,omitempty"` // encrypted: the address of Slack, or the secret of a webhook
	Known   string          `json:"key,omitempty"`    // the key, stored with what is encrypted
}

// Key distinguishes receivers without revealing a secret. It is "" for an encrypted address whose key is not stored.
func (r *Receiver) Key() string {
	if r.Address == "" {
		return r.Known
	}
	digest := sha256.Sum256([]byte(r.Address))
	return string(r.Via) + " " + hex.EncodeToString(digest[:8])
}

// hidden returns the secret field of a receiver, or nil if it has none.
func (r *Receiver) hidden() *string {
	switch r.Via {
	case Slack:
		return &r.Address
	case Webhook:
		return &r.Secret
	}
	return nil
}

// Seal encrypts the secret, if there is a key ring.
func (r *Receiver) Seal(ring *tusk.KeyRing, purpose string) (err error) {
	text := r.hidden()
	if text == nil || ring == nil || *text == "" {
		return nil
	}
	r.Known = r.Key()
	r.Sealed, err = ring.Encrypt([]byte(*text), purpose)
	*text = ""
	return err
}

// Open undoes Seal. A secret whose key the ring lacks stays sealed and cannot be used.
func (r *Receiver) Open(ring *tusk.KeyRing, purpose string) {
	text := r.hidden()
	if text == nil || r.Sealed == nil {
		return
	}
	if clear, err := ring.Decrypt(r.Sealed, purpose); err == nil {
		*text, r.Sealed = string(clear), nil
	}
}

// Shown returns the receiver's address without secrets: for Slack only the host.
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

// IsCurrent reports whether the secret, if there is one, is stored as Seal would store it.
func (r *Receiver) IsCurrent(ring *tusk.KeyRing) bool {
	return r.hidden() == nil || ring.IsCurrent(r.Sealed) && r.Known != ""
}

// Signed gives each webhook a secret: that of an old webhook, or a new one if there is none. All webhooks share the new
// one, which is returned; it is "" if there is none. The error is ErrSealed if no old secret can be read: a new one
// would replace a secret that may still work.
func Signed(to, old []Receiver) (signed []Receiver, secret string, err error) {
	signed = slices.Clone(to)
	for i := range signed {
		r := &signed[i]
		if r.Via != Webhook {
			continue
		}
		r.Sealed = nil
		if k := slices.IndexFunc(old, func(o Receiver) bool { return o.Via == Webhook && o.Secret != "" }); k >= 0 {
			r.Secret = old[k].Secret
			continue
		}
		if slices.ContainsFunc(old, func(o Receiver) bool { return o.Via == Webhook && o.Sealed != nil }) {
			return nil, "", ErrSealed
		}
		if secret == "" {
			secret = push.NewSecret()
		}
		r.Secret = secret
	}
	return signed, secret, nil
}

// Message is the body of a webhook.
type Message struct {
	ID        string    `json:"id"` // the same for every try
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      Data      `json:"data"`
}

// Data describes the alert of a message.
type Data struct {
	Alert       string    `json:"alert"`
	Kind        string    `json:"kind"`
	Queue       string    `json:"queue,omitempty"`
	Schedule    string    `json:"schedule,omitempty"`
	Text        string    `json:"text"`
	Since       time.Time `json:"since,omitzero"`
	Environment string    `json:"environment,omitempty"`
}

// Sender sends messages. Make one with New.
type Sender struct {
	guard       *reach.Guard
	client      *http.Client
	mail        *MailServer
	environment string
}

// New returns a sender. allow lists hosts and networks that may be called in addition to public addresses, and
// without TLS. smtp is the URL of the mail server; empty if there is none. Messages mention the environment.
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

// Check rejects a receiver that is invalid or may not be called.
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

// Send sends a message to a receiver, once. Its error contains no secret.
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

// Post sends a body to a URL. A status from 200 to 299 means success.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be reused
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", request.URL.Host, answer.Status)
	}
	return nil
}

// Title summarizes a message in a line.
func (m *Message) Title() string {
	what := map[string]string{"alert.firing": "is firing", "alert.repeated": "is still firing", "alert.over": "is over",
		"alert.test": "is tested"}[m.Type]
	title := "Tusk: " + m.Data.Alert + " " + what
	if m.Data.Environment != "" {
		title = "[" + m.Data.Environment + "] " + title
	}
	return title
}

// slackText escapes characters that Slack would treat as markup.
func slackText(m *Message) string {
	text := m.Title()
	if m.Data.Text != "" {
		text += "\n" + m.Data.Text
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// Receivers makes receivers from addresses.
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

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }
