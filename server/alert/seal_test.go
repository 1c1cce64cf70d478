package alert

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
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func clientOf(t *testing.T, s store.Store) *tusk.Client {
	t.Helper()
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestSecretsOfAlertsAreEncryptedAndKeysRotated(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	sender := notifytest.Sender(t)
	const slack, target = "https://hooks.slack.com/services/T0/B0/canary", "https://example.com/alerts"
	with := func(ring *tusk.KeyRing) *Book { return NewBook(s, ring, sender) }
	put := func(b *Book, to ...notify.Receiver) string {
		secret, _, err := b.Put(ctx, Rule{Name: "a", Kind: NoWorker, To: to}, "ada")
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	read := func(b *Book) []notify.Receiver {
		a, err := b.Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		return a.To
	}
	stored := func() string { return sealtest.Stored(t, s, ruleKind) }
	secret := put(with(nil), notify.Receivers([]string{slack}, []string{target}, []string{"ops@example.com"})...)
	err := with(sealtest.Ring("old")).Reseal(ctx)
	if text := stored(); err != nil || strings.Contains(text, "canary") || strings.Contains(text, secret) {
		t.Errorf("secrets that were stored before there was a ring: %s, %v", text, err)
	}
	err = with(sealtest.Ring("new")).Reseal(ctx)
	if !errors.Is(err, notify.ErrSealed) || !strings.Contains(err.Error(), "alert a") {
		t.Errorf("a ring without the key: %v", err)
	}
	log := slog.New(slog.DiscardHandler)
	client := clientOf(t, s)
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	New(with(sealtest.Ring("new", "old")), client, log, 0, 0).Run(soon) // as when a server starts
	if to := read(with(sealtest.Ring("new"))); to[0].Address != slack || to[1].Secret != secret {
		t.Errorf("after the rotation: %+v", to)
	}
	before := stored()
	if err := with(sealtest.Ring("new", "old")).Reseal(ctx); err != nil || stored() != before {
		t.Errorf("what is current is sealed anew: %v", err)
	}
	if again := put(with(sealtest.Ring("new"))); again != "" {
		t.Error("a change makes a new secret although the old one can be read")
	}
	webhook := notify.Receivers(nil, []string{target}, nil)
	for _, ring := range []*tusk.KeyRing{sealtest.Ring("third"), nil} {
		if again := put(with(ring)); again != "" {
			t.Error("a change that keeps the receivers makes a new secret")
		}
		_, _, err := with(ring).Put(ctx, Rule{Name: "a", Kind: NoWorker, To: webhook}, "ada")
		if !errors.Is(err, notify.ErrSealed) {
			t.Errorf("a put without the key: %v", err)
		}
	}
	if to := read(with(sealtest.Ring("new"))); to[0].Address != slack || to[1].Secret != secret {
		t.Errorf("after the puts without the key: %+v", to)
	}
	if err := with(nil).Remove(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if fresh := put(with(sealtest.Ring("third")), webhook...); fresh == "" || fresh == secret {
		t.Errorf("after the key was lost: %q", fresh)
	}
}
