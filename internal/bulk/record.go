package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// keep is how many ended operations are kept. The newest stay.
const keep = 200

// Find returns an operation and the version of its record. The version is 0 if there is no such
// operation.
func Find(ctx context.Context, s store.Recorder, id store.ID) (Operation, int64, error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: RecordKind, Names: []string{id.String()}})
	if err != nil || len(records) == 0 {
		return Operation{}, 0, err
	}
	o, err := Read(records[0])
	return o, records[0].Version, err
}

// Read decodes a record. The times of the operation's start and end come from the engine's clock.
func Read(r store.Record) (o Operation, err error) {
	if err := json.Unmarshal(r.Body, &o); err != nil {
		return o, fmt.Errorf("operation %s: %w", r.Name, err)
	}
	if o.StartedAt.IsZero() {
		o.StartedAt = r.UpdatedAt
	}
	if o.Ended() {
		o.FinishedAt = r.UpdatedAt
	}
	return o, nil
}

// Put writes an operation over the given version of its record and returns the new version.
func Put(ctx context.Context, s store.Recorder, o Operation, version int64) (int64, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	version, _, err = s.PutRecord(ctx, store.PutRecord{
		Record: store.Record{Kind: RecordKind, Name: o.ID.String(), Version: version, Body: body}})
	return version, err
}

// Cancel asks an operation to stop after its current page. An operation that has ended stays as it
// is. found is false if it does not exist.
func Cancel(ctx context.Context, s store.Recorder, id store.ID) (found bool, err error) {
	for {
		o, version, err := Find(ctx, s, id)
		if err != nil || version == 0 || o.Ended() {
			return version != 0, err
		}
		o.CancelRequested = true
		if _, err = Put(ctx, s, o, version); !errors.Is(err, store.ErrConflict) {
			return true, err
		}
	}
}

// newestFirst sorts records of operations. Their names are ids that sort by time.
func newestFirst(records []store.Record) {
	slices.SortFunc(records, func(a, b store.Record) int { return strings.Compare(b.Name, a.Name) })
}
