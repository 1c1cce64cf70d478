package archive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
)

// lostAfter is longer than any batch is under way.
const lostAfter = 24 * time.Hour

// tidy settles a batch of which the note was lost; or else deletes what is lost, and publishes the
// catalogue anew: a late request may have put an old one in its place.
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

// sweepLost deletes files that no manifest lists and that are older than every batch under way:
// what a process wrote that had lost its note, and did not know yet.
func (r *Runner) sweepLost(ctx context.Context) error {
	type object struct {
		path string
		at   time.Time // by the store's clock
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
	manifests, err := r.shelf.Manifests(ctx) // after the files were listed: what is listed since then was there
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
