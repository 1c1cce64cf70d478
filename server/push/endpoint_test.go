package push

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// breakable is a store that refuses to read and write the states of endpoints while it is broken.
type breakable struct {
	*memory.Store
	broken  atomic.Bool
	refused atomic.Int64
}

var errBroken = errors.New("it is broken")

func (s *breakable) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if f.Kind == stateKind && s.broken.Load() {
		s.refused.Add(1)
		return nil, errBroken
	}
	return s.Store.Records(ctx, f)
}

// Whoever gets an error repeats the call. The second Put would show no secret if the first had stored the endpoint.
func TestAnErrorChangesNoEndpoint(t *testing.T) {
	s := &breakable{Store: memory.New()}
	book, err := NewBook(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := Endpoint{Queue: "q", URL: "https://app.example.com/"}
	s.broken.Store(true)
	if _, _, err := book.Put(t.Context(), e, "ada"); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	s.broken.Store(false)
	if text, _, err := book.Put(t.Context(), e, "ada"); err != nil || text == "" {
		t.Fatalf("the secret is lost: %q, %v", text, err)
	}
	s.broken.Store(true)
	if err := book.Remove(t.Context(), "q"); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	s.broken.Store(false)
	if err := book.Remove(t.Context(), "q"); err != nil {
		t.Error(err)
	}
}

// overtaken is a store in which another process stores an endpoint first.
type overtaken struct {
	store.Recorder
	first func()
}

func (s *overtaken) PutRecord(ctx context.Context, r store.PutRecord) (int64, []store.Enqueued, error) {
	if first := s.first; first != nil {
		s.first = nil
		first()
	}
	return s.Recorder.PutRecord(ctx, r)
}

func TestOnlyTheCallThatCreatesAnEndpointReturnsItsSecret(t *testing.T) {
	s := memory.New()
	other, err := NewBook(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := Endpoint{Queue: "q", URL: "https://app.example.com/"}
	book, err := NewBook(&overtaken{s, func() {
		if text, _, err := other.Put(t.Context(), e, "eve"); err != nil || text == "" {
			t.Errorf("%q, %v", text, err)
		}
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, stored, err := book.Put(t.Context(), e, "ada")
	if err != nil || text != "" || stored.CreatedBy != "eve" {
		t.Errorf("the secret is %q, created by %s, %v", text, stored.CreatedBy, err)
	}
}
