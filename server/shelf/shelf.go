// Package shelf keeps documents as records of a store: as JSON, by kind and name. It may use only a store's records.
package shelf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// Find returns a document. If it does not exist, doc is its zero value.
func Find[T any](ctx context.Context, s store.Recorder, kind, name string) (doc T, exists bool, err error) {
	_, doc, exists, err = read[T](ctx, s, kind, name)
	return doc, exists, err
}

// read returns a document and its record. If the document does not exist, the record has only the kind and the name.
func read[T any](
	ctx context.Context, s store.Recorder, kind, name string,
) (r store.Record, doc T, exists bool, err error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: kind, Names: []string{name}})
	if err == nil && len(records) == 0 {
		return store.Record{Kind: kind, Name: name}, doc, false, nil
	}
	if err == nil {
		r = records[0]
		err = json.Unmarshal(r.Body, &doc)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return r, doc, true, err
}

// Change reads a document, calls edit, and writes the result. It repeats this until nobody else has written the
// document in between. If the document does not exist, edit gets a zero value. If edit returns keep as false, the
// document is removed.
func Change[T any](
	ctx context.Context, s store.Recorder, kind, name string,
	edit func(doc *T, exists bool) (keep bool, err error),
) error {
	for {
		r, doc, exists, err := read[T](ctx, s, kind, name)
		if err != nil {
			return err
		}
		keep, err := edit(&doc, exists)
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
	return Change(ctx, s, kind, name, func(doc *T, _ bool) (bool, error) {
		if _, exists, err := Find[json.RawMessage](ctx, s, owner, name); err != nil || !exists {
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
	return Change(ctx, s, kind, name, func(*json.RawMessage, bool) (bool, error) { return false, nil })
}
