package archive

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/store"
)

// drop takes tasks out of the files of a manifest, by id: those that hold some are written anew.
func (m *Manifest) drop(ctx context.Context, b *blob.Bucket, dir string, ids map[string]bool) error {
	files := m.Files[:0:0]
	for _, f := range m.Files {
		holds := false
		for id := range ids {
			holds = holds || f.MinID <= id && id <= f.MaxID
		}
		if holds {
			var err error
			if f, err = f.without(ctx, b, dir, func(r *Row) bool { return ids[r.ID] }); err != nil {
				return err
			}
		}
		if f.Tasks > 0 {
			files = append(files, f)
		}
	}
	m.Files = slices.Clip(files)
	return nil
}

// without writes a file anew without the rows for which drop is true, in its place, or deletes
// it where none is left.
func (f File) without(ctx context.Context, b *blob.Bucket, dir string, drop func(*Row) bool) (File, error) {
	old, err := f.download(ctx, b, dir)
	if err != nil {
		return f, err
	}
	defer discard(old)
	w, err := newFile(dir, Partition{f.Day, f.Queue})
	if err != nil {
		return f, err
	}
	defer w.discard()
	err = eachRow(old, func(r *Row) error {
		if drop(r) {
			return nil
		}
		return w.add(*r)
	})
	if err != nil {
		return f, fmt.Errorf("read %s: %w", f.Path, err)
	}
	about, err := w.close()
	if err != nil {
		return f, err
	}
	about.Path = f.Path
	if about.Tasks == 0 {
		return about, remove(ctx, b, f.Path)
	}
	return about, upload(ctx, b, f.Path, w.spool)
}

// Tasks calls fn with each task of a file, until it returns an error.
func (a *Archive) Tasks(ctx context.Context, f File, fn func(store.Task) error) error {
	local, err := f.download(ctx, a.bucket, a.dir)
	if err != nil {
		return err
	}
	defer discard(local)
	err = eachRow(local, func(r *Row) error {
		t, err := r.Task(f.Queue)
		if err != nil {
			return err
		}
		return fn(t)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Path, err)
	}
	return nil
}

// download copies a file to the local disk.
func (f File) download(ctx context.Context, b *blob.Bucket, dir string) (*os.File, error) {
	local, err := os.CreateTemp(dir, "tusk-archive-*")
	if err != nil {
		return nil, err
	}
	if err := b.Download(ctx, f.Path, local, nil); err != nil {
		discard(local)
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	return local, nil
}

func discard(local *os.File) {
	_ = local.Close()
	_ = os.Remove(local.Name())
}

// eachRow calls fn with each row of a local file; the row is its own until it returns.
func eachRow(local *os.File, fn func(*Row) error) error {
	if _, err := local.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := parquet.NewGenericReader[Row](local)
	defer r.Close()
	for rows := make([]Row, 256); ; {
		n, err := r.Read(rows)
		for i := range n {
			if err := fn(&rows[i]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		clear(rows)
	}
}
