package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// Names that begin with an underscore hold no data. Readers of Hive's layout skip them.
const (
	manifestPrefix = "_tusk/manifests/"
	manifestSuffix = ".json"
	receiptPrefix  = "_tusk/receipts/"
)

// Manifest lists the files of a batch, which are tasks that were moved together.
type Manifest struct {
	Schema  int       `json:"schema"`
	Batch   store.ID  `json:"batch"`
	Written time.Time `json:"written"` // by the clock of the process that wrote it
	// Open says that the database may still have some of the tasks, so they are not counted yet.
	Open bool `json:"open,omitempty"`
	// Replaces names the batches whose tasks this one has taken over. They no longer count.
	Replaces []store.ID `json:"replaces,omitempty"`
	Files    []File     `json:"files"`
}

// Tasks returns how many tasks the manifest counts.
func (m *Manifest) Tasks() (tasks int64) {
	if m.Open {
		return 0
	}
	for _, f := range m.Files {
		tasks += f.Tasks
	}
	return tasks
}

func manifestPath(batch store.ID) string { return manifestPrefix + batch.String() + manifestSuffix }

func receiptPath(batch store.ID) string { return receiptPrefix + batch.String() }

// put writes a manifest.
func (m *Manifest) put(ctx context.Context, b *blob.Bucket) error {
	body, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if err := put(ctx, b, manifestPath(m.Batch), "application/json", body); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// readManifest reads a manifest.
func readManifest(ctx context.Context, b *blob.Bucket, path string) (m Manifest, err error) {
	body, err := b.ReadAll(ctx, path)
	if err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("%w: %s is damaged: %w", errManifest, path, err)
	}
	if m.Schema > SchemaVersion {
		return m, fmt.Errorf("%w: %s has schema %d: this program knows %d", errManifest, path, m.Schema, SchemaVersion)
	}
	return m, nil
}

// errManifest says that a manifest is damaged or from a newer program.
var errManifest = errors.New("manifest")

// each calls fn for each object with a prefix.
func each(ctx context.Context, b *blob.Bucket, prefix string, fn func(*blob.ListObject) error) error {
	for list := b.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := list.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if strings.HasSuffix(o.Key, "/") {
			continue
		}
		if err := fn(o); err != nil {
			return err
		}
	}
}

// put writes an object. It does not use WriteAll, which panics on Azure if the write fails.
func put(ctx context.Context, b *blob.Bucket, path, kind string, body []byte) error {
	return upload(ctx, b, path, bytes.NewReader(body), &blob.WriterOptions{ContentType: kind, BufferSize: 8 << 20,
		MaxConcurrency: 1})
}

// remove deletes an object. The object may be gone already.
func remove(ctx context.Context, b *blob.Bucket, path string) error {
	if err := b.Delete(ctx, path); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}
