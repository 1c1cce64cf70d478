package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// cataloguePath is an object with all manifests, so that a reader needs one request instead of one
// per manifest. The manifests are authoritative; the catalogue is created from them.
const cataloguePath = "_tusk/catalogue.json.gz"

// fresh is how long the cached catalogue is used without checking for a newer one. If a task is
// not found, the latest one is read.
const fresh = time.Second

// catalogue is the latest catalogue that was read.
type catalogue struct {
	looked    time.Time // when it was last requested; zero if never
	changed   time.Time // when the object was written; some object stores say so only to the second
	size      int64
	etag      string // of the object; empty if unknown
	manifests []Manifest
}

// same reports whether an object is the one that was read. Without an ETag that is not certain.
func (c *catalogue) same(o *blob.Attributes) bool {
	return o.ModTime.Equal(c.changed) && o.Size == c.size && (c.etag == "" || o.ETag == c.etag)
}

// Publish rewrites the catalogue. Everyone who changes manifests must call it: before the database
// deletes the tasks of a new manifest, and before the files of a replaced manifest are deleted.
func (a *Archive) Publish(ctx context.Context) error {
	manifests, err := a.Manifests(ctx)
	if err != nil {
		return err
	}
	return a.publish(ctx, manifests)
}

func (a *Archive) publish(ctx context.Context, manifests []Manifest) error {
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	if err := json.NewEncoder(w).Encode(manifests); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := put(ctx, a.bucket, cataloguePath, "application/gzip", body.Bytes()); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	return nil
}

// cached returns the latest catalogue that was read.
func (a *Archive) cached() catalogue {
	a.catalogueMu.Lock()
	defer a.catalogueMu.Unlock()
	return a.catalogue
}

func (a *Archive) cache(c catalogue) {
	a.catalogueMu.Lock()
	defer a.catalogueMu.Unlock()
	a.catalogue = c
}

// remembered returns all manifests from the cached catalogue, and reads the catalogue if none is
// cached. An old catalogue is good enough for what it leads to: files never change, and reading
// one that has been deleted fails unless it is cached.
func (a *Archive) remembered(ctx context.Context) (all []Manifest, read bool, err error) {
	if known := a.cached(); !known.looked.IsZero() {
		return known.manifests, false, nil
	}
	return a.catalogued(ctx, false)
}

// catalogued returns all manifests from the catalogue. With now, the catalogue is certainly not
// older than the call; calls that wait for each other share one look. It reports whether it read the
// catalogue. If there is no catalogue, it lists the manifests instead.
func (a *Archive) catalogued(ctx context.Context, now bool) (all []Manifest, read bool, err error) {
	called := time.Now()
	if err := a.asking.Enter(ctx); err != nil {
		return nil, false, fmt.Errorf("read catalogue: %w", err)
	}
	defer a.asking.Leave()
	c := a.cached()
	if !now && time.Since(c.looked) < fresh || c.looked.After(called) {
		return c.manifests, false, nil
	}
	next := catalogue{looked: time.Now()}
	if now || !c.looked.IsZero() {
		a.requests.Add(1)
		about, err := a.bucket.Attributes(ctx, cataloguePath)
		switch {
		case err == nil && c.same(about) && (!now || c.etag != ""):
			c.looked = next.looked
			a.cache(c)
			return c.manifests, false, nil
		case err == nil:
			next.etag = about.ETag
		case gcerrors.Code(err) != gcerrors.NotFound:
			return nil, true, fmt.Errorf("read catalogue: %w", err)
		}
	}
	a.requests.Add(1)
	r, err := a.bucket.NewReader(ctx, cataloguePath, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		a.cache(catalogue{})
		all, err := a.Manifests(ctx)
		return all, true, err
	}
	if err != nil {
		return nil, true, fmt.Errorf("read catalogue: %w", err)
	}
	defer r.Close()
	next.changed, next.size = r.ModTime(), r.Size()
	text, err := gzip.NewReader(r)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(text)
	}
	if err == nil {
		err = json.Unmarshal(body, &next.manifests)
	}
	if err != nil {
		return nil, true, fmt.Errorf("the catalogue is damaged: delete %s, and it is made anew: %w", cataloguePath, err)
	}
	a.cache(next)
	return next.manifests, true, nil
}
