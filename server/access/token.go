package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Token is what is known about an API token. The secret is not stored, only its SHA-256, which is enough for 256
// random bits.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Queues    []string  `json:"queues,omitempty"`
	Tenants   []string  `json:"tenants,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	// UsedAt is when it was last used, accurate to usedEvery; zero if never.
	UsedAt time.Time `json:"used_at,omitzero"`
}

type storedToken struct {
	Token
	Hash string `json:"hash"`
}

// Usable reports whether the token is accepted at a time.
func (t Token) Usable(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// Patterns for the names of tokens and users, and for bounds.
const (
	NamePattern  = `[\p{L}\p{N}][\p{L}\p{N} ._@+\-]{0,63}`
	BoundPattern = `[a-z0-9][a-z0-9_.:\-]{0,63}\*?|\*`
)

var (
	namePattern  = regexp.MustCompile("^" + NamePattern + "$")
	boundPattern = regexp.MustCompile("^(" + BoundPattern + ")$")
)

// CreateToken stores a new token and returns its secret, which cannot be shown again. Only the name, role, bounds and
// expiry of spec are used. The error is ErrInvalid if one of them is invalid.
func (b *Book) CreateToken(ctx context.Context, spec Token, by string) (secret string, t Token, err error) {
	if err := checkToken(spec); err != nil {
		return "", t, err
	}
	id, key := randomHex(8), randomHex(32)
	t = spec
	t.ID, t.CreatedAt, t.CreatedBy, t.RevokedAt, t.UsedAt = id, time.Now().UTC().Truncate(time.Second), by,
		time.Time{}, time.Time{}
	secret = "tusk_" + id + "_" + key
	err = change(ctx, b, tokenRecord, id, func(doc *storedToken, _ bool) (bool, error) {
		*doc = storedToken{Token: t, Hash: digest(secret)}
		return true, nil
	})
	if err != nil {
		return "", t, fmt.Errorf("create token: %w", err)
	}
	return secret, t, nil
}

func checkToken(t Token) error {
	if !namePattern.MatchString(t.Name) {
		return fmt.Errorf("%w: name: want 1 to 64 letters, digits and . _ @ + -", ErrInvalid)
	}
	if _, err := ParseRole(string(t.Role)); err != nil {
		return fmt.Errorf("%w: role: %w", ErrInvalid, err)
	}
	if !t.ExpiresAt.IsZero() && t.ExpiresAt.Before(time.Now()) {
		return fmt.Errorf("%w: expires_at: is in the past", ErrInvalid)
	}
	return CheckBounds(t.Queues, t.Tenants)
}

// CheckBounds rejects bounds that are not names of queues and tenants, or prefixes of such names.
func CheckBounds(queues, tenants []string) error {
	for _, p := range slices.Concat(queues, tenants) {
		if !boundPattern.MatchString(p) {
			return fmt.Errorf("%w: queues and tenants: want names, or their beginnings with * at the end", ErrInvalid)
		}
	}
	if len(queues)+len(tenants) > 100 {
		return fmt.Errorf("%w: queues and tenants: at most 100 are allowed", ErrInvalid)
	}
	return nil
}

// Tokens lists all tokens, newest first.
func (b *Book) Tokens(ctx context.Context) ([]Token, error) {
	p, err := b.page(ctx, tokenRecord, 0)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	uses, err := b.page(ctx, useRecord, 0)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	tokens := make([]Token, 0, len(p.byName))
	for _, r := range p.byName {
		doc, err := decode[storedToken](r)
		if err != nil {
			return nil, err
		}
		doc.UsedAt = uses.byName[doc.ID].UpdatedAt
		tokens = append(tokens, doc.Token)
	}
	slices.SortFunc(tokens, func(x, y Token) int {
		return 2*y.CreatedAt.Compare(x.CreatedAt) + strings.Compare(x.ID, y.ID)
	})
	return tokens, nil
}

// RevokeToken revokes a token, in this process at once and in others within two seconds. The error is ErrNotFound if
// the token does not exist.
func (b *Book) RevokeToken(ctx context.Context, id string) error {
	return change(ctx, b, tokenRecord, id, func(doc *storedToken, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		if doc.RevokedAt.IsZero() {
			doc.RevokedAt = time.Now().UTC().Truncate(time.Second)
		}
		return true, nil
	})
}

// byToken returns the identity of a secret.
func (b *Book) byToken(ctx context.Context, secret string) (Identity, error) {
	parts := strings.Split(secret, "_")
	if len(parts) != 3 || parts[0] != "tusk" {
		return Identity{}, ErrNotFound
	}
	r, err := b.find(ctx, tokenRecord, parts[1])
	if err != nil {
		return Identity{}, err
	}
	doc, err := decode[storedToken](r)
	if err != nil {
		return Identity{}, err
	}
	if subtle.ConstantTimeCompare([]byte(doc.Hash), []byte(digest(secret))) != 1 || !doc.Usable(time.Now()) {
		return Identity{}, ErrNotFound
	}
	b.used(ctx, doc.ID)
	return Identity{ID: "token:" + doc.ID, Name: doc.Name, Via: "token", Role: doc.Role, Queues: doc.Queues,
		Tenants: doc.Tenants}, nil
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails, as its documentation promises
	return hex.EncodeToString(b)
}

// usedEvery is the accuracy of a token's last use.
const usedEvery = 10 * time.Minute

// used records that a token was used. It writes a separate record, so that it cannot conflict with a revocation. A
// use that cannot be recorded is lost.
func (b *Book) used(ctx context.Context, id string) {
	b.mu.Lock()
	recent := time.Since(b.uses[id]) < usedEvery
	if !recent {
		b.uses[id] = time.Now()
	}
	b.mu.Unlock()
	if recent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	uses, err := b.page(ctx, useRecord, 0)
	if err != nil {
		return
	}
	r := uses.byName[id]
	if time.Since(r.UpdatedAt) < usedEvery {
		return // another process has recorded it
	}
	_, _, _ = b.store.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: useRecord, Name: id, Version: r.Version,
		Body: []byte("{}")}})
}
