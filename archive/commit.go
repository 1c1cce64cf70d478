package archive

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// A manifest is written once, under its own id, and never changed. A request to write one may still
// arrive after its process has given up on it, or was paused and taken for dead. So each manifest
// is named in the note as a draft before it is written, and counts for certain once the note says
// that it is committed. A process that continues from a note without that makes sure that the
// drafts are replaced: by the next manifest, or by one that lists nothing.
//
// A failover may bring back an older note, which lacks what was done since. So a draft that has
// arrived counts if it replaces something, since what it replaces may be deleted already. Only the
// draft of a new batch replaces nothing.

// commit writes a manifest. Once it has returned without an error, what the manifest replaces may
// be deleted.
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

// abandon has the drafts of a note replaced by an empty manifest, except those that count and
// replace something.
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

// settled reports whether a batch that a note calls written has been settled since. If so, the note
// is an older one that a failover or a restored backup has brought back.
func (r *Runner) settled(ctx context.Context, note *Note) (bool, error) {
	manifests, err := r.shelf.Manifests(ctx)
	open, replaced := false, false
	for _, m := range manifests {
		open = open || m.Batch == note.Batch
		replaced = replaced || slices.Contains(m.Replaces, note.Batch)
	}
	return replaced || !open && time.Since(madeAt(note.Batch)) >= lostAfter, err
}

// releaseAgain deletes tasks that a failover has brought back together with the note of a settled
// batch. A task that has run again since then is also in the archive, as it was before.
func (r *Runner) releaseAgain(ctx context.Context, note *Note) error {
	r.o.Log.Warn("archive: an older note of a batch has come back: it was settled", "batch", note.Batch)
	_, err := r.release(ctx, note)
	if gcerrors.Code(err) == gcerrors.NotFound { // it is done already
		return nil
	}
	return err
}

// adopt settles a batch that was written, but whose note the database no longer has, as after a
// failover or a restored backup. As after any crash, it asks whether the database still has the
// tasks. A note that this process has just begun becomes the note of that batch.
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

// supersede has a manifest replace another one and everything that one replaced: none of these may
// count again. Ids that are more than a day old are left out, since no process writes under them
// any more.
func (m *Manifest) supersede(old *Manifest) {
	for _, id := range append(old.Replaces, old.Batch) {
		if id == old.Batch || time.Since(madeAt(id)) < lostAfter {
			m.Replaces = append(m.Replaces, id)
		}
	}
}

// inForce returns the manifests that count, oldest first: those that no counting manifest replaces.
func inForce(all []Manifest) []Manifest {
	by := map[store.ID][]store.ID{} // manifests that replace a manifest
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

// madeAt returns when an id was made, by the clock of the process that made it.
func madeAt(id store.ID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, id[:6]...))))
}

// dropReplaced deletes the manifests that do not count. It also deletes empty ones after a day,
// when what they replaced can no longer count.
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
