package couchbase

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store/storetest"
)

// A note that makes a document too large does not harm the worker, and does not hold up other notes.
func TestABeatCountsThoughANoteIsNotTaken(t *testing.T) {
	storetest.NoteRefused(t, openFake(t, newFake(t, 1)), strings.Repeat("x", 20<<20))
}
