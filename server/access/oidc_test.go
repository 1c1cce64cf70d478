package access_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// issuer is an OpenID provider that returns whatever a test needs.
type issuer struct {
	*httptest.Server
	key       *rsa.PrivateKey
	claims    map[string]any // override the valid ones
	challenge string
	nonce     string

	roles  map[string]access.Role   // default: some roles
	bounds map[string]access.Bounds // default: none
	// Called after the login. It is then no error if nobody is let in.
	loggedIn func(*access.Book)
}

func newIssuer(t *testing.T) *issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize",
			"token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}}})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		i.challenge, i.nonce = q.Get("code_challenge"), q.Get("nonce")
		if q.Get("code_challenge_method") != "S256" {
			http.Error(w, "no PKCE", 400)
			return
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=c&state="+url.QueryEscape(q.Get("state")), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if b64(sum[:]) != i.challenge || r.FormValue("code") != "c" {
			http.Error(w, "bad verifier", 400)
			return
		}
		answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.token(t)})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *issuer) token(t *testing.T) string {
	claims := map[string]any{"iss": i.URL, "aud": "tusk", "sub": "u1", "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "nonce": i.nonce,
		"email": "ada@example.com", "email_verified": true, "groups": []string{"staff", "ops"}}
	for name, v := range i.claims {
		claims[name] = v
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Error(err)
	}
	text := b64([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Error(err)
	}
	return text + "." + b64(signature)
}

func TestPeopleLogInElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		claims map[string]any
		status int
		who    access.Identity
	}{
		"a member of two groups gets the stronger role": {nil, 200,
			access.Identity{Name: "ada@example.com", Via: "session", Role: access.Operator}},
		"an unverified address is no name": {map[string]any{"email_verified": false}, 200,
			access.Identity{Name: "u1", Via: "session", Role: access.Operator}},
		"a group that only looks alike has no role": {map[string]any{"groups": []string{"ops-readonly", "xops", "Ops"}}, 403,
			access.Identity{}},
		"no groups":           {map[string]any{"groups": nil}, 403, access.Identity{}},
		"another's nonce":     {map[string]any{"nonce": "x"}, 401, access.Identity{}},
		"another's audience":  {map[string]any{"aud": "other"}, 401, access.Identity{}},
		"another's issuer":    {map[string]any{"iss": "https://evil.example"}, 401, access.Identity{}},
		"an expired identity": {map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, 401, access.Identity{}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			i.claims = c.claims
			got, status := logIn(t, i, nil)
			if status != c.status || got.Name != c.who.Name || got.Role != c.who.Role || got.Via != c.who.Via {
				t.Errorf("got %d %+v", status, got)
			}
			if id := "oidc:" + i.URL + "#u1"; status == 200 && got.ID != id {
				t.Errorf("identity %q, want %q", got.ID, id)
			}
		})
	}
	t.Run("a state of somebody else's", func(t *testing.T) {
		if got, status := logIn(t, newIssuer(t), func(q url.Values) { q.Set("state", "x") }); status != 401 {
			t.Error(status, got)
		}
	})
	t.Run("a code of somebody else's", func(t *testing.T) {
		if got, status := logIn(t, newIssuer(t), func(q url.Values) { q.Set("code", "x") }); status != 401 {
			t.Error(status, got)
		}
	})
}

// logIn goes through the whole login with a browser's cookies.
func logIn(t *testing.T, i *issuer, meddle func(url.Values)) (who access.Identity, status int) {
	gate := &access.Gate{Book: access.NewBook(memory.New())}
	mux := http.NewServeMux()
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	gate.Provider = &access.Provider{Issuer: i.URL, ClientID: "tusk", ClientSecret: "s", RedirectURL: site.URL + "/back",
		Roles: map[string]access.Role{"staff": access.Viewer, "ops": access.Operator}, Bounds: i.bounds}
	if i.roles != nil {
		gate.Provider.Roles = i.roles
	}
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		if err := gate.Begin(w, r); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/back", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if meddle != nil {
			meddle(q)
		}
		r.URL.RawQuery = q.Encode()
		switch _, err := gate.End(w, r); {
		case err == nil:
			http.Redirect(w, r, "/me", http.StatusSeeOther)
		case err.Error() == access.ErrNoRole.Error():
			http.Error(w, err.Error(), http.StatusForbidden)
		default:
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("/me", func(_ http.ResponseWriter, r *http.Request) {
		var err error
		if i.loggedIn != nil {
			i.loggedIn(gate.Book)
		}
		if who, err = gate.Identify(r); err != nil && i.loggedIn == nil {
			t.Error(err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&http.Client{Jar: jar}).Get(site.URL + "/login")
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	return who, a.StatusCode
}

func TestBoundsAreNamesOrTheirBeginnings(t *testing.T) {
	who := access.Identity{Queues: []string{"mail", "team-a.*"}, Tenants: []string{"acme"}}
	for queue, want := range map[string]bool{"mail": true, "mail2": false, "team-a.x": true, "team-a": false,
		"team-ab": false, "": false} {
		if who.Sees(queue, "acme") != want || who.Sees(queue, "umbrella") || who.Sees(queue, "") {
			t.Error(queue)
		}
	}
	if (access.Identity{}).May(access.Read) || !(access.Identity{}).May(access.Open) {
		t.Error("nobody may something")
	}
}
