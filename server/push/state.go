package push

import (
	"context"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/shelf"
)

const (
	stateKind  = herald.EndpointState
	maxError   = 300         // bytes of a stored error
	checkEvery = time.Minute // how often an endpoint that answers is checked for a stored failure
)

// note stores that an endpoint was not reached at a URL, or that it has answered since then. Other answers are not
// stored, and nothing is stored if the endpoint has another URL by now. Servers' clocks differ, so the order of the
// notes decides which is the latest.
func (b *Book) note(ctx context.Context, queue, url string, now herald.Delivery) error {
	return shelf.Change(ctx, b.store, stateKind, queue, func(doc *herald.Delivery, exists bool) (bool, error) {
		if !exists && !now.Fails() {
			return false, nil
		}
		d, _, err := shelf.Find[document](ctx, b.store, recordKind, queue)
		if err != nil || d.URL != url {
			return exists, err
		}
		if now.Fails() {
			doc.Failed, doc.Error = now.Failed, now.Error
			if !doc.Fails() {
				doc.Arrived = time.Time{}
			}
			return true, nil
		}
		if doc.Fails() {
			doc.Arrived = now.Arrived
		}
		if doc.Fails() {
			doc.Arrived = doc.Failed
		}
		return exists, nil
	})
}

// forget removes the state of an endpoint that moves or is removed. It comes first: once the endpoint is changed, no
// error may hide a new secret.
func (b *Book) forget(ctx context.Context, queue string) error {
	return shelf.Remove(ctx, b.store, stateKind, queue)
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
	queue, url, now, news := s.endpoint.Queue, s.endpoint.URL, s.state, s.news
	s.news = false
	s.mu.Unlock()
	if !news {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.book.note(ctx, queue, url, now); err != nil {
		s.log.Warn("push: the state of the endpoint is not stored", "queue", queue, "error", err)
		s.mu.Lock()
		s.news = s.news || s.endpoint.URL == url // the next call tries again
		s.mu.Unlock()
	}
}

func cutError(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}
