package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// User is a person who logs in with a password.
type User struct {
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Queues    []string  `json:"queues,omitempty"`
	Tenants   []string  `json:"tenants,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

type storedUser struct {
	User
	Hash string `json:"hash"`
}

// MinPassword is the smallest number of characters of a password. MaxPassword is the largest number of bytes; bcrypt
// reads no more.
const (
	MinPassword = 10
	MaxPassword = 72
)

// PutUser creates a user, or changes the user of that name, and ends the user's sessions. The error is ErrInvalid if
// an argument is invalid.
func (b *Book) PutUser(ctx context.Context, u User, password string) error {
	if !namePattern.MatchString(u.Name) {
		return fmt.Errorf("%w: name: want 1 to 64 letters, digits and . _ @ + -", ErrInvalid)
	}
	if _, err := ParseRole(string(u.Role)); err != nil {
		return fmt.Errorf("%w: role: %w", ErrInvalid, err)
	}
	if err := CheckBounds(u.Queues, u.Tenants); err != nil {
		return err
	}
	hash, err := hashOf(password)
	if err != nil {
		return err
	}
	err = change(ctx, b, userRecord, u.Name, func(doc *storedUser, exists bool) (bool, error) {
		if u.CreatedAt = doc.CreatedAt; !exists {
			u.CreatedAt = time.Now().UTC().Truncate(time.Second)
		}
		*doc = storedUser{User: u, Hash: hash}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("put user: %w", err)
	}
	return b.endSessions(ctx, func(_ string, s session) bool { return s.User == u.Name })
}

// RemoveUser deletes a user and ends the user's sessions. The error is ErrNotFound if the user does not exist.
func (b *Book) RemoveUser(ctx context.Context, name string) error {
	err := change(ctx, b, userRecord, name, func(_ *storedUser, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return b.endSessions(ctx, func(_ string, s session) bool { return s.User == name })
}

// Users lists all users by name.
func (b *Book) Users(ctx context.Context) ([]User, error) {
	p, err := b.page(ctx, userRecord, 0)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	users := make([]User, 0, len(p.byName))
	for _, r := range p.byName {
		doc, err := decode[storedUser](r)
		if err != nil {
			return nil, err
		}
		users = append(users, doc.User)
	}
	slices.SortFunc(users, func(x, y User) int { return strings.Compare(x.Name, y.Name) })
	return users, nil
}

// nobody is a hash that makes an unknown name take as long as a wrong password. It is a constant because computing it
// would delay every program start by a tenth of a second.
var nobody = []byte("$2a$10$M06AnfHXOgzbPpxGJX16IuCvBeKg0uu8yc6My56K/LnLWqsbUAX6.")

// ErrWrong says that a name or a password is wrong, but not which of them.
var ErrWrong = errors.New("name or password is wrong")

// Login checks a password and begins a session. The error is ErrWrong.
func (b *Book) Login(ctx context.Context, name, password string) (cookie string, who Identity, err error) {
	r, err := b.findNow(ctx, userRecord, name) // the same way for every name
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", who, err
	}
	hash := nobody
	var doc storedUser
	if err == nil {
		if doc, err = decode[storedUser](r); err != nil {
			return "", who, err
		}
		hash = []byte(doc.Hash)
	}
	right, err := b.compare(ctx, hash, password)
	if err != nil {
		return "", who, err
	}
	if !right || doc.Name == "" {
		return "", who, ErrWrong
	}
	who = doc.identity()
	cookie, err = b.begin(ctx, session{User: doc.Name, Password: digest(doc.Hash)})
	return cookie, who, err
}

func userID(name string) string { return "user:" + name }

// Local reports whether the identity is a user of this server, who logs in with a password.
func (i Identity) Local() bool { return i.ID == userID(i.Name) }

// compare checks a password against a hash. It may have to wait: hashing is slow by design, and may use at most half
// of the processors.
func (b *Book) compare(ctx context.Context, hash []byte, password string) (right bool, err error) {
	select {
	case b.hashing <- struct{}{}:
		defer func() { <-b.hashing }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return len(password) <= MaxPassword && bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil, nil
}

func (u User) identity() Identity {
	return Identity{ID: userID(u.Name), Name: u.Name, Via: "session", Role: u.Role, Queues: u.Queues, Tenants: u.Tenants}
}
