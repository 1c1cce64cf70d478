package archive

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
)

// Payloads keeps args and outputs that are too large for a database in the object store of its
// archive. It is meant for tusk.ClientConfig.Payloads, and many goroutines may use it at once. A
// Runner deletes objects that no task refers to any more.
type Payloads struct {
	bucket *blob.Bucket
	own    owner

	claiming gate.Gate
	owned    time.Time // when the object store was last seen to belong to this database; needs the gate
}

// NewPayloads returns the Payloads of a database. newID makes the id that identifies the database
// as owner, if it has none yet.
func NewPayloads(s store.Store, b *blob.Bucket, newID func() store.ID) *Payloads {
	return &Payloads{bucket: b, own: owner{s, b, newID}, claiming: gate.New()}
}

// ownedFor is how long the owner of the object store is not checked again.
const ownedFor = time.Minute

// Write stores an object as a whole. If it or r fails, there is no object.
func (p *Payloads) Write(ctx context.Context, name string, r io.Reader) error {
	if err := p.Claim(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &blob.WriterOptions{ContentType: "application/octet-stream", BufferSize: 8 << 20, MaxConcurrency: 1,
		DisableContentTypeDetection: true}
	if err := upload(ctx, p.bucket, payload.Prefix+name, &whole{r, cancel}, o); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// whole cancels a write if its content cannot be read to the end. Otherwise some stores would keep the
// beginning.
type whole struct {
	r      io.Reader
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (w *whole) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.cancel()
	}
	return n, err
}

// Claim claims the object store for this database. It refuses one that belongs to another database,
// whose archive would sweep what is written there. Write calls it, too. But the first time, it
// makes a record in the database, which on SQLite is impossible while a transaction is open. So
// programs that enqueue in transactions call Claim when they start.
func (p *Payloads) Claim(ctx context.Context) error {
	if err := p.claiming.Enter(ctx); err != nil {
		return err
	}
	defer p.claiming.Leave()
	if time.Since(p.owned) < ownedFor {
		return nil
	}
	for range 2 { // if the object store has just become this database's, the second round checks that
		if err := p.own.claim(ctx); err != nil {
			return err
		}
	}
	p.owned = time.Now()
	return nil
}

// Read returns an object from a byte on. The error is fs.ErrNotExist if there is no such object.
func (p *Payloads) Read(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	r, err := p.bucket.NewRangeReader(ctx, payload.Prefix+name, from, -1, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return r, nil
}

// listings is how often objects are listed again if one was moved meanwhile. A folder moves its
// files when they are written.
const listings = 10

// Sum returns the number and the total size in bytes of the objects whose names begin with a
// prefix.
func (p *Payloads) Sum(ctx context.Context, prefix string) (objects int, bytes int64, err error) {
	for range listings {
		objects, bytes = 0, 0
		err = each(ctx, p.bucket, payload.Prefix+prefix, func(o *blob.ListObject) error {
			objects, bytes = objects+1, bytes+o.Size
			return nil
		})
		if gcerrors.Code(err) != gcerrors.NotFound {
			break
		}
	}
	return objects, bytes, err
}

// Remove deletes an object. The object may be gone already.
func (p *Payloads) Remove(ctx context.Context, name string) error {
	return remove(ctx, p.bucket, payload.Prefix+name)
}

// refs returns the objects that args and an output refer to.
func refs(args, output string) (objects []string) {
	for _, text := range []string{args, output} {
		if !payload.Reserved(text) {
			continue
		}
		if ref := payload.Parse([]byte(text)); ref != nil {
			objects = append(objects, ref.Object)
		}
	}
	return objects
}

// payloads returns the objects that a row refers to.
func (r *Row) payloads() []string {
	if r.Output == nil {
		return refs(r.Args, "")
	}
	return refs(r.Args, *r.Output)
}

// forget deletes the objects of tasks that are to be deleted. It runs before the tasks are deleted,
// so that a later run can finish what it leaves.
func (r *Runner) forget(ctx context.Context, objects []string) error {
	for _, name := range objects {
		if err := remove(ctx, r.o.Bucket, payload.Prefix+name); err != nil {
			return err
		}
	}
	return nil
}
