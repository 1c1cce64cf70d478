package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// hashOf checks the length of a new password and hashes it.
func hashOf(password string) (string, error) {
	if n := utf8.RuneCountInString(password); n < MinPassword {
		return "", fmt.Errorf("%w: password: has %d characters, want %d at least", ErrInvalid, n, MinPassword)
	}
	if len(password) > MaxPassword {
		return "", fmt.Errorf("%w: password: has %d bytes, want %d at most", ErrInvalid, len(password), MaxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	return string(hash), nil
}

// SetPassword changes a user's password and ends the user's sessions. The role and bounds stay. Errors: ErrNotFound;
// ErrInvalid if the password is invalid.
func (b *Book) SetPassword(ctx context.Context, name, password string) error {
	return b.setPassword(ctx, name, password, "", func(storedUser) error { return nil })
}

// setPassword does that if the user passes a check. It keeps the session of the cookie.
func (b *Book) setPassword(ctx context.Context, name, password, cookie string, check func(storedUser) error) error {
	hash, err := hashOf(password)
	if err != nil {
		return err
	}
	err = change(ctx, b, userRecord, name, func(doc *storedUser, exists bool) (bool, error) {
		if !exists {
			return false, ErrNotFound
		}
		if err := check(*doc); err != nil {
			return false, err
		}
		doc.Hash = hash
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("password: %w", err)
	}
	own := ""
	if cookie != "" {
		own = digest(cookie)
		err := change(ctx, b, sessionRecord, own, func(doc *session, exists bool) (bool, error) {
			doc.Password = digest(hash)
			return exists, nil
		})
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	return b.endSessions(ctx, func(record string, s session) bool { return s.User == name && record != own })
}

// ChangePassword changes the password of the user of the request's session, who must know the present one, and ends
// the user's other sessions. Guesses are counted like those at a login.
//
// Errors: ErrUnauthenticated if there is no session of a local user; ErrWrong; ErrTooMany; ErrInvalid if the new
// password is invalid.
func (g *Gate) ChangePassword(r *http.Request, present, password string) error {
	cookie, err := r.Cookie(g.CookieName())
	if err != nil {
		return ErrUnauthenticated
	}
	name, err := g.Book.localUser(r.Context(), cookie.Value)
	if err != nil {
		return err
	}
	counted, room := g.failures.begin(time.Now(), quota{"password " + name, loginBurst})
	if !room {
		return ErrTooMany
	}
	err = g.Book.setPassword(r.Context(), name, password, cookie.Value, func(u storedUser) error {
		right, err := g.Book.compare(r.Context(), []byte(u.Hash), present)
		if err == nil && !right {
			err = ErrWrong
		}
		return err
	})
	if !errors.Is(err, ErrWrong) {
		counted.right() // the guess was right, or revealed nothing
	}
	return err
}

// localUser returns the name of the local user that a session cookie belongs to.
func (b *Book) localUser(ctx context.Context, cookie string) (string, error) {
	who, err := b.BySession(ctx, cookie)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && !who.Local():
		return "", ErrUnauthenticated
	case err != nil:
		return "", err
	}
	return who.Name, nil
}
