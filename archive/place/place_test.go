package place

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/archive/place/placetest"
)

func reach(t *testing.T, location string, patience time.Duration) *blob.Bucket {
	t.Helper()
	b, err := open(t.Context(), location, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestAFolderIsWrittenReadListedAndDeletedFrom(t *testing.T) {
	dir := t.TempDir()
	holds(t, func(prefix string) string { return "file://" + filepath.ToSlash(dir) + "?prefix=" + prefix })
}

// Each object store is started once for all tests, since a start takes seconds.
func TestObjectStores(t *testing.T) {
	placetest.Each(t, func(t *testing.T, s *placetest.Server) {
		t.Run("what is written is read, listed and deleted", func(t *testing.T) { holds(t, s.URL) })
		t.Run("an object is there as a whole or not at all", func(t *testing.T) { isWhole(t, s) })
		t.Run("a store that moves no byte is given up", func(t *testing.T) { stalls(t, s) })
		t.Run("a store that answers errors is given up", func(t *testing.T) { fails(t, s) })
	})
}

// put writes like the archive: WriteAll panics on Azure if the write fails.
func put(ctx context.Context, b *blob.Bucket, name, text string) error {
	return b.Upload(ctx, name, strings.NewReader(text), &blob.WriterOptions{ContentType: "text/plain", BufferSize: 8 << 20,
		MaxConcurrency: 1})
}

func keys(t *testing.T, b *blob.Bucket, prefix string) (found []string) {
	t.Helper()
	for all := b.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := all.Next(t.Context())
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%s %d", o.Key, o.Size))
	}
}

func holds(t *testing.T, location func(prefix string) string) {
	b := reach(t, location("deep/in/it"), patience)
	const name = "day=2026-01-01/queue=a/1.parquet"
	body := bytes.Repeat([]byte("0123456789"), 2<<20) // more than fits into one part
	o := &blob.WriterOptions{ContentType: "application/vnd.apache.parquet", BufferSize: 8 << 20, MaxConcurrency: 1}
	if err := b.Upload(t.Context(), name, bytes.NewReader(body), o); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := put(t.Context(), b, "_tusk/clock", text); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.ReadAll(t.Context(), name); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes are read of %d: %v", len(got), len(body), err)
	}
	if got, err := b.ReadAll(t.Context(), "_tusk/clock"); err != nil || string(got) != "second" {
		t.Errorf("what was written anew is %q: %v", got, err)
	}
	for _, part := range [][2]int64{{0, 7}, {13, 1 << 20}, {int64(len(body)) - 3, -1}} {
		r, err := b.NewRangeReader(t.Context(), name, part[0], part[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		want := body[part[0]:]
		if part[1] >= 0 {
			want = want[:part[1]]
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes are read from %d: %v", len(got), part[0], err)
		}
		r.Close()
	}
	about, err := b.Attributes(t.Context(), name)
	if err != nil || about.Size != int64(len(body)) || time.Since(about.ModTime).Abs() > time.Minute {
		t.Errorf("%+v, %v", about, err)
	}
	if got, want := keys(t, b, "day="), []string{fmt.Sprintf("%s %d", name, len(body))}; !slices.Equal(got, want) {
		t.Errorf("it lists %q, want %q", got, want)
	}
	if got := keys(t, reach(t, location("other"), patience), ""); len(got) != 0 {
		t.Errorf("another prefix has %q", got)
	}
	if err := b.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, b, "day="); len(got) != 0 {
		t.Errorf("it lists %q after the deletion", got)
	}
	_, read := b.ReadAll(t.Context(), name)
	for what, err := range map[string]error{"read": read, "deleted": b.Delete(t.Context(), name)} {
		if gcerrors.Code(err) != gcerrors.NotFound {
			t.Errorf("what is gone is %s: %v", what, err)
		}
	}
}

func isWhole(t *testing.T, server *placetest.Server) {
	b := reach(t, server.URL("a"), patience)
	if err := put(t.Context(), b, "kept", "kept"); err != nil {
		t.Fatal(err)
	}
	const size = 20 << 20
	o := &blob.WriterOptions{ContentType: "text/plain", BufferSize: 8 << 20, MaxConcurrency: 1}
	err := b.Upload(t.Context(), "half", &placetest.Trip{R: strings.NewReader(strings.Repeat("x", size)), Left: size / 2,
		Do: func() {
			server.Kill()
			if err := server.Again(); err != nil {
				t.Error(err)
			}
		}}, o)
	if got, read := b.ReadAll(t.Context(), "half"); err == nil && (read != nil || len(got) != size) || err != nil &&
		gcerrors.Code(read) != gcerrors.NotFound {
		t.Errorf("after a write that ended with %v there are %d bytes: %v", err, len(got), read)
	}
	if got, err := b.ReadAll(t.Context(), "kept"); err != nil || string(got) != "kept" {
		t.Errorf("%q is left: %v", got, err)
	}
}

func stalls(t *testing.T, server *placetest.Server) {
	b := reach(t, server.URL("a"), 300*time.Millisecond)
	const body = "much"
	if err := put(t.Context(), b, "file", body); err != nil {
		t.Fatal(err)
	}
	server.Hold(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far more than it should take
	defer cancel()
	if _, err := b.ReadAll(ctx, "file"); err == nil || ctx.Err() != nil {
		t.Errorf("a read goes on: %v", err)
	}
	if err := put(ctx, b, "other", body); err == nil || ctx.Err() != nil {
		t.Errorf("a write goes on: %v", err)
	}
	server.Hold(false)
	if got, err := b.ReadAll(t.Context(), "file"); err != nil || string(got) != body {
		t.Errorf("afterwards %d bytes are read of %d: %v", len(got), len(body), err)
	}
}

func fails(t *testing.T, server *placetest.Server) {
	b := reach(t, server.URL("a"), patience)
	server.Fail(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far more than it should take
	defer cancel()
	if err := put(ctx, b, "file", "x"); err == nil || ctx.Err() != nil {
		t.Errorf("a write goes on: %v", err)
	}
	if _, err := b.ReadAll(ctx, "file"); err == nil || ctx.Err() != nil || gcerrors.Code(err) == gcerrors.NotFound {
		t.Errorf("a read ends with: %v", err)
	}
	server.Fail(false)
	if err := put(t.Context(), b, "file", "x"); err != nil {
		t.Error(err)
	}
}
