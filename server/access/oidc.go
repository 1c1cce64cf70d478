package access

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Provider logs people in with an OpenID provider: authorization code with PKCE, state and nonce.
type Provider struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	RedirectURL  string // …/login/oidc/callback, as registered with the provider
	// Claim names the claim with a person's groups; the default is "groups". Roles maps each group to a role; names
	// are compared exactly. A person in several groups gets the strongest role.
	Claim string
	Roles map[string]Role
	// Bounds limit the members of a group. If several groups give the strongest role, one without bounds wins,
	// otherwise the first by name.
	Bounds map[string]Bounds
	// Client talks to the provider. The default is a client with a timeout.
	Client *http.Client

	mu     sync.Mutex
	latest *discovery
}

// Check rejects an issuer whose responses others could forge in transit.
func (p *Provider) Check() error {
	u, err := url.Parse(p.Issuer)
	if err != nil || u.Host == "" {
		return errors.New("OpenID issuer: want a URL such as https://id.example.com")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.IsLoopback()) {
		return nil
	}
	return errors.New("OpenID issuer: want https: over plain HTTP anybody on the way could log in as anybody")
}

// ErrNoRole says that a person is known but has no role here.
var ErrNoRole = errors.New("your account has no role here")

// loginCookie returns the name of the cookie for a login in progress. The prefix keeps other hosts of the domain from
// setting it.
func (g *Gate) loginCookie() string {
	if g.Secure {
		return "__Host-tusk_oidc"
	}
	return "tusk_oidc"
}

// attempt is what a browser stores while its user logs in elsewhere.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Begin redirects a browser to the provider.
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
	g.setCookie(w, g.loginCookie(), base64.RawURLEncoding.EncodeToString(body), 10*time.Minute)
	http.Redirect(w, r, config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)),
		http.StatusFound)
	return nil
}

// End receives a browser from the provider and begins a session.
//
// Errors: ErrUnauthenticated if the state or the code does not match; ErrNoRole.
func (g *Gate) End(w http.ResponseWriter, r *http.Request) (Identity, error) {
	a, err := g.attemptOf(r)
	g.setCookie(w, g.loginCookie(), "", -time.Second)
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

func (g *Gate) attemptOf(r *http.Request) (a attempt, err error) {
	cookie, err := r.Cookie(g.loginCookie())
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
	who := Identity{ID: "oidc:" + verified.Issuer + "#" + verified.Subject, Name: nameOf(claims, verified.Subject),
		Via: "session"}
	who.Role, who.Queues, who.Tenants = p.allow(claims)
	if who.Role == "" {
		return Identity{}, ErrNoRole
	}
	return who, nil
}

// nameOf prefers a verified mail address. An unverified one may belong to anybody.
func nameOf(claims map[string]any, subject string) string {
	if email, _ := claims["email"].(string); email != "" && claims["email_verified"] == true {
		return cut(email, 64)
	}
	return cut(subject, 64)
}

// Bounds are the queues and tenants that somebody is limited to: names, or prefixes that end in *. Empty means all.
type Bounds struct{ Queues, Tenants []string }

// allow returns the strongest role of a person's groups, with the bounds of the group that gives it.
func (p *Provider) allow(claims map[string]any) (best Role, queues, tenants []string) {
	var bounds Bounds
	for _, g := range p.groupsOf(claims) {
		role, known := p.Roles[g]
		of := p.Bounds[g]
		stronger := slices.Index(Roles(), role) > slices.Index(Roles(), best)
		if known && (stronger || role == best && len(of.Queues)+len(of.Tenants) == 0) {
			best, bounds = role, of
		}
	}
	return best, bounds.Queues, bounds.Tenants
}

// groupsOf lists a person's groups by name.
func (p *Provider) groupsOf(claims map[string]any) (groups []string) {
	claim := p.Claim
	if claim == "" {
		claim = "groups"
	}
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
	slices.Sort(groups)
	return groups
}

// connect returns the provider's configuration, once it can be reached. Concurrent callers wait for the same answer.
// A failure is returned again for a moment.
func (p *Provider) connect(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	d := p.discover()
	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("login provider: %w", ctx.Err())
	}
	if d.err != nil {
		return nil, nil, fmt.Errorf("login provider: %w", d.err)
	}
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: p.RedirectURL,
		Endpoint: d.provider.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}, d.provider, nil
}

// discovery is one request for the provider's configuration.
type discovery struct {
	done     chan struct{} // closed when the fields below are set
	provider *oidc.Provider
	err      error
	at       time.Time
}

// failed reports whether it failed long enough ago to try again.
func (d *discovery) failed(now time.Time) bool {
	select {
	case <-d.done:
		return d.err != nil && now.Sub(d.at) > discoverAgain
	default:
		return false
	}
}

const (
	discoverWithin = 10 * time.Second
	discoverAgain  = 2 * time.Second // after a failure
)

func (p *Provider) discover() *discovery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest != nil && !p.latest.failed(time.Now()) {
		return p.latest
	}
	d := &discovery{done: make(chan struct{})}
	p.latest = d
	go func() {
		defer close(d.done)
		ctx, cancel := context.WithTimeout(oidc.ClientContext(context.Background(), p.client()), discoverWithin)
		defer cancel()
		d.provider, d.err = oidc.NewProvider(ctx, p.Issuer)
		d.at = time.Now()
	}()
	return d
}

func (p *Provider) client() *http.Client {
	if p.Client != nil {
		return p.Client
	}
	return &http.Client{Timeout: 10 * time.Second}
}
