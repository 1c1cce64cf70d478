package archive

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// share says how much of a file to delete.
type share int

const (
	none share = iota
	some       // only its rows say which
	all
)

// cut says what to delete from the archive.
type cut interface {
	// of returns how much of a file to delete, as far as its manifest shows.
	of(f *File) share
	// row reports whether to delete a row. It is called for files of which some rows are deleted.
	row(f *File, r *Row) bool
	// forgets reports whether to delete the objects that deleted rows refer to at the same time.
	// That is so if nothing else needs them and nothing brings the rows back. Otherwise the objects
	// are left to the sweep.
	forgets() bool
}

// returned holds the ids of a batch's tasks that were retried before the database had deleted them.
type returned map[string]bool

// of implements cut.
func (t returned) of(f *File) share {
	for id := range t {
		if f.mayHave(id) {
			return some
		}
	}
	return none
}

// row implements cut.
func (t returned) row(_ *File, r *Row) bool { return t[r.ID] }

// forgets implements cut. The database refers to the objects again.
func (t returned) forgets() bool { return false }

// Gone sums up what was deleted or would be.
type Gone struct {
	Files int   `json:"files"` // deleted or rewritten
	Tasks int64 `json:"tasks"`
	Bytes int64 `json:"bytes"` // of the deleted files, less those of the files that replaced them
}

func (g *Gone) add(more Gone) {
	g.Files, g.Tasks, g.Bytes = g.Files+more.Files, g.Tasks+more.Tasks, g.Bytes+more.Bytes
}

// ErrBusy says that a rerun is reading the archive, so its files cannot change.
var ErrBusy = errors.New("a rerun reads the archive: its files stay as they are until it has ended")

// take takes the note for a change to existing files, after it has settled what other processes
// left behind. now is the time by the database's clock. Errors: store.ErrConflict while another
// process works on the archive; ErrBusy.
func (r *Runner) take(ctx context.Context) (note *Note, now time.Time, err error) {
	if err := r.own(ctx); err != nil {
		return nil, now, err
	}
	for {
		if note, err = r.read(ctx); err != nil {
			return nil, now, err
		}
		if note == nil {
			break
		}
		if note.Holder != r.o.ID && time.Since(r.since) < r.o.Patience {
			return nil, now, store.ErrConflict
		}
		note.Holder = r.o.ID
		if err := r.write(ctx, note); err != nil {
			return nil, now, err
		}
		if err := r.resume(ctx, note); err != nil {
			return nil, now, err
		}
	}
	note = &Note{Holder: r.o.ID, Batch: r.o.NewID(), Change: true}
	if err := r.write(ctx, note); err != nil {
		return nil, now, err
	}
	record, err := find(ctx, r.o.Store, recordKind, noteName)
	if err != nil {
		return nil, now, err
	}
	read, err := beingRead(ctx, r.o.Store, record.UpdatedAt)
	if err == nil && read {
		err = ErrBusy
	}
	if err != nil {
		return nil, now, errors.Join(err, r.clear(ctx))
	}
	return note, record.UpdatedAt, nil
}

// cut deletes rows from all files, one manifest after the other. prepare returns which. It is
// called once no other process can change the archive; now is the time by the database's clock. If
// cut fails, what it has deleted stays deleted. The error is errKeep if it has deleted everything
// except in files that cannot be rewritten. tell is called with the number of files processed; it
// may be nil.
func (r *Runner) cut(
	ctx context.Context, prepare func(now time.Time) (cut, error), tell func(done, of int, gone Gone),
) (gone Gone, err error) {
	note, now, err := r.take(ctx)
	if err != nil {
		return gone, err
	}
	what, err := prepare(now)
	if err != nil {
		return gone, errors.Join(err, r.clear(ctx))
	}
	manifests, err := r.shelf.Manifests(ctx)
	if err != nil {
		return gone, errors.Join(err, r.clear(ctx))
	}
	done, of := 0, 0
	for _, m := range manifests {
		of += len(m.Files)
	}
	for i := range manifests {
		m := &manifests[i]
		went, err := r.cutOne(ctx, note, m, what)
		gone.add(went)
		if err != nil {
			return gone, err
		}
		if done += len(m.Files); tell != nil {
			tell(done, of, gone)
		}
	}
	return gone, errors.Join(note.kept, r.clear(ctx))
}

