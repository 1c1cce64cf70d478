package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// documents reads all documents of a kind, sorted by name.
func documents[T any](ctx context.Context, s store.Recorder, kind string) ([]T, error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: kind})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(records, func(a, b store.Record) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	all := make([]T, len(records))
	for i, r := range records {
		if err := json.Unmarshal(r.Body, &all[i]); err != nil {
			return nil, fmt.Errorf("the record %q of kind %q is damaged: %w", r.Name, kind, err)
		}
	}
	return all, nil
}

// document reads a document and its record. The record's version is 0 if there is no document.
func document[T any](ctx context.Context, s store.Recorder, kind, name string) (d T, r store.Record, err error) {
	if r, err = find(ctx, s, kind, name); err != nil || r.Version == 0 {
		return d, r, err
	}
	if err := json.Unmarshal(r.Body, &d); err != nil {
		return d, store.Record{}, fmt.Errorf("the record %q of kind %q is damaged: %w", name, kind, err)
	}
	return d, r, nil
}

// change changes or makes a document. The function may be called more than once. If it returns nil,
// the document is deleted.
func change[T any](
	ctx context.Context, s store.Recorder, kind, name string, change func(d *T, exists bool) (*T, error),
) error {
	for {
		before, r, err := document[T](ctx, s, kind, name)
		if err != nil {
			return err
		}
		after, err := change(&before, r.Version != 0)
		if err != nil || after == nil && r.Version == 0 {
			return err
		}
		r.Body = nil
		if after != nil {
			if r.Body, err = json.Marshal(after); err != nil {
				return err
			}
		}
		if _, _, err = s.PutRecord(ctx, store.PutRecord{Record: r}); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// find returns a record. Its version is 0 if there is none.
func find(ctx context.Context, s store.Recorder, kind, name string) (store.Record, error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: kind, Names: []string{name}})
	if err != nil || len(records) == 0 {
		return store.Record{Kind: kind, Name: name}, err
	}
	return records[0], nil
}
