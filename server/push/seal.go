package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

// purpose binds an encrypted secret to its endpoint.
func purpose(queue string) string { return "endpoint\x00" + queue }

// open decrypts the secrets of an endpoint. A secret that cannot be decrypted stays sealed and signs nothing.
func (b *Book) open(d *document) {
	for i := range d.Secrets {
		s := &d.Secrets[i]
		if len(s.Sealed) == 0 {
			continue
		}
		if text, err := b.ring.Decrypt(s.Sealed, purpose(d.Queue)); err == nil {
			s.Text = string(text)
		}
	}
}

// seal encrypts the secrets of an endpoint before it is stored, if there is a key ring.
func (b *Book) seal(d *document) error {
	for i := range d.Secrets {
		s := &d.Secrets[i]
		if b.ring == nil || s.Text == "" {
			continue
		}
		sealed, err := b.ring.Encrypt([]byte(s.Text), purpose(d.Queue))
		if err != nil {
			return err
		}
		s.Sealed, s.Text = sealed, ""
	}
	return nil
}

// Reseal encrypts secrets that are stored in plain text or with another key with the primary key, so that the other
// key can be removed. The error is tusk.ErrEncrypted if a secret cannot be decrypted.
func (b *Book) Reseal(ctx context.Context) error {
	if b.ring == nil {
		return nil
	}
	docs, err := b.documents(ctx)
	if err != nil {
		return err
	}
	for _, d := range docs {
		stale, unreadable := false, false
		for _, s := range d.Secrets {
			stale = stale || !b.ring.IsCurrent(s.Sealed)
			unreadable = unreadable || s.Text == "" && s.signs(time.Now())
		}
		if unreadable {
			err = errors.Join(err, fmt.Errorf("secret of the endpoint of %s: %w", d.Queue, tusk.ErrEncrypted))
		}
		if stale {
			err = errors.Join(err,
				b.change(ctx, d.Queue, func(_ *document, exists bool) (bool, error) { return exists, nil }))
		}
	}
	return err
}
