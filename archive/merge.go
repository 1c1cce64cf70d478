package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Files below smallFile are merged with others of their partition: as soon as there are mergeFiles
// of them, or fewer if no new one has come for mergeRest.
const (
	smallFile  = 64 << 20
	mergeFiles = 8
	mergeRest  = 24 * time.Hour
	mergeBytes = 1 << 30 // total size of the files that one change merges
	mergePaths = 1000    // and their number
)

// merge makes large files out of small ones. It writes the large files, commits them with a
// manifest that replaces those that list the small ones, and then deletes what was replaced. It
// reports whether there is more to merge.
func (r *Runner) merge(ctx context.Context) (more bool, err error) {
	manifests, err := r.shelf.Manifests(ctx)
	if err != nil {
		return false, err
	}
	if groups, _ := mergeable(manifests, time.Now()); len(groups) == 0 {
		return false, nil
	}
	note, now, err := r.take(ctx)
	if err != nil {
		return false, err
	}
	if manifests, err = r.shelf.Manifests(ctx); err != nil {
		return false, err
	}
	groups, more := mergeable(manifests, now)
	m := &Manifest{}
	merged := map[string]bool{}
	for _, g := range groups {
		f, err := r.mergeGroup(ctx, note, g, len(m.Files))
		if errors.Is(err, errKeep) {
			r.o.Log.Warn("archive: files are not merged", "day", g[0].Day, "queue", g[0].Queue, "error", err)
			more = false
			continue
		}
		if err != nil {
			return false, err
		}
		m.Files = append(m.Files, f)
		for _, old := range g {
			merged[old.Path] = true
		}
	}
	if len(merged) == 0 {
		return false, r.clear(ctx)
	}
	m.replace(manifests, merged)
	for p := range merged {
		note.Paths = append(note.Paths, p)
	}
	if err := r.commit(ctx, note, m); err != nil {
		return false, err
	}
	r.o.Log.Info("archive: merged", "files", len(merged), "into", len(groups))
	return more, r.end(ctx, note)
}

// replace has a manifest take over the files of other manifests that were not merged.
func (m *Manifest) replace(manifests []Manifest, merged map[string]bool) {
	for _, old := range manifests {
		if !slices.ContainsFunc(old.Files, func(f File) bool { return merged[f.Path] }) {
			continue
		}
		m.supersede(&old)
		for _, f := range old.Files {
			if !merged[f.Path] {
				m.Files = append(m.Files, f)
			}
		}
	}
}

// mergeable returns groups of files, each to be merged into one, oldest days first. It reports
// whether there are more.
func mergeable(manifests []Manifest, now time.Time) (groups [][]File, more bool) {
	small := map[Partition][]File{}
	for _, m := range manifests {
		if m.Open || m.Schema != SchemaVersion {
			continue
		}
		for _, f := range m.Files {
			if p := (Partition{f.Day, f.Queue}); f.Bytes < smallFile {
				small[p] = append(small[p], f)
			}
		}
	}
	for _, files := range small {
		latest := slices.MaxFunc(files, func(a, b File) int { return a.written().Compare(b.written()) })
		if len(files) >= mergeFiles || len(files) > 1 && now.Sub(latest.written()) > mergeRest {
			groups = append(groups, parted(files)...)
		}
	}
	slices.SortFunc(groups, func(a, b []File) int {
		return cmp.Or(cmp.Compare(a[0].Day, b[0].Day), cmp.Compare(a[0].Path, b[0].Path))
	})
	bytes, paths := int64(0), 0
	for i, g := range groups {
		for _, f := range g {
			bytes += f.Bytes
		}
		if paths += len(g); i > 0 && (bytes > mergeBytes || paths > mergePaths) {
			return groups[:i], true
		}
	}
	return groups, false
}

// parted divides files into parts, each of which makes one file of about fileTarget bytes. Files
// whose tasks ended at about the same time stay together.
func parted(files []File) (parts [][]File) {
	slices.SortFunc(files, func(a, b File) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Path, b.Path)) })
	var part []File
	bytes := int64(0)
	for i, f := range files {
		part, bytes = append(part, f), bytes+f.Bytes
		if last := i == len(files)-1; bytes >= fileTarget || len(part) == mergePaths || last {
			if len(part) > 1 {
				parts = append(parts, part)
			}
			part, bytes = nil, 0
		}
	}
	return parts
}

// written returns when the batch of a file began, which its name says.
func (f *File) written() time.Time {
	text, _, _ := strings.Cut(path.Base(f.Path), ".")
	id, err := store.ParseID(text[:max(strings.LastIndexByte(text, '-'), 0)])
	if err != nil {
		return time.Time{}
	}
	return madeAt(id)
}

// mergeGroup writes files as one.
func (r *Runner) mergeGroup(ctx context.Context, note *Note, files []File, n int) (File, error) {
	w, err := newFile(r.o.Dir, Partition{files[0].Day, files[0].Queue})
	if err != nil {
		return File{}, err
	}
	defer w.discard()
	tasks := int64(0)
	for _, f := range files {
		w.about.startAt(f.From)
	}
	for _, f := range files {
		tasks += f.Tasks
		if err := r.pour(ctx, f, w); err != nil {
			return File{}, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	about, err := w.close()
	if err != nil {
		return File{}, err
	}
	if about.Tasks != tasks {
		return File{}, fmt.Errorf("%w: %s and others have %d tasks, and their manifests say %d", errKeep, files[0].Path,
			about.Tasks, tasks)
	}
	about.Path = w.partition.path(note.Batch, n)
	note.Paths = append(note.Paths, about.Path)
	if err := r.write(ctx, note); err != nil {
		return File{}, err
	}
	return about, uploadFile(ctx, r.o.Bucket, about.Path, w.spool)
}

// pour adds the rows of a file to another.
func (r *Runner) pour(ctx context.Context, f File, w *file) error {
	local, err := f.download(ctx, r.o.Bucket, r.o.Dir)
	if err != nil {
		return err
	}
	defer discard(local)
	if err := rewritable(local); err != nil {
		return err
	}
	return eachRow(local, func(row *Row) error { return w.add(*row) })
}
