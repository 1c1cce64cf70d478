package hook

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestOneHookTooManyIsRefused(t *testing.T) {
	book := NewBook(memory.New(), nil, notifytest.Sender(t))
	put := func(i int) error {
		_, _, err := book.Put(t.Context(), Hook{Name: fmt.Sprint("h", i), URL: "https://example.com/hook"}, "ada")
		return err
	}
	for i := range MaxHooks {
		if err := put(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(MaxHooks); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "there are 50 hooks") {
		t.Errorf("one hook too many: %v", err)
	}
	if err := put(0); err != nil {
		t.Errorf("a change: %v", err)
	}
	if err := book.Remove(t.Context(), "h0"); err != nil {
		t.Fatal(err)
	}
	if err := put(MaxHooks); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
}
