package archive

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// draft does what commit does before it writes a manifest.
func draft(t *testing.T, r *Runner, note *Note, m *Manifest) {
	t.Helper()
	m.Schema, m.Batch, m.Written = SchemaVersion, storetest.NewID(), time.Now().UTC()
	m.Replaces = append(m.Replaces, note.Drafts...)
	note.Drafts = append(note.Drafts, m.Batch)
	if err := r.write(t.Context(), note); err != nil {
		t.Fatal(err)
	}
}

// filled takes a runner as far as a batch with all tasks that are due, whose manifest is written.
func filled(t *testing.T, r *Runner) (*Note, store.Due) {
	t.Helper()
	time.Sleep(time.Millisecond) // their retention ends
	batch := storetest.NewID()
	note := &Note{Holder: r.o.ID, Batch: batch, Drafts: []store.ID{batch}}
	if err := r.write(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	keep, _ := r.o.Keep(t.Context())
	page, err := r.engine.Due(t.Context(), keep, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.fill(t.Context(), note, keep, page); err != nil {
		t.Fatal(err)
	}
	return note, page
}

// once fails the test unless each task is in the archive exactly once.
func once(t *testing.T, when string, times map[string]int, ids []store.ID) {
	t.Helper()
	for _, id := range ids {
		if times[id.String()] != 1 {
			t.Fatalf("%s: task %v is in the archive %d times", when, id, times[id.String()])
		}
	}
	if len(times) != len(ids) {
		t.Fatalf("%s: %d tasks are in the archive, want %d", when, len(times), len(ids))
	}
}

// A process pauses between its look for due tasks and its note. Meanwhile another process archives
// the same tasks.
func TestWhatAnotherProcessHasArchivedIsNotArchivedAgain(t *testing.T) {
	s := memory.New()
	b, _ := place(t)
	ids := run(t, s, storetest.NewID(), 50, "q")
	time.Sleep(time.Millisecond)
	awake := keeper(t, s, b)
	drain(t, awake) // so that the archive has an owner
	ids = append(ids, run(t, s, storetest.NewID(), 50, "q")...)
	time.Sleep(time.Millisecond)
	o, still := optionsFor(s, b, t.TempDir()), false
	o.NewID = func() store.ID {
		if !still {
			still = true
			drain(t, awake)
		}
		return storetest.NewID()
	}
	paused, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, paused)
	if !still {
		t.Fatal("the process never stood still")
	}
	once(t, "after the pause", archived(t, b), ids)
}

// A request of a process that was taken for dead arrives after another process has taken over.
func TestAManifestThatArrivesLateDoesNotCount(t *testing.T) {
	s, worker := memory.New(), storetest.NewID()
	b, _ := place(t)
	start := func() *Runner { return unhurried(t, s, b) }
	ids := batches(t, s, start(), mergeFiles)
	var late []*Manifest
	arrive := func(when string) {
		t.Helper()
		r := start()
		drain(t, r)
		once(t, when, archived(t, b), ids)
		for _, m := range late {
			if err := m.put(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		once(t, when+", when it has arrived", archived(t, b), ids)
	}

	ids = append(ids, run(t, s, worker, 50, "mail")...)
	r := start()
	note, _ := filled(t, r)
	open, err := readManifest(t.Context(), b, manifestPath(note.Batch))
	if err != nil {
		t.Fatal(err)
	}
	note.Written, note.Drafts = false, []store.ID{note.Batch} // the process paused before that was noted
	if err := r.write(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	late = append(late, &open)
	arrive("the manifest of a new batch")

	ids = append(ids, run(t, s, worker, 50, "mail")...)
	r = start()
	note, _ = filled(t, r)
	if open, err = readManifest(t.Context(), b, manifestPath(note.Batch)); err != nil {
		t.Fatal(err)
	}
	closed := &Manifest{Files: open.Files}
	closed.supersede(&open)
	draft(t, r, note, closed)
	late = append(late, closed)
	arrive("the manifest that closes a batch")

	r = start()
	note, large, _ := mergeFirst(t, r)
	draft(t, r, note, large)
	late = append(late, large)
	arrive("the manifest of a merge")

	r = start()
	if _, err := r.merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrive("after another merge")
}

// The database loses the note of a batch that was written, as in a failover, and with it the
// deletions since then. Whether or not the tasks are due again, the batch is settled, and each task
// is kept once.
func TestABatchWhoseNoteWasLostIsSettled(t *testing.T) {
	for _, gone := range []bool{false, true} { // deleted from the database
		s, worker := memory.New(), storetest.NewID()
		b, _ := place(t)
		ids := run(t, s, worker, 50, "q")
		r := keeper(t, s, b)
		if err := r.own(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, page := filled(t, r)
		if err := r.clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if gone {
			if back, err := r.engine.Release(t.Context(), page.Receipt); err != nil || len(back) > 0 {
				t.Fatal(back, err)
			}
		}
		next := keeper(t, s, b)
		for range 3 {
			drain(t, next)
		}
		once(t, fmt.Sprint("gone: ", gone), archived(t, b), ids)
		keep, _ := r.o.Keep(t.Context())
		if left, err := next.engine.Due(t.Context(), keep, "", 100); err != nil || len(left.Tasks) > 0 {
			t.Errorf("gone: %v: %d tasks are left in the database, %v", gone, len(left.Tasks), err)
		}
	}
}

// A rebase takes the archive from a database, which may be a copy.
func TestARebasedDatabaseOwnsNoArchiveUntilItKeepsIt(t *testing.T) {
	s := memory.New()
	b, _ := place(t)
	if kept, err := Keep(t.Context(), s); kept || err != nil {
		t.Errorf("a database that owned no archive: %v, %v", kept, err)
	}
	r := keeper(t, s, b)
	if err := errors.Join(r.own(t.Context()), r.own(t.Context())); err != nil {
		t.Fatal(err)
	}
	former := record(t, s, ownerName)
	put := func(r store.Record, name string, version int64, body []byte) {
		t.Helper()
		r.Name, r.Version, r.Body = name, version, body
		if _, _, err := s.PutRecord(t.Context(), store.PutRecord{Record: r}); err != nil {
			t.Fatal(err)
		}
	}
	put(former, formerName, 0, former.Body)
	if kept, err := Keep(t.Context(), s); !kept || err != nil { // it was interrupted before it deleted the record
		t.Errorf("repeated: %v, %v", kept, err)
	}
	put(former, formerName, 0, former.Body)
	put(former, ownerName, record(t, s, ownerName).Version, nil)
	if kept, err := Keep(t.Context(), s); !kept || err != nil {
		t.Fatal(kept, err)
	}
	if err := r.own(t.Context()); err != nil {
		t.Errorf("after Keep: %v", err)
	}
	put(former, formerName, 0, former.Body)
	put(former, ownerName, record(t, s, ownerName).Version, nil)
	if err := r.own(t.Context()); err == nil || !strings.Contains(err.Error(), "belongs to the database") {
		t.Errorf("the archive of the original: %v", err)
	}
	if kept, err := Keep(t.Context(), s); kept || err == nil || !strings.Contains(err.Error(), "another archive") {
		t.Errorf("after the database has an id of its own: %v, %v", kept, err)
	}
}

func record(t *testing.T, s store.Recorder, name string) store.Record {
	t.Helper()
	r, err := find(t.Context(), s, recordKind, name)
	if err != nil || r.Version == 0 {
		t.Fatalf("the record %s: %+v, %v", name, r, err)
	}
	return r
}
