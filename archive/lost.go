package archive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
)

// lostAfter is longer than any batch takes.
const lostAfter = 24 * time.Hour

// tidy settles a batch whose note was lost. If there is none, it deletes lost files and republishes
// the catalogue, since a late request may have put an old one in its place.
func (r *Runner) tidy(ctx context.Context) error {
	note, _, err := r.take(ctx)
	if err != nil {
		return err
	}
	if adopted, err := r.adopt(ctx, note); err != nil || adopted {
		return err
	}
	if err := errors.Join(r.sweepLost(ctx), r.sweepOrphans(ctx)); err != nil {
		return errors.Join(err, r.clear(ctx))
	}
	return r.end(ctx, note)
}

// sweepLost deletes files that no manifest lists and that are older than any batch under way. They
// were written by a process that had lost its note and did not know yet.
func (r *Runner) sweepLost(ctx context.Context) error {
	type object struct {
		path string
		at   time.Time // by the object store's clock
	}
	var files []object
	var latest time.Time
	err := each(ctx, r.o.Bucket, "day=", func(o *blob.ListObject) error {
		if strings.HasSuffix(o.Key, ".parquet") {
			files = append(files, object{o.Key, o.ModTime})
		}
		if o.ModTime.After(latest) {
			latest = o.ModTime
		}
		return nil
	})
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(o object) bool { return latest.Sub(o.at) <= lostAfter })
	if len(files) == 0 {
		return nil
	}
	// This comes after the files were listed, so that the manifests of all of them are read.
	manifests, err := r.shelf.Manifests(ctx)
	if err != nil {
		return err
	}
	listed := pathsOf(manifests)
	for _, f := range files {
		if !listed[f.path] {
			r.o.Log.Warn("archive: a file that no manifest lists is deleted", "path", f.path)
			if err := remove(ctx, r.o.Bucket, f.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// pathsOf returns the files that manifests list.
func pathsOf(manifests []Manifest) map[string]bool {
	paths := map[string]bool{}
	for _, m := range manifests {
		for _, f := range m.Files {
			paths[f.Path] = true
		}
	}
	return paths
}
