package couchbase

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
)

// newcomer opens a handle on a fake that is not migrated and whose query service is late to learn what was created.
func newcomer(t *testing.T, late time.Duration) (*cbfake.Cluster, *Store) {
	t.Helper()
	f, err := cbfake.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.Set(cbfake.Faults{Late: late})
	s, err := Open(t.Context(), f.URL()+"?sasl=plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return f, s
}

// The statements that create a scope and its collections return before the query service knows them.
func TestMigrateWaitsForTheQueryService(t *testing.T) {
	_, s := newcomer(t, 300*time.Millisecond)
	taken, err := s.Migrate(t.Context(), -1)
	if err != nil || len(taken) != 4 {
		t.Fatalf("%d steps were taken: %v", len(taken), err)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// Migrate does not wait forever, says what it has waited for, and continues when it is called again.
func TestMigrateSaysWhatItHasWaitedFor(t *testing.T) {
	f, s := newcomer(t, time.Hour)
	s.learnWithin = 200 * time.Millisecond
	_, err := s.Migrate(t.Context(), -1)
	if err == nil || !strings.Contains(err.Error(), "CREATE COLLECTION") ||
		!strings.Contains(err.Error(), "waited for the query service to know") {
		t.Errorf("the error is %v", err)
	}
	s.learnWithin = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Migrate(ctx, -1); err == nil {
		t.Error("it goes on without the service")
	}
	f.Set(cbfake.Faults{})
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Error(err)
	}
}
