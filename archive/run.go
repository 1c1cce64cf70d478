package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// The records of the archive in the database.
const (
	recordKind = "archive"
	noteName   = "batch"  // the batch under way
	statusName = "status" // how archiving is doing
)

// Status is how archiving is doing.
type Status struct {
	Succeeded time.Time `json:"succeeded,omitzero"` // when there was last nothing left to archive; by the database's clock
	Failing   string    `json:"failing,omitempty"`  // why it does not go on; empty: it does
	Tasks     int64     `json:"tasks"`              // moved since the database was made
	Bytes     int64     `json:"bytes"`              // that they took in the archive
}

// Options of a Runner. All but Every, Patience, Grace, Dir and Log are needed.
type Options struct {
	Store  store.Store // an Archiver
	Bucket *blob.Bucket
	ID     store.ID        // of the process, fresh
	NewID  func() store.ID // for batches
	// Keep returns how long finished tasks of the archived queues are kept in the database;
	// those of others for ever.
	Keep func(ctx context.Context) (store.Retention, error)
	// Every is how often a batch is begun where few tasks are due, so that files do not become
	// small: an hour when it is zero.
	Every time.Duration
	// Patience is how long a note of another process may stand unchanged before this one goes
	// on in its place: a minute when it is zero.
	Patience time.Duration
	// Grace is how old an object with args or an output must be to be deleted because no task
	// refers to it: longer than any transaction is open in which tasks are enqueued. A day when
	// it is zero.
	Grace time.Duration
	Dir   string // for files that are not whole yet; empty: that for temporary files
	Log   *slog.Logger
}

// Runner moves finished tasks into an archive. Of several, one does at a time.
type Runner struct {
	o      Options
	engine store.Archiver
	shelf  *Archive
	next   time.Time     // when it is next looked whether anything is due
	empty  time.Duration // how long the latest look waits for the next, where it found nothing
	due    time.Time     // when the chores are due
	failed bool          // they failed the last time
	begun  bool          // a batch has left nothing behind
	more   bool          // it is due at once: the last one was full
	loop   *loop.Loop

	reading, deleting pace

	noting  sync.Mutex // held while the note is read or written
	version int64      // of the note, as it was last read or written
	body    []byte     // of the note that is this process's own
	since   time.Time  // when it was first seen so
}

// ErrEngine says that an engine hands nothing over.
var ErrEngine = errors.New("the database's engine does not support archiving")

