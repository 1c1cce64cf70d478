package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// An archive belongs to one database. The object at ownerPath has the same id as the database's record.
const (
	ownerPath = "_tusk/owner"
	ownerName = "owner"
	// formerName is the record to which a rebase moves the id, because it cannot know whether the database is a copy. A
	// copy would delete what only the original refers to. The name is repeated in store/postgres/sql/rebase.sql.
	formerName = "owner_before_rebase"
)

// owner claims an object store for a database.
type owner struct {
	store  store.Store
	bucket *blob.Bucket
	newID  func() store.ID
}

// own claims the archive for this database. It fails if the archive belongs to another one.
func (r *Runner) own(ctx context.Context) error {
	return owner{r.o.Store, r.o.Bucket, r.o.NewID}.claim(ctx)
}

func (o owner) claim(ctx context.Context) error {
	id, err := o.database(ctx)
	if err != nil {
		return err
	}
	owner, err := o.bucket.ReadAll(ctx, ownerPath)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return put(ctx, o.bucket, ownerPath, "text/plain", []byte(id+"\n")) // checked again before the next batch
	}
	if err != nil {
		return fmt.Errorf("read the archive's owner: %w", err)
	}
	if got := strings.TrimSpace(string(owner)); got != id {
		return fmt.Errorf(
			"the archive belongs to the database %.40q, and this one is %q: give this one a prefix of its own, or delete %s "+
				"there to hand the archive over", got, id, ownerPath)
	}
	return nil
}

// Keep lets a rebased database own the archive that it owned before. It reports false if no rebase has taken an archive
// from it. It fails if the database owns another archive by now. It may be repeated.
func Keep(ctx context.Context, s store.Recorder) (kept bool, err error) {
	former, record, err := document[string](ctx, s, recordKind, formerName)
	if err != nil || record.Version == 0 {
		return false, err
	}
	err = change(ctx, s, recordKind, ownerName, func(id *string, exists bool) (*string, error) {
		if exists && *id != former {
			return nil, fmt.Errorf("the database owns another archive by now, as %q; before the rebase it was %q: delete %s "+
				"in the old archive to hand it over", *id, former, ownerPath)
		}
		return &former, nil
	})
	if err != nil {
		return false, err
	}
	return true, change(ctx, s, recordKind, formerName, func(*string, bool) (*string, error) { return nil, nil })
}

// database returns the id of the database. The first call sets it.
func (o owner) database(ctx context.Context) (string, error) {
	id, record, err := document[string](ctx, o.store, recordKind, ownerName)
	if err != nil || record.Version != 0 {
		return id, err
	}
	id = o.newID().String()
	body, err := json.Marshal(id)
	if err != nil {
		return "", err
	}
	record.Body = body
	_, _, err = o.store.PutRecord(ctx, store.PutRecord{Record: record})
	return id, err
}
