package tusk

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events. EventRescued is sent by the leader, all others by the worker that ran the attempt.
const (
	EventStarted   EventKind = "started"
	EventCompleted EventKind = "completed"
	EventFailed    EventKind = "failed" // it will be retried
	EventSnoozed   EventKind = "snoozed"
	EventWaiting   EventKind = "waiting"  // waits for its children
	EventReturned  EventKind = "returned" // handed back, for example in a shutdown
	EventCancelled EventKind = "cancelled"
	EventDiscarded EventKind = "discarded"
	EventRescued   EventKind = "rescued" // taken back from a dead worker
	EventHung      EventKind = "hung"    // the handler ignores the end of its context; the outcome follows
	EventLost      EventKind = "lost"    // ended after its lease; the outcome was refused
)

// Event reports the outcome of an attempt once the store has recorded it.
type Event struct {
	Kind  EventKind
	Task  store.Task    // as it was claimed
	Error string        // of a failed attempt
	Delay time.Duration // until the next attempt
	Ran   time.Duration // how long the handler ran
}

// Subscribe returns the worker's events of the given kinds, or all events if there are none, until cancel is
// called, which closes the channel. The buffer holds 1,000 events. A subscriber that is too slow misses events;
// Missed counts them.
func (w *Worker) Subscribe(kinds ...EventKind) (events <-chan Event, cancel func()) {
	s := &subscriber{events: make(chan Event, 1000), kinds: map[EventKind]bool{}}
	for _, k := range kinds {
		s.kinds[k] = true
	}
	w.events.add(s)
	return s.events, func() { w.events.remove(s) }
}

// Missed returns the number of events that subscribers were too slow to receive.
func (w *Worker) Missed() int64 { return w.events.missed.Load() }

type subscriber struct {
	events chan Event
	kinds  map[EventKind]bool
}

type broadcast struct {
	mu          sync.RWMutex
	subscribers map[*subscriber]struct{}
	any         atomic.Bool
	missed      atomic.Int64
}

func (b *broadcast) add(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers == nil {
		b.subscribers = map[*subscriber]struct{}{}
	}
	b.subscribers[s] = struct{}{}
	b.any.Store(true)
}

func (b *broadcast) remove(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.subscribers[s]; ok {
		delete(b.subscribers, s)
		close(s.events)
	}
	b.any.Store(len(b.subscribers) > 0)
}

func (b *broadcast) send(e Event) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for s := range b.subscribers {
		if len(s.kinds) > 0 && !s.kinds[e.Kind] {
			continue
		}
		select {
		case s.events <- e:
		default:
			b.missed.Add(1)
		}
	}
}

func eventOf(o *store.Outcome) Event {
	e := Event{Task: *o.Task, Error: o.Error, Delay: o.Delay, Ran: o.Ran}
	switch o.State {
	case store.Completed:
		e.Kind = EventCompleted
	case store.Retryable:
		e.Kind = EventFailed
	case store.Scheduled:
		e.Kind = EventSnoozed
	case store.Available:
		e.Kind = EventReturned
	case store.Pending:
		e.Kind = EventWaiting
	case store.Cancelled:
		e.Kind = EventCancelled
	default:
		e.Kind = EventDiscarded
	}
	return e
}
