package access_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// A token that another process has created is valid from then on, and using it is not throttled.
func TestATokenOfAnotherProcessIsGoodAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		here := &access.Gate{Book: access.NewBook(s)}
		ask := func(secret string) error {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", "Bearer "+secret)
			_, err := here.Identify(r)
			return err
		}
		if err := ask("tusk_none_none"); err == nil {
			t.Fatal("a token that nobody made is good")
		}
		began := time.Now()
		for range 20 { // more than the failures allowed for an address
			secret, _, err := access.NewBook(s).CreateToken(t.Context(), access.Token{Name: "ci", Role: access.Viewer}, "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(secret); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 3*time.Second {
			t.Errorf("20 unknown tokens had all tokens read 20 times in %v", took)
		}
	})
}

// A login with one server is valid with all of them, even with a name or a password that was set a moment ago.
func TestALoginHoldsAtEveryServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		here, there := access.NewBook(s), access.NewBook(s)
		for _, password := range []string{"the first password", "the second password"} {
			if _, _, err := here.Login(t.Context(), "ada", password); !errors.Is(err, access.ErrWrong) {
				t.Fatalf("%q, which nobody has set: %v", password, err)
			}
			if err := there.PutUser(t.Context(), access.User{Name: "ada", Role: access.Viewer}, password); err != nil {
				t.Fatal(err)
			}
			cookie, _, err := here.Login(t.Context(), "ada", password)
			if err != nil {
				t.Fatal(err)
			}
			if who, err := there.BySession(t.Context(), cookie); err != nil || who.Name != "ada" {
				t.Errorf("%+v: %v", who, err)
			}
		}
	})
}
