package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// ErrNotFound says that a task is not in the archive.
var ErrNotFound = errors.New("not in the archive")

// Archive reads what Runners have written. It remembers manifests and the footers of files,
// and may be used by many goroutines at once.
type Archive struct {
	bucket *blob.Bucket
	dir    string // for files that are read as a whole

	mu        sync.Mutex
	manifests map[string]known
	files     map[string]*openFile
	used      int64 // counts uses of files
}

// known is a manifest as it was at a time.
type known struct {
	at time.Time
	Manifest
}

// New makes an Archive of a place. Files that are read as a whole wait in dir; empty: where
// temporary files are.
func New(b *blob.Bucket, dir string) *Archive {
	return &Archive{bucket: b, dir: dir, manifests: map[string]known{}, files: map[string]*openFile{}}
}

// Manifests returns all manifests, oldest first. It reads those that are new or have changed.
func (a *Archive) Manifests(ctx context.Context) ([]Manifest, error) {
	a.mu.Lock()
	before := a.manifests
	a.mu.Unlock()
	now := make(map[string]known, len(before))
	err := each(ctx, a.bucket, manifestPrefix, func(o *blob.ListObject) error {
		if was, ok := before[o.Key]; ok && !was.Open && was.at.Equal(o.ModTime) {
			now[o.Key] = was
			return nil
		}
		m, err := readManifest(ctx, a.bucket, o.Key)
		if gcerrors.Code(err) == gcerrors.NotFound { // just now
			return nil
		}
		now[o.Key] = known{o.ModTime, m}
		return err
	})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.manifests = now
	a.mu.Unlock()
	all := make([]Manifest, 0, len(now))
	for _, m := range now {
		all = append(all, m.Manifest)
	}
	slices.SortFunc(all, func(x, y Manifest) int { return slices.Compare(x.Batch[:], y.Batch[:]) })
	return all, nil
}

// Find returns a task by its id, as it last ended. The error is ErrNotFound.
func (a *Archive) Find(ctx context.Context, id store.ID) (task store.Task, err error) {
	manifests, err := a.Manifests(ctx)
	if err != nil {
		return task, err
	}
	return a.findIn(ctx, manifests, id)
}

// findIn looks for a task in the files of manifests whose ids go round it, newest first.
func (a *Archive) findIn(ctx context.Context, manifests []Manifest, id store.ID) (task store.Task, err error) {
	text := id.String()
	for _, m := range slices.Backward(manifests) {
		for _, f := range m.Files {
			if text < f.MinID || text > f.MaxID {
				continue
			}
			row, err := a.rowOf(ctx, f, text)
			switch {
			case errors.Is(err, ErrNotFound):
				continue
			case err != nil:
				return task, fmt.Errorf("read %s: %w", f.Path, err)
			}
			return row.Task(f.Queue)
		}
	}
	return task, ErrNotFound
}
