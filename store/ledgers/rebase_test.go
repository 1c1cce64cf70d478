package ledgers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// Of a copy that is restored from dumps, the home ledger may be in the original's server and the others elsewhere.
func TestACopyGivesUpTheArchiveThoughHomeNeedsNoRebase(t *testing.T) {
	dsn, ctx := three.DSN(t), context.Background()
	s := open(t, dsn)
	if _, _, err := s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "archive", Name: "owner",
		Body: []byte(`"original"`)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := ledgers.Pool(s).Exec(ctx, "update tusk_1_of_3.server set system_identifier = 1"); err != nil {
		t.Fatal(err)
	}
	copied := open(t, dsn)
	owner := func() string {
		t.Helper()
		records, err := copied.Records(ctx, store.RecordFilter{Kind: "archive"})
		if err != nil || len(records) != 1 {
			t.Fatalf("%d records, %v", len(records), err)
		}
		return records[0].Name
	}
	if _, err := copied.Check(ctx); !errors.Is(err, store.ErrMoved) {
		t.Fatalf("the copy: %v", err)
	}
	if _, err := copied.Rebase(ctx, true); err != nil || owner() != "owner" {
		t.Errorf("the dry run: %v, the record is %s", err, owner())
	}
	if _, err := copied.Rebase(ctx, false); err != nil || owner() != "owner_before_rebase" {
		t.Errorf("%v, the record is %s", err, owner())
	}
	if _, err := copied.Check(ctx); err != nil {
		t.Errorf("after it: %v", err)
	}
}
