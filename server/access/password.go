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

// SetPassword gives a user another password, and ends the user's sessions. The role and the
// bounds stay. Errors: ErrNotFound; ErrInvalid for the password.
func (b *Book) SetPassword(ctx context.Context, name, password string) error {
	return b.setPassword(ctx, name, password, "", func(storedUser) error { return nil })
}

// setPassword does so if the user passes a check, and keeps the session of one cookie.
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

// ChangePassword gives the user of the request's session another password, who knows the
// present one, and ends the user's other sessions. Guesses are counted as those at a login.
//
// Errors: ErrUnauthenticated without a session of a local user; ErrWrong; ErrTooMany;
// ErrInvalid for the new password.
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
		counted.right() // nothing was found out, or nothing that was not known
	}
	return err
}

// localUser returns the name of the user of this server that a session's cookie stands for.
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
