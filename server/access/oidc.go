package access

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Provider logs people in at an OpenID provider: authorization code with PKCE,
// state and nonce.
type Provider struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	RedirectURL  string // …/login/oidc/callback, as registered with the provider
	// Claim holds a person's groups; default: "groups". Roles says which role each
	// group has, compared exactly. Who has several gets the strongest.
	Claim string
	Roles map[string]Role
	// Client talks to the provider; default: one with a timeout.
	Client *http.Client

	mu       sync.Mutex
	provider *oidc.Provider
}

// ErrNoRole says that a person is known but has no role here.
var ErrNoRole = errors.New("your account has no role here")

const loginCookie = "tusk_oidc"

// attempt is what a browser keeps while its person logs in elsewhere.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Begin sends a browser to the provider.
func (g *Gate) Begin(w http.ResponseWriter, r *http.Request) error {
	p := g.Provider
	config, _, err := p.connect(r.Context())
	if err != nil {
		return err
	}
	a := attempt{State: randomHex(16), Nonce: randomHex(16), Verifier: oauth2.GenerateVerifier()}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	g.setCookie(w, loginCookie, base64.RawURLEncoding.EncodeToString(body), 10*time.Minute)
	http.Redirect(w, r, config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusFound)
	return nil
}

// End takes a browser back from the provider and begins a session.
//
// Errors: ErrUnauthenticated for what does not fit together; ErrNoRole.
func (g *Gate) End(w http.ResponseWriter, r *http.Request) (Identity, error) {
	a, err := attemptOf(r)
	g.setCookie(w, loginCookie, "", -time.Second)
	if err != nil || subtle.ConstantTimeCompare([]byte(a.State), []byte(r.FormValue("state"))) != 1 {
		return Identity{}, ErrUnauthenticated
	}
	who, err := g.Provider.identify(r.Context(), r.FormValue("code"), a)
	if err != nil {
		return Identity{}, err
	}
	cookie, err := g.Book.begin(r.Context(), session{Outside: &who})
	if err != nil {
		return Identity{}, err
	}
	g.setCookie(w, g.CookieName(), cookie, sessionLasts)
	return who, nil
}

func attemptOf(r *http.Request) (a attempt, err error) {
	cookie, err := r.Cookie(loginCookie)
	if err != nil {
		return a, err
	}
	body, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, err
	}
	if a.State == "" || a.Nonce == "" || a.Verifier == "" {
		return a, ErrUnauthenticated
	}
	return a, nil
}

func (p *Provider) identify(ctx context.Context, code string, a attempt) (Identity, error) {
	config, provider, err := p.connect(ctx)
	if err != nil {
		return Identity{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client())
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, fmt.Errorf("%w: the provider refused the code", ErrUnauthenticated)
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := provider.Verifier(&oidc.Config{ClientID: p.ClientID}).Verify(ctx, raw)
	if err != nil || subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(a.Nonce)) != 1 {
		return Identity{}, fmt.Errorf("%w: the provider's answer does not verify", ErrUnauthenticated)
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	who := Identity{ID: "oidc:" + verified.Issuer + "#" + verified.Subject, Name: nameOf(claims, verified.Subject), Via: "session", Role: p.roleOf(claims)}
	if who.Role == "" {
		return Identity{}, ErrNoRole
	}
	return who, nil
}

// nameOf prefers a name that people know; an unverified address is nobody's.
func nameOf(claims map[string]any, subject string) string {
	if email, _ := claims["email"].(string); email != "" && claims["email_verified"] == true {
		return cut(email, 64)
	}
	return cut(subject, 64)
}

func (p *Provider) roleOf(claims map[string]any) (best Role) {
	claim := p.Claim
	if claim == "" {
		claim = "groups"
	}
	var groups []string
	switch v := claims[claim].(type) {
	case string:
		groups = []string{v}
	case []any:
		for _, g := range v {
			if text, ok := g.(string); ok {
				groups = append(groups, text)
			}
		}
	}
	for _, g := range groups {
		role, ok := p.Roles[g]
		if ok && slices.Index(Roles(), role) > slices.Index(Roles(), best) {
			best = role
		}
	}
	return best
}

// connect asks the provider for its addresses, once it can be reached.
func (p *Provider) connect(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.provider == nil {
		// The provider keeps its context for later requests.
		provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client()), p.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("login provider: %w", err)
		}
		p.provider = provider
	}
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: p.RedirectURL,
		Endpoint: p.provider.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}, p.provider, nil
}

func (p *Provider) client() *http.Client {
	if p.Client != nil {
		return p.Client
	}
	return &http.Client{Timeout: 10 * time.Second}
}
