package archive

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/internal/loop"
	"github.com/tuskqueue/tusk/store"
)

// The records of the archive in the database.
const (
	recordKind = "archive"
	noteName   = "batch" // the batch in progress
	statusName = "status"
)

// Options configure a Runner. All except Every, Patience, Grace, Dir and Log are required.
type Options struct {
	Store  store.Store // must be an Archiver
	Bucket *blob.Bucket
	ID     store.ID        // of the process; must be new
	NewID  func() store.ID // generates ids of batches
	// Keep returns how long the database keeps finished tasks of the archived queues. It keeps
	// those of other queues forever.
	Keep func(ctx context.Context) (store.Retention, error)
	// Every is how often a batch begins if few tasks are due, so that files do not become small.
	// Zero means an hour.
	Every time.Duration
	// Patience is how long the note of another process may stay unchanged before this one takes
	// over. Zero means a minute.
	Patience time.Duration
	// Grace is how old an object with args or an output must be before it is deleted because no
	// task refers to it. It must be longer than any transaction in which tasks are enqueued. Zero
	// means a day.
	Grace time.Duration
	Dir   string // for incomplete files; empty means the directory for temporary files
	Log   *slog.Logger
}

// Runner moves finished tasks into an archive. If there are several, one of them works at a time.
type Runner struct {
	o      Options
	engine store.Archiver
	shelf  *Archive
	next   time.Time     // when to check next whether tasks are due
	empty  time.Duration // the pause after the latest check, if that found nothing
	due    time.Time     // when the chores are due
	failed string        // why the chores failed; empty once all have succeeded
	again  time.Time     // when to retry what failed
	pause  time.Duration // the pause before that

	unpruned bool // the last prune failed: a request to prune waits for the pause, too
	begun    bool // a batch has left nothing behind
	more     bool // the next batch is due at once, because the last one was full
	loop     *loop.Loop

	reading, deleting pace

	noting  sync.Mutex // held while the note is read or written
	version int64      // of the note when it was last read or written
	body    []byte     // of this process's own note
	since   time.Time  // when the note was first seen in this version
}

// ErrEngine says that an engine does not hand over tasks.
var ErrEngine = errors.New("the database's engine does not support archiving")

// NewRunner returns a Runner. The error is ErrEngine if the engine is not a store.Archiver.
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

// Archive returns a reader of what the Runner writes.
func (r *Runner) Archive() *Archive { return r.shelf }

// longest is the time limit of a step.
const longest = time.Hour

// Run archives until ctx ends. It may be called once.
func (r *Runner) Run(ctx context.Context) error {
	r.loop.Run(ctx, nil)
	return nil
}

// Health returns how long ago a step last succeeded.
func (r *Runner) Health() map[string]time.Duration {
	return map[string]time.Duration{r.loop.Name: r.loop.Age()}
}

const (
	look = 5 * time.Second // longest pause between two checks for work
	// If a check finds no due task, the next one comes soon, and then after pauses that double up
	// to rarely. A waiting task may become due only after the engine was queried, or because its
	// retention ends.
	soon   = 200 * time.Millisecond
	rarely = time.Minute
)

// Step continues the batch in progress, or begins one when it is due. It returns the pause before
// the next step.
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

// idle does the chores while no batch is in progress, and returns the pause before the next step.
func (r *Runner) idle(ctx context.Context) (time.Duration, error) {
	err := r.holding(ctx, r.tend)
	return min(max(time.Until(r.next), soon), look), err
}

// work finishes what was begun, or else moves what is due. It reports whether more may be due.
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
	if due, err := r.firstDue(ctx, keep, 1); err != nil {
		return false, err
	} else if len(due.Tasks) == 0 {
		r.foundNothing()
		return false, r.succeeded(ctx)
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
	first, err := r.firstDue(ctx, keep, pageFirst)
	if err != nil {
		return false, err
	}
	if len(first.Tasks) == 0 { // another process moved what was due before this one had the note
		r.foundNothing()
		return false, r.clear(ctx)
	}
	more, err = r.fill(ctx, note, keep, first)
	if err != nil {
		return false, err
	}
	r.empty, r.next = 0, time.Now().Add(r.o.Every)
	if !more && !r.begun { // what has waited may become due only after this process's first look
		r.next, r.begun = time.Now().Add(min(r.o.Every, soon)), true
	}
	return more, r.settle(ctx, note)
}

// resume finishes a batch that another process, or an earlier step, left behind.
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

// end deletes what is no longer needed, and the note.
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

// fill writes files until nothing is due or the batch is full, and notes them. It reports whether
// more is due. The engine reads the next page while the previous one is written.
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

// settle has the engine delete what was noted, removes from the files what came back, and replaces
// the open manifest with a closed one.
func (r *Runner) settle(ctx context.Context, note *Note) error {
	open, err := readManifest(ctx, r.o.Bucket, manifestPath(note.Batch))
	if err != nil {
		return err
	}
	back, err := r.release(ctx, note)
	if err != nil {
		return err
	}
	if err := r.write(ctx, note); err != nil { // fails if another process has taken over
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
		s.Failing = r.failed
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

// release makes the engine delete what it handed over, and returns the tasks that were retried
// since.
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
