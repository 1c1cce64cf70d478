package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

const (
	notifyEvery  = 20 * time.Millisecond // a process tells of a queue no more often
	notifySooner = 3 * time.Millisecond  // or than that, while few calls ring
	fewRings     = 10                    // in the time between two notifications
	leadEvery    = 100 * time.Millisecond
	leadSooner   = 20 * time.Millisecond // both for whoever leads: while tasks wait it looks by itself
	notifyWithin = 5 * time.Second
	toldWithin   = time.Second // of the end
)

// ringing holds back notifications that come too often.
type ringing struct {
	mu     sync.Mutex
	names  map[string]*rung // of queues, or for whoever leads
	later  sync.WaitGroup   // notifications that are to come
	closed bool
}

// close waits until what was rung for has been told, but not for long: a program that enqueues a task and ends wakes its
// worker, too.
func (b *ringing) close(tell func(name string, r *rung)) {
	b.mu.Lock()
	b.closed = true
	for name, r := range b.names {
		if r.again != nil && r.again.Stop() { // of a transaction that may have committed just now
			b.later.Add(1)
			go tell(name, r)
		}
	}
	b.mu.Unlock()
	told := make(chan struct{})
	go func() { b.later.Wait(); close(told) }()
	select {
	case <-told:
	case <-time.After(toldWithin):
	}
}

// rung is what is known of a name's notifications.
type rung struct {
	sooner, every time.Duration

	at    time.Time // of the last
	rings int       // since then
	later bool      // one is to come
	tries int       // that are to come for transactions of the user's; see ringAfter
	again *time.Timer
	open  []store.ID // tasks of theirs that are expected
	blind bool       // there are others
}

func (b *ringing) of(name string) *rung {
	if b.names == nil || len(b.names) > 10000 {
		b.names = map[string]*rung{}
	}
	r := b.names[name]
	if r == nil {
		r = &rung{sooner: notifySooner, every: notifyEvery}
		if bell.Leads(name) {
			r.sooner, r.every = leadSooner, leadEvery
		}
		b.names[name] = r
	}
	return r
}

// ring tells listeners that a queue may have got tasks, or whoever leads of them, soon and not
// too often, without keeping the caller.
func (s *Store) ring(names ...string) {
	if s.quiet {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if s.bell.closed {
		return
	}
	for _, name := range names {
		r := s.bell.of(name)
		if bell.Leads(name) && s.leads() && s.near.bell.Ring(name) {
			continue // nobody else has to hear of it
		}
		r.rings++
		if r.later {
			continue
		}
		every := r.sooner
		if r.rings > fewRings {
			every = r.every
		}
		r.later = true
		s.bell.later.Add(1)
		time.AfterFunc(every-time.Since(r.at), func() { s.notify(name, r) })
	}
}

// notify sends one notification. Nobody relies on it, so its error is of no use.
func (s *Store) notify(name string, r *rung) {
	s.bell.mu.Lock()
	if many := r.rings > fewRings; many && time.Since(r.at) < r.every {
		time.AfterFunc(r.every-time.Since(r.at), func() { s.notify(name, r) })
		s.bell.mu.Unlock()
		return
	}
	r.at, r.rings, r.later = time.Now(), 0, false
	s.bell.mu.Unlock()
	defer s.bell.later.Done()
	ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
	defer cancel()
	_ = s.exec(ctx, "notify", s.channel(), name)
}

// commitsAfter are the times after which a user's transaction is likely to have been
// committed since tasks were stored in it: most are soon, and nobody says when. The first is for this process alone.
var commitsAfter = [...]time.Duration{time.Millisecond, 3 * time.Millisecond, 15 * time.Millisecond,
	60 * time.Millisecond, 250 * time.Millisecond}

// ringAfter tells of tasks in a user's transaction, a few times after a while. To notify
// inside of it would have all such transactions of the server commit one after the other.
func (s *Store) ringAfter(n *news) {
	if s.quiet {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	for _, name := range n.have.rings() {
		r := s.bell.of(name)
		r.open, r.blind = append(r.open, n.ids...), r.blind || n.ids == nil
		first := 0
		if n.ids == nil {
			first = 1
		}
		switch {
		case r.again == nil:
			r.tries, r.again = first, time.AfterFunc(commitsAfter[first], func() { s.ringAgain(name, r) })
		case r.tries > first:
			r.tries = first
			r.again.Reset(commitsAfter[first])
		}
	}
}

func (s *Store) ringAgain(name string, r *rung) {
	s.bell.mu.Lock()
	r.open = s.near.still(r.open)
	open, blind := r.open, r.blind
	s.bell.mu.Unlock()
	if blind {
		s.ring(name)
	} else {
		s.offer(name, open)
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if r.tries++; r.tries == len(commitsAfter) || !r.blind && len(r.open) == 0 {
		s.near.forget(r.open)
		r.open, r.blind, r.again = nil, false, nil
		return
	}
	r.again.Reset(commitsAfter[r.tries])
}

// leads reports whether this process leads, as far as is known.
func (s *Store) leads() bool { return time.Since(time.Unix(0, s.near.leads.Load())) < leadsFor }
