// Package shelf keeps documents as records of a store: as JSON, by kind and name. It may use only a store's records.
package shelf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// All returns the documents of a kind, by name.
func All[T any](ctx context.Context, s store.Recorder, kind string) (map[string]T, error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: kind})
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

// Change reads a document, calls edit, and writes the result. It repeats this until nobody else has written the
// document in between. If the document does not exist, edit gets a zero value; count is the number of documents of
// the kind. If edit returns keep as false, the document is removed.
func Change[T any](
	ctx context.Context, s store.Recorder, kind, name string,
	edit func(doc *T, exists bool, count int) (keep bool, err error),
) error {
	for {
		records, err := s.Records(ctx, store.RecordFilter{Kind: kind})
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

// ChangeOf changes a document that belongs to an owner, which is a document of another kind with the same name. If
// the owner does not exist, nothing is stored.
func ChangeOf[T any](ctx context.Context, s store.Recorder, owner, kind, name string, edit func(doc *T)) error {
	return Change(ctx, s, kind, name, func(doc *T, _ bool, _ int) (bool, error) {
		owners, err := s.Records(ctx, store.RecordFilter{Kind: owner})
		if err != nil || !slices.ContainsFunc(owners, func(r store.Record) bool { return r.Name == name }) {
			return false, err
		}
		edit(doc)
		return true, nil
	})
}

// resealing is how long a process that starts waits until secrets are encrypted anew.
const resealing = time.Minute

// Reseal calls reseal, which encrypts the secrets in documents with the primary key. It logs an error, and gives up
// after a minute, so that a database that does not answer does not delay the start any longer.
func Reseal(ctx context.Context, log *slog.Logger, what string, reseal func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, resealing)
	defer cancel()
	if err := reseal(limited); err != nil && ctx.Err() == nil {
		log.Warn(what+": secrets are not encrypted with the primary key", "error", err)
	}
}

// Remove removes a document if it exists.
func Remove(ctx context.Context, s store.Recorder, kind, name string) error {
	return Change(ctx, s, kind, name, func(*json.RawMessage, bool, int) (bool, error) { return false, nil })
}
