package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// An archive belongs to one database: the object has the id that is in the database's record.
const (
	ownerPath = "_tusk/owner"
	ownerName = "owner"
)

// own makes the archive this database's, unless it is another's.
func (r *Runner) own(ctx context.Context) error {
	id, err := r.database(ctx)
	if err != nil {
		return err
	}
	owner, err := r.o.Bucket.ReadAll(ctx, ownerPath)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return r.o.Bucket.WriteAll(ctx, ownerPath, []byte(id+"\n"), nil) // read again before the next batch
	}
	if err != nil {
		return fmt.Errorf("read the archive's owner: %w", err)
	}
	if got := strings.TrimSpace(string(owner)); got != id {
		return fmt.Errorf("the archive belongs to the database %.40q, and this one is %q: give this one a prefix of its own, or delete %s there to hand the archive over",
			got, id, ownerPath)
	}
	return nil
}

// database returns the id of the database, which it is given here at first.
func (r *Runner) database(ctx context.Context) (string, error) {
	id, record, err := document[string](ctx, r.o.Store, recordKind, ownerName)
	if err != nil || record.Version != 0 {
		return id, err
	}
	id = r.o.NewID().String()
	body, err := json.Marshal(id)
	if err != nil {
		return "", err
	}
	record.Body = body
	_, _, err = r.o.Store.PutRecord(ctx, store.PutRecord{Record: record})
	return id, err
}
