package couchbase

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// newFake starts a migrated fake with some nodes.
func newFake(tb testing.TB, nodes int) *cbfake.Cluster {
	tb.Helper()
	f, err := cbfake.Start(nodes)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	migrated(tb, f)
	return f
}

func migrated(tb testing.TB, f *cbfake.Cluster) {
	tb.Helper()
	s, err := Open(context.Background(), f.URL()+"?sasl=plain")
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(context.Background(), -1); err != nil {
		tb.Fatal(err)
	}
}

// openFake opens a handle on a fake.
func openFake(tb testing.TB, f *cbfake.Cluster) *Store {
	tb.Helper()
	return openAt(tb, f.URL()+"?sasl=plain")
}

func openAt(tb testing.TB, url string) *Store {
	tb.Helper()
	s, err := Open(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	warm(s)
	return s
}

// warm makes the client learn the ids of the collections. If a request is canceled while it waits for them, there is a
// data race inside the client.
func warm(s *Store) {
	for _, c := range []*gocb.Collection{s.tasks, s.lines, s.keys, s.meta} {
		_, _ = c.Get("none", &gocb.GetOptions{Timeout: time.Second})
	}
}

// onFake is the engine, on a fake with one node for each test.
var onFake = storetest.Engine{
	Shared: true,
	New: func(tb testing.TB) func() store.Store {
		f := newFake(tb, 1)
		return func() store.Store { return openFake(tb, f) }
	},
}

func TestConformance(t *testing.T) { storetest.Run(t, onFake) }

func TestDoesWhatTheReferenceEngineDoes(t *testing.T) { storetest.Compare(t, onFake) }

func BenchmarkTicks(b *testing.B) { storetest.BenchTicks(b, onFake) }

func TestReruns(t *testing.T) {
	n := 1000
	if os.Getenv("TUSK_TEST_LONG") != "" {
		n = 100_000
	}
	storetest.Reruns(t, onFake, n)
}

// The conformance suite with an index that lags two seconds, on three nodes.
func TestConformanceWithAnIndexThatIsBehind(t *testing.T) {
	if os.Getenv("TUSK_TEST_LONG") == "" {
		t.Skip("it takes long: set TUSK_TEST_LONG=1")
	}
	storetest.Run(t, storetest.Engine{Shared: true, New: func(tb testing.TB) func() store.Store {
		f := newFake(tb, 3)
		f.Set(cbfake.Faults{Lag: 2 * time.Second})
		return func() store.Store { return openFake(tb, f) }
	}})
}
