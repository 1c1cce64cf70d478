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

// ErrPayload says that args, or an output, are kept outside the database and cannot be read: the
// client has no Payloads, or the object is gone or damaged.
var ErrPayload = errors.New("kept outside the database and cannot be read")

// ErrNoPayloads is an ErrPayload: the client has no Payloads.
var ErrNoPayloads = fmt.Errorf("%w: the client has no Payloads", ErrPayload)

// Payloads is where args and outputs go that are too large for the database. Package archive has
// one, of a folder or an object store. It never changes an object, and deletes one only when no
// task of the database or the archive refers to it, and none can come to.
type Payloads interface {
	// Write stores an object as a whole. When it fails, or r does, there is none.
	Write(ctx context.Context, name string, r io.Reader) error
	// Read returns an object from a byte on.
	Read(ctx context.Context, name string, from int64) (io.ReadCloser, error)
	// Sum returns how many objects there are whose names begin with a prefix, and how many bytes they have.
	Sum(ctx context.Context, prefix string) (objects int, bytes int64, err error)
	// Remove deletes an object, which may be gone. Only parts of uploads are deleted so: no task refers to them.
	Remove(ctx context.Context, name string) error
}

// MaxPayloadBytes is the most that the JSON of args or of an output may take outside the database.
const MaxPayloadBytes = 1 << 30

// Content is the args or the output of a task, wherever they are kept. Its zero value is empty. As
// the type of a handler's args it reads them as a stream, instead of having them in memory:
//
//	tusk.HandleKind(mux, "import", func(ctx context.Context, t *tusk.Task[tusk.Content]) error {
//		r, err := t.Args.Open(ctx)
//		…
//	})
type Content struct {
	text []byte // of what is in the database
	ref  *payload.Ref
	from Payloads
}

// Size is how many bytes of JSON it has.
func (c Content) Size() int64 {
	if c.ref != nil {
		return c.ref.Bytes
	}
	return int64(len(c.text))
}

// SHA256 is the checksum of what is kept outside the database, in hexadecimal; else it is empty.
func (c Content) SHA256() string {
	if c.ref == nil {
		return ""
	}
	return c.ref.SHA256
}

// Large reports whether it is kept outside the database.
func (c Content) Large() bool { return c.ref != nil }

// Open reads the JSON. An object that is not what was written ends with ErrPayload.
func (c Content) Open(ctx context.Context) (io.ReadCloser, error) {
	r, err := c.OpenAt(ctx, 0)
	if err != nil || c.ref == nil {
		return r, err
	}
	return &verified{r: r, ref: c.ref, hash: sha256.New()}, nil
}

// OpenAt reads the JSON from a byte on, so that somebody can go on who was interrupted. The checksum
// of the whole is compared by Open alone.
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
	_, err = io.Copy(io.Discard, r) // the checksum comes with the end
	return text, err
}

// body reads from one thing and closes another.
type body struct {
	io.Reader
	io.Closer
}

// verified compares what was read with what was written.
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

// ArgsOf returns the args of a task as List, Get or an archive give it, in the clear, wherever they are
// kept.
// The error is ErrEncrypted when they cannot be read.
func (c *Client) ArgsOf(t *TaskInfo) (Content, error) { return c.argsOf(&t.Task) }

// OutputOf is the same for its output, which Get and a List with Detail bring; empty: it has none.
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
