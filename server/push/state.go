package push

import (
	"context"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/shelf"
)

const (
	stateKind = herald.EndpointState
	maxError  = 300         // bytes of a stored error
	sayAgain  = time.Minute // after which an endpoint that answers is stored to have done so, if its state says otherwise
)

// note stores that an endpoint was not reached, or that it has answered since then. Other answers are not stored.
func (b *Book) note(ctx context.Context, queue string, now herald.Delivery) error {
	if now.Fails() {
		return shelf.ChangeOf(ctx, b.store, recordKind, stateKind, queue, func(doc *herald.Delivery) {
			doc.Failed, doc.Error = now.Failed, now.Error
		})
	}
	return shelf.Change(ctx, b.store, stateKind, queue, func(doc *herald.Delivery, exists bool, _ int) (bool, error) {
		if doc.Fails() {
			doc.Arrived = now.Arrived
		}
		if doc.Fails() { // the clock of the server that failed is ahead
			doc.Arrived = doc.Failed
		}
		return exists, nil
	})
}

// note stores the state of the endpoint if it has changed.
func (s *sender) note(ctx context.Context) {
	s.mu.Lock()
	news := s.news
	s.mu.Unlock()
	if !news {
		return
	}
	s.noting.Lock() // so that the latest state is stored last
	defer s.noting.Unlock()
	s.mu.Lock()
	queue, now, news := s.endpoint.Queue, s.state, s.news
	s.news = false
	s.mu.Unlock()
	if !news {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.book.note(ctx, queue, now); err != nil {
		s.log.Warn("push: the state of the endpoint is not stored", "queue", queue, "error", err)
	}
}

func cutError(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}
