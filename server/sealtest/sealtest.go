// Package sealtest helps to test secrets that are stored encrypted: it makes key rings, and shows what is stored.
//
// It may use a store's records.
package sealtest

import (
	"bytes"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Ring returns a ring with a key for each name. The first key encrypts. Keys whose names begin alike are the same.
func Ring(names ...string) *tusk.KeyRing {
	ring := &tusk.KeyRing{Keys: map[string][]byte{}, Primary: names[0]}
	for _, name := range names {
		ring.Keys[name] = bytes.Repeat([]byte(name[:1]), 32)
	}
	return ring
}

// Stored returns the only record of a kind, as it is stored.
func Stored(t testing.TB, s store.Recorder, kind string) string {
	t.Helper()
	records, err := s.Records(t.Context(), store.RecordFilter{Kind: kind})
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	return string(records[0].Body)
}
