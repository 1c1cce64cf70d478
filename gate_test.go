package tusk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// hangingRecords is a store that does not answer requests for records that have no deadline.
type hangingRecords struct {
	store.Store
	asked chan struct{}
	until chan struct{}
}

func (h *hangingRecords) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if _, limited := ctx.Deadline(); limited {
		return h.Store.Records(ctx, f)
	}
	h.asked <- struct{}{}
	<-h.until
	return h.Store.Records(ctx, f)
}

func TestWhoHasADeadlineDoesNotWaitForSomebodyElsesLookAtSettings(t *testing.T) {
	h := &hangingRecords{Store: memory.New(), asked: make(chan struct{}), until: make(chan struct{})}
	client := clientOf(t, h)
	for name, call := range map[string]func(ctx context.Context) error{
		"limits": func(ctx context.Context) error {
			_, err := client.Enqueue(ctx, count{}, nil)
			return err
		},
		"pipelines": func(ctx context.Context) error {
			_, err := client.RunAhead(ctx, &tusk.TaskInfo{Task: store.Task{Kind: "ingest.fetch", Key: "k"}})
			return err
		},
	} {
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- call(context.Background()) }()
		<-h.asked
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		go func() { second <- call(ctx) }()
		select {
		case err := <-second:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no answer long after the deadline", name)
		}
		cancel()
		close(h.until)
		if err := <-first; err != nil {
			t.Errorf("%s: the one that hung: %v", name, err)
		}
		h.until = make(chan struct{})
	}
}
