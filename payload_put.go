package tusk

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
)

// How large args and outputs are stored outside the database: the object is written first, under a name that has
// never been used, and then the task that refers to it is stored.

// StreamArgs are args that are read while their task is enqueued, so that they need not fit in memory: up to
// MaxPayloadBytes of JSON if the client has Payloads. They are read once: to repeat an enqueue, create new ones.
// They cannot be combined with Unique.
type StreamArgs struct {
	Name string // the kind
	JSON io.Reader
}

// Kind implements Args.
func (a StreamArgs) Kind() string { return a.Name }

// opener is implemented by args, or sources of args, that are read as a stream.
type opener interface {
	Open(ctx context.Context) (io.ReadCloser, error)
}

// Open implements opener.
func (a StreamArgs) Open(context.Context) (io.ReadCloser, error) {
	if a.JSON == nil {
		return nil, invalid("args", "missing", "have no reader")
	}
	return io.NopCloser(a.JSON), nil
}

// copiedArgs are the args of another task. The new task gets an object of its own.
type copiedArgs struct {
	kind string
	Content
}

// Kind implements Args.
func (a copiedArgs) Kind() string { return a.kind }

// openerOf returns the stream that args are read from, or nil if they are encoded like any value.
func openerOf(args Args) opener {
	switch a := args.(type) {
	case StreamArgs:
		return a
	case copiedArgs:
		return a
	case stageArgs:
		if c, ok := a.input.(Content); ok {
			return c
		}
	}
	return nil
}

// readArgs reads args. Small args become JSON like any other; large args become a reference.
func (e *encoder) readArgs(n *store.NewTask, from opener) ([]byte, error) {
	c := e.client
	if e.ctx == nil {
		return nil, invalid("args", "not_streamed", "cannot be streamed here: give them as they are")
	}
	if e.unique != nil {
		return nil, invalid("unique", "not_for_streams", "needs the args at hand: give the task a key")
	}
	if e.only {
		return []byte("{}"), nil
	}
	r, err := from.Open(e.ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	begin, err := io.ReadAll(io.LimitReader(r, int64(c.config.MaxArgsBytes)+1))
	if err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	if len(begin) <= c.config.MaxArgsBytes {
		begin = bytes.TrimSpace(begin)
		return begin, validateArgs(begin, c.config.MaxArgsBytes)
	}
	if payload.Reserved(begin) {
		return nil, errReserved("args")
	}
	return c.write(e.ctx, "args", payload.Header{Task: n.ID, By: e.by, Key: cmp.Or(n.Key, e.key)},
		io.MultiReader(bytes.NewReader(begin), r), c.config.KeyRing != nil)
}

// errReserved is the error for JSON from outside that begins like a reference.
func errReserved(field string) error {
	return invalid(field, "reserved", `has "$payload" first, as references to large args and outputs do: rename the field`)
}

// conceal is the last step for the args of validated tasks: it moves large args out of the database and encrypts
// the others. by is the task whose attempt creates the tasks, if any.
func (c *Client) conceal(ctx context.Context, by ID, tasks []store.NewTask) (err error) {
	for i := range tasks {
		n := &tasks[i]
		ref := payload.Parse(n.Args)
		if ref == nil && len(n.Args) > c.config.MaxArgsBytes && c.config.Payloads != nil {
			h := payload.Header{Task: n.ID, By: by, Key: n.Key}
			if n.Args, err = c.write(ctx, "args", h, bytes.NewReader(n.Args), c.config.KeyRing != nil); err != nil {
				return err
			}
			ref = payload.Parse(n.Args)
		}
		switch {
		case ref == nil:
			err = c.config.KeyRing.seal(n)
		case ref.Plain != nil:
			err = c.config.KeyRing.sealRef(n, ref)
		}
		if err != nil {
			return fmt.Errorf("encrypt: %w", err)
		}
	}
	return nil
}

// sealRef encrypts the key of an object in the same way as args.
func (k *KeyRing) sealRef(n *store.NewTask, ref *payload.Ref) error {
	plain, err := json.Marshal(ref.Plain)
	if err != nil {
		return err
	}
	ref.Plain = nil
	if ref.Key, err = k.encrypt(plain, boundTo(n.Kind, n.Key, n.ID)); err != nil {
		return err
	}
	n.Args, err = ref.Text()
	return err
}

// readOutput reads the output of a task. A large output becomes a reference.
func (c *Client) readOutput(ctx context.Context, task ID, r io.Reader) ([]byte, error) {
	begin, err := io.ReadAll(io.LimitReader(r, MaxOutputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if len(begin) <= MaxOutputBytes {
		return begin, ValidateOutput(begin)
	}
	if payload.Reserved(begin) {
		return nil, errReserved("output")
	}
	return c.write(ctx, "output", payload.Header{Task: task, By: task}, io.MultiReader(bytes.NewReader(begin), r), false)
}

// ValidateOutput validates JSON that is to become a task's output. The error is an *InvalidError.
func ValidateOutput(output []byte) error {
	if len(output) > MaxOutputBytes {
		return invalid("output", "output_too_large", "has %d bytes, at most %d are allowed", len(output), MaxOutputBytes)
	}
	if !json.Valid(output) {
		return invalid("output", "invalid_json", "is not one JSON value")
	}
	return checkOutput(output)
}

// checkOutput refuses valid JSON that cannot be an output.
func checkOutput(output []byte) error {
	if payload.Reserved(output) {
		return errReserved("output")
	}
	if err := checkJSON(output); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// write writes JSON to an object and returns the reference to it. The JSON is validated on the way.
func (c *Client) write(ctx context.Context, field string, h payload.Header, r io.Reader, encrypt bool) ([]byte, error) {
	if c.config.Payloads == nil {
		most := MaxOutputBytes
		if field == "args" {
			most = c.config.MaxArgsBytes
		}
		return nil, invalid(field, field+"_too_large",
			"has more than %d bytes, and there is no object store for it (ClientConfig.Payloads)", most)
	}
	line, err := h.Line()
	if err != nil {
		return nil, err
	}
	ref := payload.Ref{Object: payload.Name(h.Task, NewID(), time.Now()), Skip: int64(len(line))}
	sum := sha256.New()
	bounded := &bounded{r: r}
	body := io.TeeReader(payload.NewCheck(bounded, MaxArgsDepth), sum)
	if encrypt {
		ref.Plain = payload.NewKey()
		if body, err = payload.Encrypt(body, ref.Plain); err != nil {
			return nil, err
		}
	}
	if err := c.config.Payloads.Write(ctx, ref.Object, io.MultiReader(bytes.NewReader(line), body)); err != nil {
		problem := new(payload.Problem)
		switch {
		case errors.As(err, &problem):
			return nil, invalid(field, problem.Code, "%s", problem.Text)
		case errors.Is(err, errTooLong):
			return nil, invalid(field, field+"_too_large", "has more than %d bytes, the most that are allowed", MaxPayloadBytes)
		}
		return nil, fmt.Errorf("%s: write them outside the database: %w", field, err)
	}
	ref.Bytes, ref.SHA256 = bounded.n, hex.EncodeToString(sum.Sum(nil))
	return ref.Text()
}

var errTooLong = errors.New("too long")

// bounded counts what it reads, and refuses more than MaxPayloadBytes.
type bounded struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.n += int64(n); b.n > MaxPayloadBytes {
		return 0, errTooLong
	}
	return n, err
}
