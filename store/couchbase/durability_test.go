package couchbase

import (
	"errors"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// replicated opens a handle on a migrated fake with replicas.
func replicated(t *testing.T, nodes, replicas int, parameters string) (*cbfake.Cluster, *Store) {
	t.Helper()
	f, err := cbfake.StartWith(cbfake.Options{Nodes: nodes, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	migrated(t, f)
	return f, openAt(t, f.URL()+"?sasl=plain"+parameters)
}

func enqueueOne(t *testing.T, s *Store) error {
	t.Helper()
	_, err := s.Enqueue(t.Context(), []store.NewTask{{ID: storetest.NewID(), Kind: "k", Queue: "q", Args: []byte("1")}})
	return err
}

func warned(t *testing.T, s *Store, of string) bool {
	t.Helper()
	warnings, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(strings.Join(warnings, "\n"), of)
}

// If the URL does not say anything, writes are as durable as the nodes allow. Check warns if replicas lack nodes or are
// too many, and enqueues still work.
func TestDurabilityThatIsNotNamed(t *testing.T) {
	for _, c := range []struct {
		name            string
		nodes, replicas int
		want            gocb.DurabilityLevel
		warning         string
	}{
		{"no replicas", 1, 0, gocb.DurabilityLevelUnknown, "with replicas, add durability=majority"},
		{"a replica without a node", 1, 1, gocb.DurabilityLevelUnknown,
			"has 1 replicas, and data nodes for 0 of them, so the server would refuse"},
		{"a replica", 2, 1, gocb.DurabilityLevelMajority, ""},
		{"two replicas", 3, 2, gocb.DurabilityLevelMajority, ""},
		{"one node for two replicas makes a majority", 2, 2, gocb.DurabilityLevelMajority, ""},
		{"three replicas", 4, 3, gocb.DurabilityLevelUnknown, "has 3 replicas"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, s := replicated(t, c.nodes, c.replicas, "")
			if s.durability != c.want {
				t.Errorf("the durability is %v", s.durability)
			}
			if !warned(t, s, c.warning) || c.warning == "" && warned(t, s, "acknowledged by one node") {
				t.Errorf("it does not warn of %q alone", c.warning)
			}
			if err := enqueueOne(t, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check warns of a durability that cannot be fulfilled, and the errors say what helps.
func TestDurabilityThatCannotBeFulfilled(t *testing.T) {
	_, s := replicated(t, 1, 1, "&durability=majority")
	if !warned(t, s, "so the server refuses durable writes, and with them every enqueue and every outcome") {
		t.Error("it does not warn")
	}
	refused(t, enqueueOne(t, s))
}

func refused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, gocb.ErrDurabilityImpossible) || !store.IsForAll(err) ||
		!strings.Contains(err.Error(), remedy) || !strings.HasPrefix(err.Error(), "enqueue: ") {
		t.Errorf("the error is %v", err)
	}
}

// With one replica, a majority is both copies: after the failover of a node, nothing is enqueued until a rebalance.
func TestAFailoverOfOneOfTwoNodes(t *testing.T) {
	f, s := replicated(t, 2, 1, "")
	if err := enqueueOne(t, s); err != nil {
		t.Fatal(err)
	}
	f.FailOverNode(1)
	refused(t, enqueueOne(t, s))
	f.Rebalance(0)
	if err := enqueueOne(t, s); err != nil {
		t.Error(err)
	}
}

// An ephemeral bucket persists nothing.
func TestDurabilityThatTheBucketDoesNotHave(t *testing.T) {
	var err error = gocb.ErrDurabilityLevelNotAvailable
	says(&err, "enqueue")
	if !errors.Is(err, gocb.ErrDurabilityLevelNotAvailable) || !strings.Contains(err.Error(), "durability=majority") {
		t.Errorf("the error is %v", err)
	}
}
