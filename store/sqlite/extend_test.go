package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/tuskqueue/tusk/store/storetest"
)

// A note that the file does not accept does not harm the worker, and does not hold up other notes.
func TestABeatCountsThoughANoteIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	execute(t, pool(t, path), `create trigger no_poison before insert on tusk_note when new.message = 'poison'
		begin select raise(abort, 'injected'); end`)
	storetest.NoteRefused(t, s, "poison")
}
