package archive

import (
	"context"
	"slices"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
)

// An object with args or an output is made for one task, before that task is stored with it. Later
// only a task with the same key may refer to it. So an object that is older than Grace is an orphan
// if all of this holds: the task it was made for does not refer to it, no task with the same key
// does, no file of the archive has a task that does, and the attempt that made it, if any, is over.

// Tasks are read with their args, which may have 16 MiB, so only a few at a time.
const orphanPage = 16

// sweepOrphans deletes objects that no task refers to.
func (r *Runner) sweepOrphans(ctx context.Context) error {
	now, err := r.placeTime(ctx)
	if err != nil {
		return err
	}
	var old []string
	err = each(ctx, r.o.Bucket, payload.Prefix, func(o *blob.ListObject) error {
		if now.Sub(o.ModTime) > r.o.Grace {
			old = append(old, o.Key[len(payload.Prefix):])
		}
		return nil
	})
	if err != nil || len(old) == 0 {
		return err
	}
	all, err := r.shelf.listed(ctx)
	if err != nil {
		return err
	}
	// Most objects belong to tasks of the archive. Each of the others may take a request.
	archived := namedBy(all)
	old = slices.DeleteFunc(old, func(name string) bool { return archived[name] })
	var orphans []string
	for page := range slices.Chunk(old, orphanPage) {
		left, err := r.unreferenced(ctx, page)
		if err != nil {
			return err
		}
		orphans = append(orphans, left...)
	}
	if len(orphans) == 0 {
		return nil
	}
	// Once more, after the database was asked, so that tasks that have left it since are listed.
	if all, err = r.shelf.listed(ctx); err != nil {
		return err
	}
	archived, err = r.payloadsOf(ctx, all, dayBefore(orphans))
	if err != nil {
		return err
	}
	if orphans, err = r.unreferenced(ctx, orphans); err != nil { // once more: some tasks may have been restored since
		return err
	}
	swept := 0
	for _, name := range orphans {
		if archived[name] {
			continue
		}
		if err := remove(ctx, r.o.Bucket, payload.Prefix+name); err != nil {
			return err
		}
		swept++
	}
	if swept > 0 {
		r.o.Log.Info("archive: objects that no task refers to are deleted", "objects", swept)
	}
	return nil
}

// placeTime returns the current time by the object store's clock, which also dates the objects.
func (r *Runner) placeTime(ctx context.Context) (time.Time, error) {
	const path = "_tusk/clock"
	if err := put(ctx, r.o.Bucket, path, "text/plain", []byte("now\n")); err != nil {
		return time.Time{}, err
	}
	about, err := r.o.Bucket.Attributes(ctx, path)
	if err != nil {
		return time.Time{}, err
	}
	return about.ModTime, nil
}

// dayBefore returns the day before the oldest of some objects was made. Clocks may differ.
func dayBefore(names []string) string {
	for _, name := range names { // sorted by day
		if day, err := time.Parse(time.DateOnly, name[:min(len(name), len(time.DateOnly))]); err == nil {
			return day.AddDate(0, 0, -1).Format(time.DateOnly)
		}
	}
	return ""
}

// namedBy returns the objects that manifests list.
func namedBy(manifests []Manifest) map[string]bool {
	objects := map[string]bool{}
	for _, m := range manifests {
		for _, f := range m.Files {
			for _, name := range f.Payloads {
				objects[name] = true
			}
		}
	}
	return objects
}

// payloadsOf returns the objects that the tasks in the files of manifests refer to. A file from an
// older program that does not list them is read, unless its tasks ended before the day since.
func (r *Runner) payloadsOf(ctx context.Context, manifests []Manifest, since string) (map[string]bool, error) {
	objects := namedBy(manifests)
	for _, m := range manifests {
		for _, f := range m.Files {
			if f.Lists || f.Day < since {
				continue
			}
			local, err := f.download(ctx, r.o.Bucket, r.o.Dir)
			if gcerrors.Code(err) == gcerrors.NotFound { // its manifest does not count
				continue
			}
			if err == nil {
				err = eachRow(local, func(row *Row) error {
					for _, name := range row.payloads() {
						objects[name] = true
					}
					return nil
				})
				discard(local)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// unreferenced returns those of the named objects that no task in the database refers to or may
// refer to later.
func (r *Runner) unreferenced(ctx context.Context, names []string) (left []string, err error) {
	tasks, err := r.tasksOf(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, ok := payload.TaskOf(name)
		if t := tasks[id]; ok && t != nil && (!t.State.Finished() || refersTo(t, name)) {
			continue
		}
		if ok {
			if used, err := r.usedElsewhere(ctx, name); err != nil || used {
				if err != nil {
					return nil, err
				}
				continue
			}
		} // any other name is left over from a write
		left = append(left, name)
	}
	return left, nil
}

// tasksOf returns the tasks for which objects were made, if they are in the database.
func (r *Runner) tasksOf(ctx context.Context, names []string) (map[store.ID]*store.Task, error) {
	tasks := map[store.ID]*store.Task{}
	var ids []store.ID
	for _, name := range names {
		if id, ok := payload.TaskOf(name); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return tasks, nil
	}
	slices.SortFunc(ids, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	found, err := r.o.Store.List(ctx, store.Filter{IDs: slices.Compact(ids), Detail: true, Limit: len(ids)})
	for i := range found {
		tasks[found[i].ID] = &found[i]
	}
	return tasks, err
}

func refersTo(t *store.Task, name string) bool {
	output := ""
	if t.Detail != nil {
		output = string(t.Detail.Output)
	}
	return slices.Contains(refs(string(t.Args), output), name)
}

// usedElsewhere reports whether another task than the one that an object was made for may need it.
func (r *Runner) usedElsewhere(ctx context.Context, name string) (bool, error) {
	about, err := r.header(ctx, name)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return true, nil // it is gone
	}
	if err != nil {
		return false, err
	}
	if !about.By.IsZero() {
		makers, err := r.o.Store.List(ctx, store.Filter{IDs: []store.ID{about.By}, Limit: 1, NoArgs: true})
		if err != nil || len(makers) > 0 && !makers[0].State.Finished() {
			return true, err
		}
		tasks, err := r.tasksOf(ctx, []string{name}) // the task may have been stored when that attempt ended
		if err != nil {
			return false, err
		}
		for _, t := range tasks {
			if !t.State.Finished() || refersTo(t, name) {
				return true, nil
			}
		}
	}
	if about.Key == "" {
		return false, nil
	}
	for f := (store.Filter{Key: about.Key, Limit: orphanPage}); ; {
		page, err := r.o.Store.List(ctx, f)
		if err != nil {
			return false, err
		}
		for i := range page {
			if refersTo(&page[i], name) {
				return true, nil
			}
		}
		if len(page) < f.Limit {
			return false, nil
		}
		f.Before = page[len(page)-1].ID
	}
}

func (r *Runner) header(ctx context.Context, name string) (payload.Header, error) {
	in, err := r.o.Bucket.NewRangeReader(ctx, payload.Prefix+name, 0, payload.MostHeader, nil)
	if err != nil {
		return payload.Header{}, err
	}
	defer in.Close()
	return payload.ReadHeader(in)
}
