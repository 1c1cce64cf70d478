// Package shelf keeps documents as records of a store: in JSON, each under its kind and its
// name. It may touch a store's records and nothing else.
package shelf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// All returns the documents of a kind by name.
func All[T any](ctx context.Context, s store.Recorder, kind string) (map[string]T, error) {
	records, err := s.Records(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	all := make(map[string]T, len(records))
	for _, r := range records {
		var doc T
		if err := json.Unmarshal(r.Body, &doc); err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind, r.Name, err)
		}
		all[r.Name] = doc
	}
	return all, nil
}

// Change reads a document, has it edited and writes it, again until nobody else wrote it in
// between. The edit gets a zero document if there is none of the name, and how many there
// are of the kind. It returns whether the document is kept; otherwise it is removed.
func Change[T any](
	ctx context.Context, s store.Recorder, kind, name string,
	edit func(doc *T, exists bool, count int) (keep bool, err error),
) error {
	for {
		records, err := s.Records(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind, name, err)
		}
		r, exists := store.Record{Kind: kind, Name: name}, false
		for _, stored := range records {
			if stored.Name == name {
				r, exists = stored, true
			}
		}
		var doc T
		if exists {
			if err := json.Unmarshal(r.Body, &doc); err != nil {
				return fmt.Errorf("%s %s: %w", kind, name, err)
			}
		}
		keep, err := edit(&doc, exists, len(records))
		if err != nil {
			return err
		}
		before := r.Body
		if r.Body = nil; keep {
			if r.Body, err = json.Marshal(doc); err != nil {
				return fmt.Errorf("%s %s: %w", kind, name, err)
			}
		}
		if keep == exists && bytes.Equal(before, r.Body) {
			return nil
		}
		if _, _, err := s.PutRecord(ctx, store.PutRecord{Record: r}); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// ChangeOf changes what is kept of an owner: a document of another kind, under the same name. Without an owner nothing
// is kept.
func ChangeOf[T any](ctx context.Context, s store.Recorder, owner, kind, name string, edit func(doc *T)) error {
	return Change(ctx, s, kind, name, func(doc *T, _ bool, _ int) (bool, error) {
		owners, err := s.Records(ctx, owner)
		if err != nil || !slices.ContainsFunc(owners, func(r store.Record) bool { return r.Name == name }) {
			return false, err
		}
		edit(doc)
		return true, nil
	})
}

// Remove removes a document, if there is one.
func Remove(ctx context.Context, s store.Recorder, kind, name string) error {
	return Change(ctx, s, kind, name, func(*json.RawMessage, bool, int) (bool, error) { return false, nil })
}