// NewRunner makes a Runner. The error is ErrEngine.
func NewRunner(o Options) (*Runner, error) {
	engine, ok := store.As[store.Archiver](o.Store)
	if !ok {
		return nil, ErrEngine
	}
	if o.Every == 0 {
		o.Every = time.Hour
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Grace == 0 {
		o.Grace = lostAfter
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{o: o, engine: engine, shelf: New(o.Bucket, o.Dir)}
	if n, ok := store.As[store.Neighbour](o.Store); ok {
		r.reading.others, r.deleting.others = n.Others, n.Others
	}
	r.loop = loop.New("archive", longest, o.Log, r.Step)
	return r, nil
}

// Archive is what the Runner writes, for reading.
func (r *Runner) Archive() *Archive { return r.shelf }

// longest is the time after which a step is given up.
const longest = time.Hour

// Run archives until ctx ends. A Runner runs once.
func (r *Runner) Run(ctx context.Context) error {
	r.loop.Run(ctx, nil)
	return nil
}

// Health returns how long ago a step last succeeded.
func (r *Runner) Health() map[string]time.Duration {
	return map[string]time.Duration{r.loop.Name: r.loop.Age()}
}

const (
	look = 5 * time.Second // between two looks at whether something is to be done, at most
	// A look that finds no task due is repeated soon, and then in twice the time, up to rarely: what
	// has waited may become due only after an engine was asked for it, and retentions may end.
	soon   = 200 * time.Millisecond
	rarely = time.Minute
)

// Step goes on with the batch under way, or begins one when it is due. It returns after what
// pause the next step is.
func (r *Runner) Step(ctx context.Context) (time.Duration, error) {
	note, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	if note != nil && note.Holder != r.o.ID && time.Since(r.since) < r.o.Patience {
		return look, nil
	}
	if note == nil && !r.more && time.Now().Before(r.next) {
		return r.idle(ctx)
	}
	r.reading.begin(r.more)
	r.deleting.begin(r.more)
	r.more = false
	err = r.holding(ctx, func(ctx context.Context) (err error) {
		r.more, err = r.work(ctx, note)
		return err
	})
	if errors.Is(err, store.ErrConflict) { // another process has taken over
		return look, nil
	}
	if err != nil {
		return 0, errors.Join(err, r.tell(ctx, func(s *Status) { s.Failing = err.Error() }))
	}
	if r.more {
		return 0, nil
	}
	return r.idle(ctx)
}

// idle does the chores while no batch is under way, and returns after what pause the next step is.
func (r *Runner) idle(ctx context.Context) (time.Duration, error) {
	err := r.holding(ctx, r.tend)
	return min(max(time.Until(r.next), soon), look), err
}

// work ends what was begun, and then moves what is due. It reports whether more may be due.
func (r *Runner) work(ctx context.Context, note *Note) (more bool, err error) {
	if note != nil {
		note.Holder = r.o.ID
		if err := r.write(ctx, note); err != nil {
			return false, err
		}
		if err := r.own(ctx); err != nil {
			return false, err
		}
		return true, r.resume(ctx, note)
	}
	keep, err := r.o.Keep(ctx)
	if err != nil {
		return false, err
	}
	if due, err := r.engine.Due(ctx, keep, "", 1); err != nil {
		return false, err
	} else if len(due.Tasks) == 0 {
		r.empty = min(max(2*r.empty, soon), rarely)
		r.next = time.Now().Add(min(r.o.Every, r.empty))
		return false, r.tell(ctx, func(s *Status) { s.Failing = "" })
	}
	if err := r.own(ctx); err != nil {
		return false, err
	}
	batch := r.o.NewID()
	note = &Note{Holder: r.o.ID, Batch: batch, Drafts: []store.ID{batch}}
	if err := r.write(ctx, note); err != nil {
		return false, err
	}
	if adopted, err := r.adopt(ctx, note); err != nil || adopted {
		return true, err
	}
	first, err := r.engine.Due(ctx, keep, "", pageFirst)
	if err != nil {
		return false, err
	}
	if len(first.Tasks) == 0 { // another process has moved what was due before the note
		return false, r.clear(ctx)
	}
	more, err = r.fill(ctx, note, keep, first)
	if err != nil {
		return false, err
	}
	r.empty, r.next = 0, time.Now().Add(r.o.Every)
	if !more && !r.begun { // what waited for this process may become due only when it has looked
		r.next, r.begun = time.Now().Add(min(r.o.Every, soon)), true
	}
	return more, r.settle(ctx, note)
}

// resume ends a batch that somebody, or an earlier step, left behind.
func (r *Runner) resume(ctx context.Context, note *Note) error {
	switch {
	case len(note.Restored) > 0:
		return r.takeOutAfter(ctx, note)
	case note.Committed:
		return r.end(ctx, note)
	case note.Written:
		if done, err := r.settled(ctx, note); err != nil {
			return err
		} else if !done {
			return r.settle(ctx, note)
		} else if err := r.releaseAgain(ctx, note); err != nil {
			return err
		}
	}
	if len(note.Drafts) > 0 {
		if err := r.abandon(ctx, note); err != nil {
			return err
		}
	}
	return r.end(ctx, note)
}

// end deletes what nobody needs any more, and the note.
func (r *Runner) end(ctx context.Context, note *Note) error {
	if err := r.sweep(ctx, note); err != nil {
		return err
	}
	if !note.Change {
		if err := remove(ctx, r.o.Bucket, receiptPath(note.Batch)); err != nil {
			return err
		}
	}
	return r.clear(ctx)
}

// fill writes files until nothing is due or the batch is full, and notes them. It reports
// whether more is due. The engine reads the next page while the last one is written.
func (r *Runner) fill(ctx context.Context, note *Note, keep store.Retention, first store.Due) (more bool, err error) {
	w, err := newBatch(r.o.Bucket, note.Batch, r.o.Dir, func(ctx context.Context, path string) error {
		note.Paths = append(note.Paths, path)
		return r.write(ctx, note)
	})
	if err != nil {
		return false, err
	}
	defer w.discard()
	for page, err := range r.pages(ctx, keep, first) {
		if err != nil {
			return false, err
		}
		if err := w.add(ctx, &page); err != nil {
			return false, err
		}
		if w.full {
			break
		}
	}
	files, err := w.finish(ctx)
	if err != nil {
		return false, err
	}
	m := &Manifest{Schema: SchemaVersion, Batch: note.Batch, Written: time.Now().UTC(), Open: true, Files: files}
	if err := m.put(ctx, r.o.Bucket); err != nil {
		return false, err
	}
	if err := r.shelf.Publish(ctx); err != nil {
		return false, err
	}
	note.Written, note.Drafts = true, nil
	return w.full, r.write(ctx, note)
}

// settle has the engine delete what was noted, takes out of the files what came back, and puts a
// closed manifest in the place of the open one.
func (r *Runner) settle(ctx context.Context, note *Note) error {
	open, err := readManifest(ctx, r.o.Bucket, manifestPath(note.Batch))
	if err != nil {
		return err
	}
	back, err := r.release(ctx, note)
	if err != nil {
		return err
	}
	if err := r.write(ctx, note); err != nil { // nobody has taken over
		return err
	}
	var m Manifest
	if m.Files, _, err = r.cutFiles(ctx, note, open.Files, back); err != nil {
		return err
	}
	m.supersede(&open)
	if err := r.commit(ctx, note, &m); err != nil {
		return err
	}
	err = r.tell(ctx, func(s *Status) {
		s.Failing = ""
		s.Tasks += m.Tasks()
		for _, f := range m.Files {
			s.Bytes += f.Bytes
		}
	})
	if err != nil {
		return err
	}
	r.o.Log.Info("archived", "batch", m.Batch, "tasks", m.Tasks(), "files", len(m.Files), "back", len(back))
	return r.end(ctx, note)
}

// release has the engine delete what was handed over, and returns what has come back since.
func (r *Runner) release(ctx context.Context, note *Note) (returned, error) {
	back := returned{}
	r.deleting.start()
	err := eachReceipt(ctx, r.o.Bucket, note.Batch, func(receipt []byte) error {
		begun := time.Now()
		ids, err := r.engine.Release(ctx, receipt)
		r.deleting.add(time.Since(begun), len(receipt))
		for _, id := range ids {
			back[id.String()] = true
		}
		return errors.Join(err, r.deleting.rest(ctx))
	})
	return back, err
}

// tell changes the status. Who succeeds says so each time; who fails says so once.
func (r *Runner) tell(ctx context.Context, change func(*Status)) error {
	record, err := find(ctx, r.o.Store, statusName)
	if err != nil {
		return err
	}
	var s Status
	if record.Version != 0 {
		if err := json.Unmarshal(record.Body, &s); err != nil {
			s = Status{}
		}
	}
	if s.Failing == "" && record.Version != 0 {
		s.Succeeded = record.UpdatedAt
	}
	before := s
	if change(&s); s == before && s.Failing != "" {
		return nil
	}
	record.Kind, record.Name = recordKind, statusName
	if record.Body, err = json.Marshal(s); err != nil {
		return err
	}
	_, _, err = r.o.Store.PutRecord(ctx, store.PutRecord{Record: record})
	return err
}

// ReadStatus returns how archiving is doing, as the processes that archive tell it.
func ReadStatus(ctx context.Context, s store.Recorder) (status Status, err error) {
	record, err := find(ctx, s, statusName)
	if err != nil || record.Version == 0 {
		return status, err
	}
	if err := json.Unmarshal(record.Body, &status); err != nil {
		return status, fmt.Errorf("the status of the archive is damaged: %w", err)
	}
	if status.Failing == "" {
		status.Succeeded = record.UpdatedAt
	}
	return status, nil
}

// find returns a record of the archive; without a version if there is none.
func find(ctx context.Context, s store.Recorder, name string) (store.Record, error) {
	records, err := s.Records(ctx, recordKind)
	if i := slices.IndexFunc(records, func(r store.Record) bool { return r.Name == name }); i >= 0 {
		return records[i], err
	}
	return store.Record{}, err
}
