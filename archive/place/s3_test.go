package place

import (
	"bytes"
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/archive/place/s3test"
)

func TestAnObjectStoreThatMovesNoByteIsGivenUp(t *testing.T) {
	server := s3test.Start(t)
	u, err := url.Parse(server.URL("a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := openS3(t.Context(), u, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	body := []byte("much")
	if err := b.WriteAll(t.Context(), "file", body, nil); err != nil {
		t.Fatal(err)
	}
	server.Hold(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far more than it should take
	defer cancel()
	if _, err := b.ReadAll(ctx, "file"); err == nil || ctx.Err() != nil {
		t.Errorf("a read goes on: %v", err)
	}
	server.Hold(false)
	if got, err := b.ReadAll(ctx, "file"); err != nil || !bytes.Equal(got, body) {
		t.Errorf("afterwards %d bytes are read of %d: %v", len(got), len(body), err)
	}
}
