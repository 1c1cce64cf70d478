package server_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// filled serves a store with one of everything.
func filled(t *testing.T, change ...func(*server.Config)) (*site, fixture.Filled) {
	t.Helper()
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f, stop, err := fixture.Fill(t.Context(), client, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s := startOn(t, client, change...)
	book, err := push.NewBook(client.Store(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := book.Put(t.Context(), push.Endpoint{Queue: "hooks", URL: "https://app.example.com/tusk"},
		"test"); err != nil {
		t.Fatal(err)
	}
	return s, f
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s")
		}
	}
}

func filterKind(kind string) tusk.Filter { return tusk.Filter{Kinds: []string{kind}, Limit: 100} }

type later struct{}

func (later) Kind() string { return "later" }

var laterOptions = &tusk.Options{Delay: time.Hour}

func newMemory() store.Store { return memory.New() }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
