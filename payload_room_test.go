package tusk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/gate"
)

// hangingSum is a place for payloads whose lists hang until it is told to answer.
type hangingSum struct {
	Payloads
	asked, answer chan struct{}
}

func (h *hangingSum) Sum(context.Context, string) (int, int64, error) {
	close(h.asked)
	<-h.answer
	return 3, 30, nil
}

func TestAPartDoesNotWaitForAListThatHangs(t *testing.T) {
	h := &hangingSum{asked: make(chan struct{}), answer: make(chan struct{})}
	p := &lyingParts{listing: gate.New()}
	first := make(chan error)
	go func() { first <- p.room(t.Context(), h, "x") }()
	<-h.asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.room(ctx, h, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	p.add(1, 10) // a part that was written meanwhile
	close(h.answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if parts, bytes, full := p.known(); parts != 4 || bytes != 40 || full {
		t.Errorf("%d parts with %d bytes", parts, bytes)
	}
}
