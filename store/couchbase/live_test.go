package couchbase

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// liveURL is the database URL of a whole cluster to test on: couchbase://user:password@host/bucket. Each clause
// makes a scope of its own there, with all indexes, and drops it.
func liveURL(t *testing.T) string {
	t.Helper()
	live := os.Getenv("TUSK_TEST_COUCHBASE")
	if live == "" {
		t.Skip("SKIPPED, not tested: a whole cluster: set TUSK_TEST_COUCHBASE=couchbase://user:password@host/bucket")
	}
	return live
}

// newScope makes a migrated scope, and returns a function that opens handles on it.
func newScope(tb testing.TB, live string) func() *Store {
	tb.Helper()
	u, err := url.Parse(live)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("scope", "tusk_test_"+nonce())
	u.RawQuery = q.Encode()
	open := func() *Store {
		s, err := Open(context.Background(), u.String())
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
	s := open()
	tb.Cleanup(func() {
		if err := s.define(context.Background(), "DROP SCOPE `bucket`.`tusk` IF EXISTS"); err != nil {
			tb.Errorf("drop the scope: %v", err)
		}
		s.Close()
	})
	if _, err := s.Migrate(context.Background(), -1); err != nil {
		tb.Fatal(err)
	}
	return func() *Store {
		s := open()
		tb.Cleanup(func() { s.Close() })
		return s
	}
}

func TestConformanceOnACluster(t *testing.T) {
	live := liveURL(t)
	storetest.Run(t, storetest.Engine{Shared: true, New: func(tb testing.TB) func() store.Store {
		open := newScope(tb, live)
		return func() store.Store { return open() }
	}})
}

// Each statement is answered from an index alone but those that say otherwise.
func TestPlansOnACluster(t *testing.T) {
	s := newScope(t, liveURL(t))()
	for _, statement := range statements() {
		found, err := s.cluster.Query("EXPLAIN "+s.placed(statement), &gocb.QueryOptions{Adhoc: true})
		if err != nil {
			t.Errorf("%s: %v", statement, err)
			continue
		}
		for found.Next() {
			var raw json.RawMessage
			if err := found.Row(&raw); err != nil {
				t.Fatal(err)
			}
			plan := string(raw)
			t.Logf("%s\n%s", statement, plan)
			fetches := strings.Contains(plan, `"Fetch"`) && statement != queryNames
			if !strings.Contains(statement, "system:") && (fetches || strings.Contains(plan, `"PrimaryScan`)) {
				t.Errorf("%s: not answered from an index alone", statement)
			}
		}
	}
}
