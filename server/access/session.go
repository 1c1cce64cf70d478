package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Sessions end after a working day, whatever happens in them.
const (
	sessionLasts = 12 * time.Hour
	maxSessions  = 10000
	ownSessions  = 20 // of one person: a new login ends the oldest
)

// session is stored under the hash of its cookie, so that who reads the database
// cannot take it over.
type session struct {
	User      string    `json:"user,omitempty"` // a local user
	Outside   *Identity `json:"outside,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (b *Book) begin(ctx context.Context, s session) (cookie string, err error) {
	if err := b.endSessions(ctx, func(s session) bool { return time.Now().After(s.ExpiresAt) }); err != nil {
		return "", err
	}
	if err := b.makeRoom(ctx, s); err != nil {
		return "", err
	}
	cookie = randomHex(32)
	s.ExpiresAt = time.Now().Add(sessionLasts).UTC()
	err = change(ctx, b, sessionRecord, digest(cookie), func(doc *session, _ bool) (bool, error) {
		*doc = s
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	return cookie, nil
}

// ErrFull says that there are more sessions than the server keeps.
var ErrFull = errors.New("too many people are logged in: try again later")

// makeRoom ends the oldest sessions of a person who has too many.
func (b *Book) makeRoom(ctx context.Context, s session) error {
	p, err := b.page(ctx, sessionRecord, refresh)
	if err != nil {
		return err
	}
	var own []time.Time
	for _, r := range p.byName {
		other, err := decode[session](r)
		if err != nil {
			return err
		}
		if other.person() == s.person() {
			own = append(own, other.ExpiresAt)
		}
	}
	switch {
	case len(own) >= ownSessions:
		slices.SortFunc(own, time.Time.Compare)
		last := own[len(own)-ownSessions]
		return b.endSessions(ctx, func(other session) bool { return other.person() == s.person() && !other.ExpiresAt.After(last) })
	case len(p.byName) >= maxSessions:
		return ErrFull
	}
	return nil
}

// person is whose session it is: a local user, or somebody who logs in elsewhere.
func (s session) person() string {
	if s.Outside != nil {
		return s.Outside.ID
	}
	return userID(s.User)
}

// BySession returns whom a session's cookie stands for. The error is ErrNotFound
// when the session is over.
func (b *Book) BySession(ctx context.Context, cookie string) (Identity, error) {
	r, err := b.find(ctx, sessionRecord, digest(cookie))
	if err != nil {
		return Identity{}, err
	}
	s, err := decode[session](r)
	if err != nil {
		return Identity{}, err
	}
	if time.Now().After(s.ExpiresAt) {
		return Identity{}, ErrNotFound
	}
	if s.Outside != nil {
		return *s.Outside, nil
	}
	u, err := b.find(ctx, userRecord, s.User)
	if err != nil {
		return Identity{}, err
	}
	doc, err := decode[storedUser](u)
	return doc.identity(), err
}

// Logout ends a session.
func (b *Book) Logout(ctx context.Context, cookie string) error {
	return change(ctx, b, sessionRecord, digest(cookie), func(*session, bool) (bool, error) { return false, nil })
}

func (b *Book) endSessions(ctx context.Context, over func(session) bool) error {
	p, err := b.page(ctx, sessionRecord, 0)
	if err != nil {
		return err
	}
	defer b.forget(sessionRecord)
	for _, r := range p.byName {
		s, err := decode[session](r)
		if err != nil {
			return err
		}
		if !over(s) {
			continue
		}
		r.Body = nil
		if _, _, err := b.store.PutRecord(ctx, store.PutRecord{Record: r}); err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("session: %w", err)
		}
	}
	return nil
}
