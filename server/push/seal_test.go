package push

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/sealtest"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestSecretsOfEndpointsAreEncryptedAndKeysRotated(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	with := func(ring *tusk.KeyRing) *Book {
		b, err := NewBook(s, ring)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	stored := func() string { return sealtest.Stored(t, s, recordKind) }
	usable := func(b *Book) []string {
		docs, err := b.documents(ctx)
		if err != nil || len(docs) != 1 {
			t.Fatal(docs, err)
		}
		return docs[0].usable(time.Now())
	}
	first, _, err := with(nil).Put(ctx, Endpoint{Queue: "q", URL: "https://example.com/hook"}, "ada")
	if err != nil || !strings.Contains(stored(), first) {
		t.Fatalf("without a key: %s, %v", stored(), err)
	}
	if err := with(sealtest.Ring("old")).Reseal(ctx); err != nil {
		t.Fatal(err)
	}
	second, _, err := with(sealtest.Ring("old")).Rotate(ctx, "q")
	if err != nil {
		t.Fatal(err)
	}
	both := []string{second, first}
	if text := stored(); strings.Contains(text, "whsec_") || strings.Contains(text, first[len(secretPrefix):]) ||
		strings.Contains(text, second[len(secretPrefix):]) {
		t.Errorf("a secret is stored in the clear: %s", text)
	}
	if got := usable(with(sealtest.Ring("old"))); !slices.Equal(got, both) {
		t.Errorf("%q, want %q", got, both)
	}
	for name, ring := range map[string]*tusk.KeyRing{"none": nil, "another key": sealtest.Ring("new")} {
		if got := usable(with(ring)); len(got) != 0 {
			t.Errorf("%s reads %q", name, got)
		}
	}
	if err := with(sealtest.Ring("new")).Reseal(ctx); !errors.Is(err, tusk.ErrEncrypted) {
		t.Errorf("a ring without the key: %v", err)
	}
	if err := with(sealtest.Ring("new", "old")).Reseal(ctx); err != nil {
		t.Fatal(err)
	}
	if got := usable(with(sealtest.Ring("new"))); !slices.Equal(got, both) {
		t.Errorf("after the rotation: %q, want %q", got, both)
	}
	before := stored()
	if err := with(sealtest.Ring("new", "old")).Reseal(ctx); err != nil || stored() != before {
		t.Errorf("what is current is sealed anew: %v", err)
	}
}
