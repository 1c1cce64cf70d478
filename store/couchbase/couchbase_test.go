package couchbase

import (
	"context"
	"testing"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// newFake starts a migrated fake of some nodes.
func newFake(tb testing.TB, nodes int) *cbfake.Cluster {
	tb.Helper()
	f, err := cbfake.Start(nodes)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	s := openFake(tb, f)
	if _, err := s.Migrate(context.Background(), -1); err != nil {
		tb.Fatal(err)
	}
	return f
}

// openFake opens a handle on a fake.
func openFake(tb testing.TB, f *cbfake.Cluster) *Store {
	tb.Helper()
	s, err := Open(context.Background(), f.URL()+"?sasl=plain")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// onFake is the engine on a fake of one node for each test.
var onFake = storetest.Engine{
	Shared: true,
	New: func(tb testing.TB) func() store.Store {
		f := newFake(tb, 1)
		return func() store.Store { return openFake(tb, f) }
	},
}

func TestConformance(t *testing.T) { storetest.Run(t, onFake) }

func TestDoesWhatTheReferenceEngineDoes(t *testing.T) { storetest.Compare(t, onFake) }

func TestReruns(t *testing.T) { storetest.Reruns(t, onFake, 1000) }