// cutOne deletes rows from the files of one manifest.
func (r *Runner) cutOne(ctx context.Context, note *Note, m *Manifest, what cut) (gone Gone, err error) {
	left := Manifest{Open: m.Open}
	if left.Files, gone, err = r.cutFiles(ctx, note, m.Files, what); err != nil {
		return Gone{}, err
	}
	if gone.Files == 0 {
		return gone, nil
	}
	left.supersede(m)
	if err := r.commit(ctx, note, &left); err != nil {
		return Gone{}, err
	}
	if err := r.sweep(ctx, note); err != nil {
		return Gone{}, err
	}
	note.Committed, note.Paths = false, nil
	return gone, r.write(ctx, note)
}

// cutFiles deletes rows from files, and returns the files that remain or replace them. A file that
// cannot be rewritten remains as it is, and the note keeps the reason.
func (r *Runner) cutFiles(ctx context.Context, note *Note, files []File, what cut) (left []File, gone Gone, err error) {
	for _, f := range files {
		now, err := r.cutFile(ctx, note, f, what)
		if errors.Is(err, errKeep) {
			r.o.Log.Warn("archive: a file stays as it is", "error", err)
			if note.kept == nil {
				note.kept = err
			}
			now, err = f, nil
		}
		if err != nil {
			return nil, gone, err
		}
		if now.Tasks > 0 {
			left = append(left, now)
		}
		if now.Path != f.Path {
			gone.add(Gone{1, f.Tasks - now.Tasks, f.Bytes - now.Bytes})
		}
	}
	return left, gone, nil
}

// cutFile rewrites a file without the rows to delete. It returns the file that takes its place:
// itself, a new one, or a File without a path.
func (r *Runner) cutFile(ctx context.Context, note *Note, f File, what cut) (File, error) {
	switch what.of(&f) {
	case none:
		return f, nil
	case all:
		if what.forgets() {
			if err := r.forget(ctx, f.Payloads); err != nil {
				return f, err
			}
		}
		note.Paths = append(note.Paths, f.Path)
		return File{}, nil
	}
	old, err := f.download(ctx, r.o.Bucket, r.o.Dir)
	if err != nil {
		return f, err
	}
	defer discard(old)
	if err := rewritable(old); err != nil {
		return f, err
	}
	going, objects := int64(0), []string(nil)
	err = eachRow(old, func(row *Row) error {
		if what.row(&f, row) {
			going++
			objects = append(objects, row.payloads()...)
		}
		return nil
	})
	if err != nil || going == 0 {
		return f, err
	}
	if what.forgets() {
		if err := r.forget(ctx, objects); err != nil {
			return f, err
		}
	}
	note.Paths = append(note.Paths, f.Path)
	if going == f.Tasks {
		return File{}, nil
	}
	w, err := newFile(r.o.Dir, Partition{f.Day, f.Queue})
	if err != nil {
		return f, err
	}
	defer w.discard()
	w.about.startAt(f.From)
	err = eachRow(old, func(row *Row) error {
		if what.row(&f, row) {
			return nil
		}
		return w.add(*row)
	})
	if err != nil {
		return f, err
	}
	now, err := w.close()
	if err != nil {
		return f, err
	}
	now.Path = w.partition.path(r.o.NewID(), 0)
	note.Paths = append(note.Paths, now.Path)
	if err := r.write(ctx, note); err != nil {
		return f, err
	}
	return now, uploadFile(ctx, r.o.Bucket, now.Path, w.spool)
}

// sweep publishes the catalogue. Then it deletes the files of a note that no manifest lists: files
// that a change replaced or, if the change was abandoned, the files that were to replace them.
func (r *Runner) sweep(ctx context.Context, note *Note) error {
	all, err := r.shelf.listed(ctx)
	if err != nil {
		return err
	}
	manifests := inForce(all)
	if err := r.shelf.publish(ctx, manifests); err != nil {
		return err
	}
	listed := pathsOf(manifests)
	for _, path := range note.Paths {
		if !listed[path] {
			if err := remove(ctx, r.o.Bucket, path); err != nil {
				return err
			}
		}
	}
	return r.dropReplaced(ctx, all, manifests)
}
