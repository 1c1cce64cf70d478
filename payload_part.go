package tusk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"regexp"
)

// JSON that arrives in parts: each part is an object of its own, named after its sender, its upload and its
// checksum. No task refers to a part. A part is deleted when its upload has been assembled; the archive's sweep
// deletes parts of unfinished uploads when they are a day old.

// MaxPartBytes is the maximum size of a part of an upload.
const MaxPartBytes = 16 << 20

// MaxParts is the maximum number of parts of an upload.
const MaxParts = 1024

// Upload is JSON that is sent in parts.
type Upload struct {
	Owner  string   // who sends it; other owners cannot access its parts
	ID     ID       // chosen by the owner
	Parts  []string // the SHA-256 of each part, in hexadecimal, in order
	SHA256 string   // of the whole
}

var partSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// part returns the name of a part's object. It never has the form of a task's object name.
func (u Upload) part(sum string) (string, error) {
	if !partSum.MatchString(sum) {
		return "", invalid("sha256", "invalid_checksum", "want 64 hexadecimal digits in lower case")
	}
	return u.owned() + u.ID.String() + "." + sum, nil
}

// owned returns the prefix of the names of the owner's parts. In a folder they are files of one directory:
// otherwise empty directories would be left behind, and searched, forever.
func (u Upload) owned() string {
	owner := sha256.Sum256([]byte(u.Owner))
	return "uploads/" + hex.EncodeToString(owner[:]) + "/"
}

// WritePart stores a part of an upload and returns its size in bytes. It rejects a part that does not match its
// checksum or is too large, and stores nothing of it. It also rejects a part if its owner already has
// MaxUnfinishedParts or MaxUnfinishedBytes; concurrent writes may exceed these limits slightly. Writing the same
// part again is not an error.
func (c *Client) WritePart(ctx context.Context, u Upload, sum string, r io.Reader) (int64, error) {
	name, err := u.part(sum)
	if err != nil {
		return 0, err
	}
	if c.config.Payloads == nil {
		return 0, ErrNoPayloads
	}
	lying := c.lying.owned(u.Owner)
	if err := lying.room(ctx, c.config.Payloads, u.owned()); err != nil {
		return 0, err
	}
	checked := &summed{r: r, hash: sha256.New(), want: sum, field: "sha256", most: MaxPartBytes}
	if err := c.config.Payloads.Write(ctx, name, checked); err != nil {
		return 0, fmt.Errorf("write a part: %w", err)
	}
	lying.add(1, checked.n)
	return checked.n, nil
}

// RemoveParts deletes the parts of an upload that has been assembled.
func (c *Client) RemoveParts(ctx context.Context, u Upload) error {
	for _, sum := range u.Parts {
		name, err := u.part(sum)
		if err != nil {
			return err
		}
		if c.config.Payloads == nil {
			return ErrNoPayloads
		}
		if err := c.config.Payloads.Remove(ctx, name); err != nil {
			return fmt.Errorf("remove a part: %w", err)
		}
	}
	return nil
}

// HasPart returns nil if a part is stored. Otherwise it returns the error of the storage; a missing part is an
// error as well.
func (c *Client) HasPart(ctx context.Context, u Upload, sum string) error {
	name, err := u.part(sum)
	if err != nil {
		return err
	}
	if c.config.Payloads == nil {
		return ErrNoPayloads
	}
	r, err := c.config.Payloads.Read(ctx, name, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return r.Close()
}

// Uploaded reads the parts of an upload as one stream. It ends with an error instead of io.EOF if the whole does
// not match its checksum. The caller must close it.
func (c *Client) Uploaded(ctx context.Context, u Upload) (io.ReadCloser, error) {
	if len(u.Parts) == 0 || len(u.Parts) > MaxParts {
		return nil, invalid("upload.parts", "out_of_range", "has %d parts, want 1 to %d", len(u.Parts), MaxParts)
	}
	if !partSum.MatchString(u.SHA256) {
		return nil, invalid("upload.sha256", "invalid_checksum", "want 64 hexadecimal digits in lower case")
	}
	p := &parts{ctx: ctx, from: c.config.Payloads}
	for _, sum := range u.Parts {
		name, err := u.part(sum)
		if err != nil {
			return nil, err
		}
		p.names = append(p.names, name)
	}
	if p.from == nil {
		return nil, ErrNoPayloads
	}
	return &body{&summed{r: p, hash: sha256.New(), want: u.SHA256, field: "upload.sha256", most: MaxPayloadBytes}, p}, nil
}

// parts reads objects one after another.
type parts struct {
	ctx   context.Context
	from  Payloads
	names []string
	now   io.ReadCloser // nil if none is open
}

// Read implements io.Reader.
func (p *parts) Read(b []byte) (int, error) {
	for {
		if p.now == nil {
			if len(p.names) == 0 {
				return 0, io.EOF
			}
			r, err := p.from.Read(p.ctx, p.names[0], 0)
			if err != nil {
				return 0, fmt.Errorf("%w: %w", ErrPayload, err)
			}
			p.now, p.names = r, p.names[1:]
		}
		n, err := p.now.Read(b)
		if err == io.EOF {
			err = p.Close()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close implements io.Closer.
func (p *parts) Close() error {
	if p.now == nil {
		return nil
	}
	now := p.now
	p.now = nil
	return now.Close()
}

// summed compares what it reads with a checksum, and refuses more than a maximum.
type summed struct {
	r     io.Reader
	hash  hash.Hash
	want  string
	field string
	most  int64
	n     int64
}

// Read implements io.Reader.
func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.n += int64(n); s.n > s.most {
		return 0, invalid(s.field, "too_large", "is that of more than %d bytes, the most that are allowed", s.most)
	}
	_, _ = s.hash.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(s.hash.Sum(nil)) != s.want {
		return 0, invalid(s.field, "checksum_mismatch", "is not that of the %d bytes that have come", s.n)
	}
	return n, err
}
