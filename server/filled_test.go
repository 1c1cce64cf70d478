package server_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/fixture"
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
	return startOn(t, client, change...), f
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
