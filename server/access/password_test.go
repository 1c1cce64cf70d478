package access

import (
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/memory"
)

// A login that is being checked while the password changes must not begin a session that outlives the change.
func TestALoginWithTheOldPasswordEndsWithIt(t *testing.T) {
	for name, change := range map[string]func(*Book) error{
		"set": func(b *Book) error { return b.SetPassword(t.Context(), "ada", "another password") },
		"put": func(b *Book) error {
			return b.PutUser(t.Context(), User{Name: "ada", Role: Viewer}, "another password")
		},
		"removed and made anew": func(b *Book) error {
			return errors.Join(b.RemoveUser(t.Context(), "ada"),
				b.PutUser(t.Context(), User{Name: "ada", Role: Viewer}, "the old password"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			b, other := NewBook(s), NewBook(s)
			if err := b.PutUser(t.Context(), User{Name: "ada", Role: Admins}, "the old password"); err != nil {
				t.Fatal(err)
			}
			for range cap(b.hashing) { // other password comparisons: the login waits for its turn
				b.hashing <- struct{}{}
			}
			done := make(chan string, 1)
			go func() {
				cookie, _, err := b.Login(t.Context(), "ada", "the old password")
				if err != nil {
					t.Error(err)
				}
				done <- cookie
			}()
			for read := false; !read; time.Sleep(time.Millisecond) { // until the user is read
				b.mu.Lock()
				read = len(b.asking) == 0 && time.Since(b.cache[userRecord].at) < time.Second
				b.mu.Unlock()
			}
			time.Sleep(300 * time.Millisecond)
			if err := change(other); err != nil {
				t.Fatal(err)
			}
			for range cap(b.hashing) {
				<-b.hashing
			}
			cookie := <-done
			time.Sleep(refresh) // a revocation takes this long
			for process, book := range map[string]*Book{"this": b, "another": other, "a third": NewBook(s)} {
				if who, err := book.BySession(t.Context(), cookie); !errors.Is(err, ErrNotFound) {
					t.Errorf("%s process: %+v, %v", process, who, err)
				}
			}
			if cookie, _, err := b.Login(t.Context(), "ada", "another password"); err == nil {
				if _, err := other.BySession(t.Context(), cookie); err != nil {
					t.Errorf("a login with the new password: %v", err)
				}
			}
		})
	}
}
