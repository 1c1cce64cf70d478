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

// An object with args or an output is made for one task, and before that is stored; no other comes to
// refer to it later, but that which has the same key. So an object that is a day old is an orphan when
// the task for which it was made does not refer to it, none with its key does, and no file of the
// archive has one that does; and when the attempt that made it, if one did, is over.

// A few tasks at a time are read with their args, which may be 16 MiB.
const orphanPage = 16

// sweepOrphans deletes objects that nobody refers to. now is by the store's clock.
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
	all, err := r.shelf.listed(ctx) // after the database was asked: what has left it since is listed
	if err != nil {
		return err
	}
	archived, err := r.payloadsOf(ctx, all, dayBefore(orphans))
	if err != nil {
		return err
	}
	if orphans, err = r.unreferenced(ctx, orphans); err != nil { // once more: some may have been restored since
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

// placeTime is now by the store's clock, from which objects have their times.
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

// dayBefore is the day before the first of some objects was made: clocks may differ.
func dayBefore(names []string) string {
	for _, name := range names { // in their order
		if day, err := time.Parse(time.DateOnly, name[:min(len(name), len(time.DateOnly))]); err == nil {
			return day.AddDate(0, 0, -1).Format(time.DateOnly)
		}
	}
	return ""
}

// payloadsOf returns the objects that the tasks in the files of manifests refer to. A file that does
// not list them, which an older program wrote, is read, if its tasks did not end before a day.
func (r *Runner) payloadsOf(ctx context.Context, manifests []Manifest, since string) (map[string]bool, error) {
	objects := map[string]bool{}
	for _, m := range manifests {
		for _, f := range m.Files {
			for _, name := range f.Payloads {
				objects[name] = true
			}
			if f.Lists || f.Day < since {
				continue
			}
			local, err := f.download(ctx, r.o.Bucket, r.o.Dir)
			if gcerrors.Code(err) == gcerrors.NotFound { // of a manifest that does not count
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

// unreferenced returns those of some objects that no task of the database refers to, or may come to.
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
		} // another name is that of what was left of a write
		left = append(left, name)
	}
	return left, nil
}

// tasksOf returns the tasks for which objects were made, as far as they are in the database.
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

// usedElsewhere reports whether another task than that for which an object was made has to do with it.
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
		tasks, err := r.tasksOf(ctx, []string{name}) // it may have been stored as that ended
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
