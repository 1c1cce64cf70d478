package tusk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
)

// ErrPayload says that args or an output are stored outside the database and cannot be read: the client has no
// Payloads, or the object is missing or damaged.
var ErrPayload = errors.New("kept outside the database and cannot be read")

// ErrNoPayloads is an ErrPayload: the client has no Payloads.
var ErrNoPayloads = fmt.Errorf("%w: the client has no Payloads", ErrPayload)

// Payloads stores args and outputs that are too large for the database. Package archive has an implementation for
// a folder or an object store. It never changes an object, and deletes one only when no task in the database or
// the archive refers to it and none can refer to it later.
type Payloads interface {
	// Write stores an object as a whole. If it fails, or r fails, no object is stored.
	Write(ctx context.Context, name string, r io.Reader) error
	// Read returns an object's content from byte offset from on.
	Read(ctx context.Context, name string, from int64) (io.ReadCloser, error)
	// Sum returns the number of objects whose names begin with prefix, and their total size in bytes.
	Sum(ctx context.Context, prefix string) (objects int, bytes int64, err error)
	// Remove deletes an object, which may be missing. It is used only for parts of uploads, which no task refers
	// to.
	Remove(ctx context.Context, name string) error
}

// MaxPayloadBytes is the maximum size of the JSON of args or of an output outside the database.
const MaxPayloadBytes = 1 << 30

// Content is the args or the output of a task, wherever they are stored. Its zero value is empty. As the type of a
// handler's args it gives access to them as a stream instead of holding them in memory:
//
//	tusk.HandleKind(mux, "import", func(ctx context.Context, t *tusk.Task[tusk.Content]) error {
//		r, err := t.Args.Open(ctx)
//		…
//	})
type Content struct {
	text []byte // content that is in the database
	ref  *payload.Ref
	from Payloads
}

// Size returns the size of the JSON in bytes.
func (c Content) Size() int64 {
	if c.ref != nil {
		return c.ref.Bytes
	}
	return int64(len(c.text))
}

// SHA256 returns the checksum, in hexadecimal, of content stored outside the database. Otherwise it is empty.
func (c Content) SHA256() string {
	if c.ref == nil {
		return ""
	}
	return c.ref.SHA256
}

// Large reports whether the content is stored outside the database.
func (c Content) Large() bool { return c.ref != nil }

// Open reads the JSON. If an object is not what was written, reading ends with ErrPayload.
func (c Content) Open(ctx context.Context) (io.ReadCloser, error) {
	r, err := c.OpenAt(ctx, 0)
	if err != nil || c.ref == nil {
		return r, err
	}
	return &verified{r: r, ref: c.ref, hash: sha256.New()}, nil
}

// OpenAt reads the JSON from byte offset from on, so that an interrupted reader can resume. Only Open verifies the
// checksum of the whole.
func (c Content) OpenAt(ctx context.Context, from int64) (io.ReadCloser, error) {
	if from < 0 || from > c.Size() {
		return nil, invalid("from", "out_of_range", "is %d, want 0 to %d", from, c.Size())
	}
	if c.ref == nil {
		return io.NopCloser(bytes.NewReader(c.text[from:])), nil
	}
	if c.from == nil {
		return nil, ErrNoPayloads
	}
	number, at := uint64(0), from
	if c.ref.Plain != nil {
		number, at = uint64(from/payload.Piece), payload.Offset(uint64(from/payload.Piece))
	}
	object, err := c.from.Read(ctx, c.ref.Object, c.ref.Skip+at)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPayload, err)
	}
	if c.ref.Plain == nil {
		return object, nil
	}
	clear, err := payload.Decrypt(object, c.ref.Plain, number)
	if err == nil {
		_, err = io.CopyN(io.Discard, clear, from%payload.Piece)
	}
	if err != nil && err != io.EOF {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrPayload, err), object.Close())
	}
	return &body{clear, object}, nil
}

// Bytes reads all of the JSON into memory.
func (c Content) Bytes(ctx context.Context) (json.RawMessage, error) {
	if c.ref == nil {
		return c.text, nil
	}
	r, err := c.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text := make([]byte, c.ref.Bytes)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPayload, err)
	}
	_, err = io.Copy(io.Discard, r) // the checksum is verified at the end
	return text, err
}

// body reads from one source and closes another.
type body struct {
	io.Reader
	io.Closer
}

// verified compares what it reads with what was written.
type verified struct {
	r    io.ReadCloser
	ref  *payload.Ref
	hash hash.Hash
	n    int64
}

// Read implements io.Reader.
func (v *verified) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	_, _ = v.hash.Write(p[:n])
	v.n += int64(n)
	if err == io.EOF && (v.n != v.ref.Bytes || hex.EncodeToString(v.hash.Sum(nil)) != v.ref.SHA256) {
		return 0, fmt.Errorf("%w: %w", ErrPayload, payload.ErrDamaged)
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return n, err
}

// Close implements io.Closer.
func (v *verified) Close() error { return v.r.Close() }

// ArgsOf returns the decrypted args of a task returned by List, Get or an archive, wherever they are stored. The
// error is ErrEncrypted if they cannot be decrypted.
func (c *Client) ArgsOf(t *TaskInfo) (Content, error) { return c.argsOf(&t.Task) }

// OutputOf is like ArgsOf for the task's output, which Get and a List with Detail load. It is empty if there is
// none.
func (c *Client) OutputOf(t *TaskInfo) Content {
	if t.Detail == nil {
		return Content{}
	}
	return c.outputOf(t.Detail.Output)
}

func (c *Client) outputOf(text []byte) Content {
	if ref := payload.Parse(text); ref != nil {
		return Content{ref: ref, from: c.config.Payloads}
	}
	return Content{text: text}
}

func (c *Client) argsOf(t *store.Task) (Content, error) {
	ref := payload.Parse(t.Args)
	if ref == nil {
		text, err := c.config.KeyRing.unseal(t.Args, t.Kind, t.Key, t.ID)
		return Content{text: text}, err
	}
	if ref.Key != nil {
		plain, err := c.config.KeyRing.unseal(ref.Key, t.Kind, t.Key, t.ID)
		if err != nil {
			return Content{}, err
		}
		if err := json.Unmarshal(plain, &ref.Plain); err != nil {
			return Content{}, fmt.Errorf("%w: %w", ErrEncrypted, err)
		}
	}
	return Content{ref: ref, from: c.config.Payloads}, nil
}
