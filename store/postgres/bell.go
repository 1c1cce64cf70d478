package postgres

import (
	"context"
	"sync"
	"time"
)

const (
	notifyEvery  = 20 * time.Millisecond // a process tells of a queue no more often
	notifySooner = 3 * time.Millisecond  // or than that, while few calls ring
	fewRings     = 10                    // in the time between two notifications
	notifyWithin = 5 * time.Second
)

// bell holds back notifications that come too often.
type bell struct {
	mu     sync.Mutex
	queues map[string]*rung
}

// rung is what is known of a queue's notifications.
type rung struct {
	at    time.Time // of the last
	rings int       // since then
	later bool      // one is to come
	tries int       // that are to come for transactions of the user's; see ringAfter
	again *time.Timer
}

func (b *bell) of(queue string) *rung {
	if b.queues == nil || len(b.queues) > 10000 {
		b.queues = map[string]*rung{}
	}
	r := b.queues[queue]
	if r == nil {
		r = &rung{}
		b.queues[queue] = r
	}
	return r
}

// ring tells listeners that a queue may have got tasks, soon and not too often,
// without keeping the caller.
func (s *Store) ring(queues ...string) {
	if s.quiet {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	for _, queue := range queues {
		r := s.bell.of(queue)
		r.rings++
		if r.later {
			continue
		}
		every := notifySooner
		if r.rings > fewRings {
			every = notifyEvery
		}
		r.later = true
		time.AfterFunc(every-time.Since(r.at), func() { s.notify(queue, r) })
	}
}

// notify sends one notification. Nobody relies on it, so its error is of no use.
func (s *Store) notify(queue string, r *rung) {
	s.bell.mu.Lock()
	if many := r.rings > fewRings; many && time.Since(r.at) < notifyEvery {
		time.AfterFunc(notifyEvery-time.Since(r.at), func() { s.notify(queue, r) })
		s.bell.mu.Unlock()
		return
	}
	r.at, r.rings, r.later = time.Now(), 0, false
	s.bell.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
	defer cancel()
	_ = s.exec(ctx, "notify", s.channel(), queue)
}

// commitsAfter are the times after which a user's transaction is likely to have been
// committed since tasks were stored in it: most are soon, and nobody says when.
var commitsAfter = [...]time.Duration{3 * time.Millisecond, 15 * time.Millisecond, 60 * time.Millisecond,
	250 * time.Millisecond}

// ringAfter rings for tasks in a user's transaction, a few times after a while. To notify
// inside of it would have all such transactions of the server commit one after the other.
func (s *Store) ringAfter(have *survey) {
	if s.quiet || have.turns {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	for _, queue := range have.queues {
		r := s.bell.of(queue)
		switch {
		case r.again == nil:
			r.again = time.AfterFunc(commitsAfter[0], func() { s.ringAgain(queue, r) })
		case r.tries > 0:
			r.again.Reset(commitsAfter[0])
		}
		r.tries = 0
	}
}

func (s *Store) ringAgain(queue string, r *rung) {
	s.ring(queue)
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if r.tries++; r.tries == len(commitsAfter) {
		r.again = nil
		return
	}
	r.again.Reset(commitsAfter[r.tries])
}
