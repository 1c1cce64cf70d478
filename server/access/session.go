package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A session ends after a working day, even if it is in use.
const (
	sessionLasts = 12 * time.Hour
	maxSessions  = 10000
	ownSessions  = 20 // of one person; a new login ends the oldest one
)

// session is stored under the hash of its cookie, so that somebody who reads the database cannot take it over.
type session struct {
	User    string    `json:"user,omitempty"` // a local user
	Outside *Identity `json:"outside,omitempty"`
	// Password is the digest of the user's password hash at login.
	Password  string    `json:"password,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (b *Book) begin(ctx context.Context, s session) (cookie string, err error) {
	if err := b.endSessions(ctx, func(_ string, s session) bool { return time.Now().After(s.ExpiresAt) }); err != nil {
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

// ErrFull says that the server has reached its limit of sessions.
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
		return b.endSessions(ctx, func(_ string, other session) bool {
			return other.person() == s.person() && !other.ExpiresAt.After(last)
		})
	case len(p.byName) >= maxSessions:
		return ErrFull
	}
	return nil
}

// person returns whose session it is: a local user, or somebody who logged in elsewhere.
func (s session) person() string {
	if s.Outside != nil {
		return s.Outside.ID
	}
	return userID(s.User)
}

// BySession returns the identity of a session cookie. The error is ErrNotFound if the session is over.
func (b *Book) BySession(ctx context.Context, cookie string) (Identity, error) {
	who, err := b.bySession(ctx, b.find, cookie)
	if errors.Is(err, ErrNotFound) { // another process may have changed the password a moment ago
		return b.bySession(ctx, b.findNow, cookie)
	}
	return who, err
}

// find reads a record. There are two implementations.
type find func(ctx context.Context, kind, name string) (store.Record, error)

func (b *Book) bySession(ctx context.Context, read find, cookie string) (Identity, error) {
	r, err := read(ctx, sessionRecord, digest(cookie))
	if err != nil {
		return Identity{}, err
	}
	s, err := decode[session](r)
	if err != nil {
		return Identity{}, err
	}
	return b.whose(ctx, s)
}

// whose returns the identity of a session. The error is ErrNotFound if the session is over. A session with another
// password is over: its login may have been in progress while the password was changed, so that it began after all
// other sessions were ended.
func (b *Book) whose(ctx context.Context, s session) (Identity, error) {
	if time.Now().After(s.ExpiresAt) {
		return Identity{}, ErrNotFound
	}
	if s.Outside != nil {
		return *s.Outside, nil
	}
	for _, read := range []find{b.find, b.findNow} {
		u, err := read(ctx, userRecord, s.User)
		if err != nil {
			return Identity{}, err
		}
		doc, err := decode[storedUser](u)
		if err != nil || digest(doc.Hash) == s.Password {
			return doc.identity(), err
		}
	}
	return Identity{}, ErrNotFound
}

// Person is somebody who is logged in.
type Person struct {
	Identity
	Sessions  int       `json:"sessions"`
	ExpiresAt time.Time `json:"expires_at"` // when the last session ends
}

// People lists the people who are logged in, by identity.
func (b *Book) People(ctx context.Context) ([]Person, error) {
	p, err := b.page(ctx, sessionRecord, 0)
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	byID := map[string]Person{}
	for _, r := range p.byName {
		s, err := decode[session](r)
		if err != nil {
			return nil, err
		}
		who, err := b.whose(ctx, s)
		switch {
		case errors.Is(err, ErrNotFound):
			continue // the session is over, or the user was removed
		case err != nil:
			return nil, err
		}
		last := byID[who.ID]
		byID[who.ID] = Person{who, last.Sessions + 1, latest(last.ExpiresAt, s.ExpiresAt)}
	}
	return slices.SortedFunc(maps.Values(byID), func(x, y Person) int { return strings.Compare(x.ID, y.ID) }), nil
}

func latest(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// EndSessions logs out an identity everywhere, including one that logged in elsewhere. It takes two seconds to reach
// every process. The error is ErrNotFound if the identity is not logged in.
func (b *Book) EndSessions(ctx context.Context, identity string) error {
	found := false
	err := b.endSessions(ctx, func(_ string, s session) bool {
		mine := s.person() == identity
		found = found || mine
		return mine
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// Logout ends a session.
func (b *Book) Logout(ctx context.Context, cookie string) error {
	return change(ctx, b, sessionRecord, digest(cookie), func(*session, bool) (bool, error) { return false, nil })
}

// endSessions ends the sessions for which over returns true. It gets the name of the record and the session.
func (b *Book) endSessions(ctx context.Context, over func(name string, s session) bool) error {
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
		if !over(r.Name, s) {
			continue
		}
		r.Body = nil
		if _, _, err := b.store.PutRecord(ctx, store.PutRecord{Record: r}); err != nil && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("session: %w", err)
		}
	}
	return nil
}
