package archive

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// A manifest is written once, under an id of its own, and never changed. A request to write one
// may arrive at any time after its process gave it up, or stood still and was taken for dead. So
// each is named in the note before it is written, as a draft, and counts for certain once the
// note says that it is committed. Whoever goes on from a note that does not say so has the drafts
// replaced, by the manifest that comes instead or by one that lists nothing.
//
// A failover may bring an older note back, which does not say yet what was done since. So a draft
// that has arrived counts where it replaces something, which may have gone: all but that of a batch.

// commit puts a manifest into its place. What it replaces may go when it returns no error.
func (r *Runner) commit(ctx context.Context, note *Note, m *Manifest) error {
	m.Schema, m.Batch, m.Written = SchemaVersion, r.o.NewID(), time.Now().UTC()
	m.Replaces = append(m.Replaces, note.Drafts...)
	note.Drafts = append(note.Drafts, m.Batch)
	if err := r.write(ctx, note); err != nil {
		return err
	}
	if err := m.put(ctx, r.o.Bucket); err != nil {
		return err
	}
	note.Committed, note.Drafts = true, nil
	return r.write(ctx, note)
}

// abandon has the drafts of a note replaced by nothing, but for one that replaces something and counts.
func (r *Runner) abandon(ctx context.Context, note *Note) error {
	dead := note.Drafts
	if note.Change || note.Written {
		manifests, err := r.shelf.Manifests(ctx)
		if err != nil {
			return err
		}
		dead = slices.DeleteFunc(slices.Clone(dead), func(id store.ID) bool {
			return slices.ContainsFunc(manifests, func(m Manifest) bool { return m.Batch == id })
		})
	}
	if len(dead) == 0 {
		return nil
	}
	nothing := Manifest{Schema: SchemaVersion, Batch: r.o.NewID(), Written: time.Now().UTC(), Replaces: dead}
	return nothing.put(ctx, r.o.Bucket)
}

// settled reports whether a batch that a note calls written was settled since: the note is an older
// one, which a failover or a restored backup has brought back.
func (r *Runner) settled(ctx context.Context, note *Note) (bool, error) {
	manifests, err := r.shelf.Manifests(ctx)
	open, replaced := false, false
	for _, m := range manifests {
		open = open || m.Batch == note.Batch
		replaced = replaced || slices.Contains(m.Replaces, note.Batch)
	}
	return replaced || !open && time.Since(madeAt(note.Batch)) >= lostAfter, err
}

// releaseAgain deletes what a failover has brought back with the note of a batch that was settled. What has
// run again since is in the archive as it was before, too.
func (r *Runner) releaseAgain(ctx context.Context, note *Note) error {
	r.o.Log.Warn("archive: an older note of a batch has come back: it was settled", "batch", note.Batch)
	_, err := r.release(ctx, note)
	if gcerrors.Code(err) == gcerrors.NotFound { // that is done
		return nil
	}
	return err
}

// adopt settles a batch that was written and of which the database has no note any more, as after a
// failover or a restored backup that lost it: whether the database still has its tasks is asked as
// after any crash. A note that this process has just begun becomes that of the batch.
func (r *Runner) adopt(ctx context.Context, note *Note) (adopted bool, err error) {
	manifests, err := r.shelf.Manifests(ctx)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(manifests, func(m Manifest) bool { return m.Open })
	if at < 0 {
		return false, nil
	}
	*note = Note{Holder: note.Holder, Batch: manifests[at].Batch, Written: true}
	if err := r.write(ctx, note); err != nil {
		return false, err
	}
	r.o.Log.Warn("archive: a batch of which the database has no note is settled", "batch", note.Batch)
	return true, r.settle(ctx, note)
}

// supersede has a manifest replace another, and what that one replaced: none of these may count
// again. A day after an id was made nobody writes under it any more.
func (m *Manifest) supersede(old *Manifest) {
	for _, id := range append(old.Replaces, old.Batch) {
		if id == old.Batch || time.Since(madeAt(id)) < lostAfter {
			m.Replaces = append(m.Replaces, id)
		}
	}
}

// inForce returns the manifests that count, oldest first: those that no manifest replaces which
// counts itself.
func inForce(all []Manifest) []Manifest {
	by := map[store.ID][]store.ID{} // who replaces a manifest
	for _, m := range all {
		for _, id := range m.Replaces {
			by[id] = append(by[id], m.Batch)
		}
	}
	known := map[store.ID]bool{}
	var counts func(id store.ID) bool
	counts = func(id store.ID) bool {
		if does, ok := known[id]; ok {
			return does
		}
		known[id] = false // a manifest that replaces itself is damaged
		known[id] = !slices.ContainsFunc(by[id], counts)
		return known[id]
	}
	counting := slices.DeleteFunc(slices.Clone(all), func(m Manifest) bool { return !counts(m.Batch) })
	slices.SortFunc(counting, func(x, y Manifest) int { return slices.Compare(x.Batch[:], y.Batch[:]) })
	return counting
}

// madeAt is when an id was made, by the clock of the process that made it.
func madeAt(id store.ID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, id[:6]...))))
}

// dropReplaced deletes the manifests that do not count, and those that list nothing and have
// replaced for a day what may not count.
func (r *Runner) dropReplaced(ctx context.Context, all, counting []Manifest) error {
	keep := map[store.ID]bool{}
	for _, m := range counting {
		keep[m.Batch] = len(m.Files) > 0 || time.Since(m.Written) < lostAfter
	}
	for _, m := range all {
		if keep[m.Batch] {
			continue
		}
		if err := remove(ctx, r.o.Bucket, manifestPath(m.Batch)); err != nil {
			return err
		}
	}
	return nil
}
