package alert

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestOneAlertTooManyIsRefused(t *testing.T) {
	book := NewBook(memory.New(), nil, notifytest.Sender(t))
	put := func(i int) error {
		_, _, err := book.Put(t.Context(), Rule{Name: fmt.Sprint("a", i), Kind: NoLeader,
			To: notify.Receivers(nil, nil, []string{"ops@example.com"})}, "ada")
		return err
	}
	for i := range MaxRules {
		if err := put(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(MaxRules); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "there are 200 alerts") {
		t.Errorf("one alert too many: %v", err)
	}
	if err := put(0); err != nil {
		t.Errorf("a change: %v", err)
	}
	if err := book.Remove(t.Context(), "a0"); err != nil {
		t.Fatal(err)
	}
	if err := put(MaxRules); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
}
