package archive

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/semaphore"

	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/store"
)

// ErrNotFound says that a task is not in the archive.
var ErrNotFound = errors.New("not in the archive")

// Archive reads what Runners have written. It caches the catalogue and the footers of files, and
// may be used by many goroutines at once.
type Archive struct {
	bucket   *blob.Bucket
	dir      string       // for files that are read as a whole
	requests atomic.Int64 // number sent to the object store

	mu        sync.Mutex
	manifests map[string]Manifest // by path; they never change

	finding     *semaphore.Weighted // lookups by id, each of which holds pages of files in memory
	asking      gate.Gate           // held while the catalogue is read from the object store
	catalogueMu sync.Mutex
	catalogue   catalogue

	footerMu sync.Mutex
	footers  map[string]*list.Element // of *openFile, by path
	recent   list.List                // the same files, most recently used first
	kept     int64                    // approximate size of footers in bytes
}

// New returns an Archive of an object store. Files that are read as a whole are downloaded to dir,
// or to the directory for temporary files if dir is empty.
func New(b *blob.Bucket, dir string) *Archive {
	return &Archive{bucket: b, dir: dir, finding: semaphore.NewWeighted(mostFinding), asking: gate.New(),
		manifests: map[string]Manifest{},
		footers:   map[string]*list.Element{}}
}

// Requests returns how many requests the Archive has sent to the object store.
func (a *Archive) Requests() int64 { return a.requests.Load() }

// reach reads the catalogue from the object store and reports whether it exists.
func (a *Archive) reach(ctx context.Context) (has bool, err error) {
	if _, _, err := a.catalogued(ctx, true); err != nil {
		return false, err
	}
	return !a.cached().looked.IsZero(), nil
}

// Manifests returns the manifests that count, oldest first, as listed in the object store.
func (a *Archive) Manifests(ctx context.Context) ([]Manifest, error) {
	all, err := a.listed(ctx)
	return inForce(all), err
}

// listed returns all manifests. It reads only new ones.
func (a *Archive) listed(ctx context.Context) ([]Manifest, error) {
	return a.readable(ctx, func(_ string, err error) error { return err })
}

// readable is listed without the manifests that are damaged or from a newer program, unless damaged
// returns an error. It calls damaged for each of them.
func (a *Archive) readable(ctx context.Context, damaged func(path string, err error) error) ([]Manifest, error) {
	a.mu.Lock()
	before := a.manifests
	a.mu.Unlock()
	now := make(map[string]Manifest, len(before))
	a.requests.Add(1)
	err := each(ctx, a.bucket, manifestPrefix, func(o *blob.ListObject) error {
		if m, ok := before[o.Key]; ok {
			now[o.Key] = m
			return nil
		}
		// Other names are temporary files in a folder: a process is writing them, or was killed.
		if !strings.HasSuffix(o.Key, manifestSuffix) {
			return nil
		}
		a.requests.Add(1)
		m, err := readManifest(ctx, a.bucket, o.Key)
		if gcerrors.Code(err) == gcerrors.NotFound { // it has just been deleted
			return nil
		}
		if errors.Is(err, errManifest) {
			return damaged(o.Key, err)
		}
		now[o.Key] = m
		return err
	})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.manifests = now
	a.mu.Unlock()
	return slices.Collect(maps.Values(now)), nil
}

// mostFinding is how many lookups by id run at a time. The others wait.
const mostFinding = 8

// Find returns a task by its id. The error is ErrNotFound.
func (a *Archive) Find(ctx context.Context, id store.ID) (task store.Task, err error) {
	if err := a.finding.Acquire(ctx, 1); err != nil {
		return task, fmt.Errorf("find in the archive: %d lookups are in progress: %w", mostFinding, err)
	}
	defer a.finding.Release(1)
	manifests, read, err := a.remembered(ctx)
	if err != nil {
		return task, err
	}
	task, err = a.findIn(ctx, manifests, id)
	// A NotFound from the object store means that a file was deleted meanwhile.
	if stale := errors.Is(err, ErrNotFound) && !read || gcerrors.Code(err) == gcerrors.NotFound; !stale {
		return task, err
	}
	if manifests, _, err = a.catalogued(ctx, true); err != nil {
		return task, err
	}
	return a.findIn(ctx, manifests, id)
}

// findIn searches for a task in the files that may have its id. It begins with the files that name
// the id, and continues with those whose tasks ended first, since most tasks end soon after they
// were enqueued.
func (a *Archive) findIn(ctx context.Context, manifests []Manifest, id store.ID) (task store.Task, err error) {
	text := id.String()
	var may []File
	for _, m := range manifests {
		for _, f := range m.Files {
			if f.mayHave(text) {
				may = append(may, f)
			}
		}
	}
	slices.SortStableFunc(may, func(x, y File) int {
		if likely := x.likely(text); likely != y.likely(text) {
			if likely {
				return -1
			}
			return 1
		}
		return x.From.Compare(y.From)
	})
	for _, f := range may {
		row, err := a.rowOf(ctx, f, text)
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return task, fmt.Errorf("read %s: %w", f.Path, err)
		}
		return row.Task(f.Queue)
	}
	return task, ErrNotFound
}
