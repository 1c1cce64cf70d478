package access_test

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// A token that another process has just made is good within a quarter of a second, and
// nobody who uses it is throttled.
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
		for range 20 { // more than the failures that an address may have
			secret, _, err := access.NewBook(s).CreateToken(t.Context(), access.Token{Name: "ci", Role: access.Viewer}, "test")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(250 * time.Millisecond)
			if err := ask(secret); err != nil {
				t.Fatal(err)
			}
		}
	})
}
