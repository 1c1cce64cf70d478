package hook

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/server/sealtest"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestSecretsOfHooksAreEncryptedAndKeysRotated(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	sender := notifytest.Sender(t)
	with := func(ring *tusk.KeyRing) *Book { return NewBook(s, ring, sender) }
	put := func(b *Book) string {
		secret, _, err := b.Put(ctx, Hook{Name: "a", URL: "https://example.com/hook"}, "ada")
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	read := func(b *Book) (string, error) {
		docs, err := b.documents(ctx)
		if err != nil || len(docs) != 1 {
			t.Fatal(docs, err)
		}
		return b.secret(&docs[0])
	}
	stored := func() string { return sealtest.Stored(t, s, hookKind) }
	secret := put(with(nil))
	if err := with(sealtest.Ring("old")).Reseal(ctx); err != nil || strings.Contains(stored(), secret) {
		t.Errorf("a secret that was stored before there was a ring: %s, %v", stored(), err)
	}
	if again := put(with(sealtest.Ring("old"))); again != "" {
		t.Error("a change makes a new secret although the old one can be read")
	}
	err := with(sealtest.Ring("new")).Reseal(ctx)
	if !errors.Is(err, notify.ErrSealed) || !strings.Contains(err.Error(), "hook a") {
		t.Errorf("a ring without the key: %v", err)
	}
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	New(with(sealtest.Ring("new", "old")), slog.New(slog.DiscardHandler), 0, 0).Run(soon) // as when a server starts
	if got, err := read(with(sealtest.Ring("new"))); err != nil || got != secret {
		t.Errorf("after the rotation: %q, %v, want %q", got, err, secret)
	}
	before := stored()
	if err := with(sealtest.Ring("new", "old")).Reseal(ctx); err != nil || stored() != before {
		t.Errorf("what is current is sealed anew: %v", err)
	}
	for _, ring := range []*tusk.KeyRing{sealtest.Ring("third"), nil} {
		_, _, err := with(ring).Put(ctx, Hook{Name: "a", URL: "https://example.com/other"}, "ada")
		if !errors.Is(err, notify.ErrSealed) || stored() != before {
			t.Errorf("a put without the key: %v", err)
		}
	}
	if err := with(nil).Remove(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if fresh := put(with(sealtest.Ring("third"))); fresh == "" || fresh == secret {
		t.Errorf("after the key was lost: %q", fresh)
	}
}

// failing keeps ends once, and then fails.
type failing struct {
	*memory.Store
	follows int
}

func (f *failing) Follow(ctx context.Context, on bool) (string, error) {
	if f.follows++; f.follows == 2 {
		return "", errors.New("connection reset by peer")
	}
	return f.Store.Follow(ctx, on)
}

func TestAHookWhoseSecretWasNotShownDoesNotStay(t *testing.T) {
	b := NewBook(&failing{Store: memory.New()}, nil, notifytest.Sender(t))
	h := Hook{Name: "a", URL: "https://example.com/hook"}
	if _, _, err := b.Put(t.Context(), h, "ada"); err == nil {
		t.Error("the failure is not told")
	}
	if secret, _, err := b.Put(t.Context(), h, "ada"); err != nil || secret == "" {
		t.Errorf("the second try gives the secret %q, %v", secret, err)
	}
}
