package access

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// Gate identifies who sent a request.
type Gate struct {
	Book *Book
	// Dev lets everybody in as an admin. It is meant only for a loopback address.
	Dev bool
	// Secure says that browsers reach the server only by HTTPS.
	Secure bool
	// Path is the path of cookies; the default is "/".
	Path string
	// Provider logs people in elsewhere. Nil means that no provider is used.
	Provider *Provider

	failures failures
}

// Errors that say why a request was not let in.
var (
	ErrUnauthenticated = errors.New("no valid token or session")
	ErrTooMany         = errors.New("too many failed logins: try again later")
)

// Identify returns who sent a request.
//
// Errors: ErrUnauthenticated; ErrTooMany; others if the store fails.
func (g *Gate) Identify(r *http.Request) (Identity, error) {
	if g.Dev {
		return Identity{ID: "dev", Name: "dev", Via: "dev", Role: Admins}, nil
	}
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		who, err := g.Book.byToken(r.Context(), strings.TrimSpace(secret))
		if !errors.Is(err, ErrNotFound) {
			return who, err // a valid token is accepted, whatever others at its address send
		}
		if _, room := g.failures.begin(time.Now(), quota{"token " + origin(r), tokenBurst}); !room {
			return Identity{}, ErrTooMany
		}
		return Identity{}, ErrUnauthenticated
	}
	cookie, err := r.Cookie(g.CookieName())
	if err != nil {
		return Identity{}, ErrUnauthenticated
	}
	who, err := g.Book.BySession(r.Context(), cookie.Value)
	if errors.Is(err, ErrNotFound) {
		return Identity{}, ErrUnauthenticated
	}
	return who, err
}

// Login logs a local user in and sets the session's cookie.
//
// Errors: ErrWrong; ErrTooMany; others if the store fails.
func (g *Gate) Login(w http.ResponseWriter, r *http.Request, name, password string) (Identity, error) {
	if !namePattern.MatchString(name) {
		name = "" // no user can have such a name; count all of these together
	}
	// Count by name and address together, so that nobody can lock out somebody else.
	from := "login " + origin(r)
	counted, room := g.failures.begin(time.Now(), quota{from, addressBurst}, quota{from + " " + name, loginBurst})
	if !room {
		return Identity{}, ErrTooMany
	}
	cookie, who, err := g.Book.Login(r.Context(), name, password)
	if err != nil {
		if !errors.Is(err, ErrWrong) {
			counted.right() // the password was not checked
		}
		return Identity{}, err
	}
	counted.right()
	g.setCookie(w, g.CookieName(), cookie, sessionLasts)
	return who, nil
}

// Logout ends the request's session.
func (g *Gate) Logout(w http.ResponseWriter, r *http.Request) error {
	cookie, err := r.Cookie(g.CookieName())
	if err != nil {
		return nil
	}
	g.setCookie(w, g.CookieName(), "", -time.Second)
	return g.Book.Logout(r.Context(), cookie.Value)
}

// CookieName returns the name of the session cookie. With the prefix, browsers refuse it from other hosts and over
// plain HTTP.
func (g *Gate) CookieName() string {
	if g.Secure {
		return "__Host-tusk"
	}
	return "tusk_session"
}

func (g *Gate) setCookie(w http.ResponseWriter, name, value string, lasts time.Duration) {
	path := "/"
	if g.Path != "" && !g.Secure { // __Host- requires the path /
		path = g.Path
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: path, MaxAge: int(lasts / time.Second),
		HttpOnly: true, Secure: g.Secure, SameSite: http.SameSiteLaxMode})
}
