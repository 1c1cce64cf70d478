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

// liveURL is the database URL of a real cluster to test on: couchbase://user:password@host/bucket. Each clause creates
// a scope of its own there, with all indexes, and drops it.
func liveURL(t *testing.T) string {
	t.Helper()
	live := os.Getenv("TUSK_TEST_COUCHBASE")
	if live == "" {
		t.Skip("SKIPPED, not tested: a whole cluster: set TUSK_TEST_COUCHBASE=couchbase://user:password@host/bucket")
	}
	return live
}

// newScope creates a migrated scope, and returns a function that opens handles on it.
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

// Unless it says otherwise, each statement is answered from an index alone, in the index's order and up to its limit.
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
			t.Logf("%s\n%s", statement, raw)
			for _, fault := range faultsOf(statement, string(raw)) {
				t.Errorf("%s: %s", statement, fault)
			}
		}
	}
}

// faultsOf says what a plan leaves to the query service that the index could do. The limit cannot be pushed down if a
// condition has a list or an array is scanned. The counts of errors have only a few fingerprints.
func faultsOf(statement, plan string) (faults []string) {
	if strings.Contains(statement, "system:") || !strings.Contains(statement, " FROM ") {
		return nil
	}
	operator := func(name string) bool { return strings.Contains(plan, `"#operator":"`+name) }
	plan = strings.ReplaceAll(plan, `": "`, `":"`)
	listed := strings.Contains(statement, " IN ") // also of an array
	if operator("PrimaryScan") || operator("Fetch") && statement != queryNames {
		faults = append(faults, "not answered from an index alone")
	}
	if operator("Order") {
		faults = append(faults, "sorted after the index")
	}
	if strings.Contains(statement, " LIMIT ") && !listed && !strings.Contains(plan, `"limit":`) {
		faults = append(faults, "the limit is not pushed down")
	}
	if strings.Contains(statement, " GROUP BY ") && !listed && !strings.Contains(plan, `"index_group_aggs"`) {
		faults = append(faults, "not summed up in the index")
	}
	return faults
}

// The check of plans is tested on plans in the server's format.
func TestPlansAreJudged(t *testing.T) {
	scan := `{"#operator": "IndexScan3", "covers": ["cover ((t.due))"], "index_order": [{"keypos": 0}], "limit": "$n"}`
	for _, c := range []struct {
		statement, plan string
		faults          int
	}{
		{queryDue, scan, 0},
		{queryDue, strings.Replace(scan, `, "limit": "$n"`, "", 1), 1},
		{queryDue, scan + `{"#operator": "Fetch"}`, 1},
		{queryDue, scan + `{"#operator": "Order"}`, 1},
		{queryDue, `{"#operator": "PrimaryScan3", "limit": "$n"}`, 1},
		{queryOld, strings.Replace(scan, `, "limit": "$n"`, "", 1), 0},
		{queryCount, scan, 1},
		{queryCount, `{"#operator": "IndexScan3", "index_group_aggs": {}}`, 0},
		{queryNames, scan + `{"#operator": "Fetch"}`, 0},
	} {
		if got := faultsOf(c.statement, c.plan); len(got) != c.faults {
			t.Errorf("%s\n%s: %v", c.statement, c.plan, got)
		}
	}
}
